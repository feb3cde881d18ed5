"""Time that the passes of all engines of a process get while rows run."""

from __future__ import annotations

from ..costs.cost_model import CostModel
from ..costs.meter import Meter

SHARE = 1 / 8  # of the time: what the passes of all engines get while rows run, and a little more for work around them

MAX_PASS_SECONDS = 5.0  # that rows are owed for: in a longer one the process was stopped, or the clock jumped
MAX_PAUSE_SECONDS = 0.005  # after which an engine that leaves the time to others looks into its inbox

decoding: set[object] = set()
"""Engines of this process that have rows; each adds and removes itself."""
waiting: set[object] = set()
"""Those that have texts."""


class _Turns:
    """Time that a process's engines with rows leave to texts: the time of the next pass, which any engine may run."""

    resumes = 0.0
    """When the next pass may come; in the time of `CostModel.now`."""
    last: object = None
    """The engine that ran the last one: another one that has texts goes first."""


_turns = _Turns()


class Share:
    """The time of one engine's passes: an eighth while rows run, in this engine or in others of the process.

    After a pass, rows get seven times its seconds before the next one. Engines that have texts take turns.

    Args:
        engine: the one whose passes they are.
        costs: has the time.
        meter: what counts.
    """

    def __init__(self, engine: object, costs: CostModel, meter: Meter) -> None:
        self._engine, self._costs, self._meter = engine, costs, meter
        self._waiting: set[object] = set()
        """Lanes that have work."""
        self._owed = 0.0
        """Seconds that running rows get before the next pass."""

    def note_waiting(self, lane: object, waits: bool) -> None:
        """A lane has work, or none any more."""
        (self._waiting.add if waits else self._waiting.discard)(lane)
        (waiting.add if self._waiting else waiting.discard)(self._engine)

    def note_rows(self, running: bool) -> None:
        """Tell other engines if rows of this one run."""
        (decoding.add if running else decoding.discard)(self._engine)

    def note_pass(self, seconds: float, *, beside: bool) -> None:
        """Give rows their share of the time, after a pass that took these seconds."""
        now, owed = self._costs.now(), min(seconds, MAX_PASS_SECONDS) * (1 / SHARE - 1)
        # Two may have begun at once: then rows get what both have taken.
        _turns.resumes, _turns.last = max(now, _turns.resumes if decoding else 0.0) + owed, self._engine
        if beside:
            self._owed = owed
            self._meter.stalled(seconds)

    def stepped(self, seconds: float) -> None:
        """Running rows have had these seconds."""
        self._owed = max(0.0, self._owed - seconds)

    def is_due(self, beside: bool) -> bool:
        """True if a pass may come next; `beside`: rows of this engine run."""
        return not (beside and self._owed > 0) and not self.pause

    @property
    def pause(self) -> float:
        """Seconds for which rows, or the texts of others, have the time that engines share: at most
        `MAX_PAUSE_SECONDS`."""
        others = len(waiting) > (self._engine in waiting)
        if not (self.has_neighbors or (others and decoding)):
            return 0.0
        resumes = _turns.resumes + (MAX_PAUSE_SECONDS if others and _turns.last is self._engine else 0)
        return min(MAX_PAUSE_SECONDS, max(0.0, resumes - self._costs.now()))

    @property
    def has_neighbors(self) -> bool:
        """Rows of other engines run."""
        return len(decoding) > (self._engine in decoding)

    def close(self) -> None:
        """The engine has neither rows nor texts any more."""
        decoding.discard(self._engine)
        waiting.discard(self._engine)

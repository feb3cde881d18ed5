"""Pieces of work: plain values that can be printed, compared, and played again.

The scheduler names one piece after the other, and each is run before the next one is named. Rows are named by
`Row.number`, prompts by the first of their rows, requests for vectors by `EmbeddingJob.number`, and work that runs
alone by `AloneJob.number`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from ..types import Json


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of work."""


@dataclass(frozen=True, slots=True)
class PromptPiece(Piece):
    """A piece of work for rows that do not run yet, or for running rows that have to leave."""


@dataclass(frozen=True, slots=True)
class Pass(Piece):
    """A pass of work that is no row's. It runs next to a decode step."""


class Draft(NamedTuple):
    """Tokens that are guessed to follow a row's last one."""

    tokens: tuple[int, ...] = ()
    source: str = ""
    """Name of the source that guessed them; none where there are no tokens."""


@dataclass(frozen=True, slots=True)
class Collect(Piece):
    """The decode step in flight is finished, and what was built behind it is launched."""


@dataclass(frozen=True, slots=True)
class Decode(Piece):
    """A decode step: it is launched if nothing is in flight."""

    rows: tuple[int, ...] = ()
    """Those that run, in the order of the batch."""
    drafts: tuple[Draft, ...] | None = None
    """A step of several tokens, with these drafts of each row; None: one token of each."""
    ahead: bool = True
    """The graph of the step after it is built while it runs; else a step of several tokens is finished at once."""


@dataclass(frozen=True, slots=True)
class Deliver(Piece):
    """The tokens of the decode step are delivered."""


@dataclass(frozen=True, slots=True)
class Preempt(PromptPiece):
    """A running row goes back into the queue, with its output."""

    row: int


@dataclass(frozen=True, slots=True)
class Limit(PromptPiece):
    """Later prompts' prefixes and features shrink to what the rows leave."""

    spare: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Open(PromptPiece):
    """A prompt begins, from the longest prefix that the prefix cache has."""

    prompt: int
    rows: int
    """Number of its rows that have room; the others follow as another prompt."""
    spare: int | None
    """See `Limit`; None: no limit is known."""
    turn: bool = False
    """More urgent ones wait: its rows keep their places from them for some tokens."""


@dataclass(frozen=True, slots=True)
class Item(PromptPiece):
    """An image, video or sound of a prompt runs through the tower."""

    prompt: int
    digest: int


@dataclass(frozen=True, slots=True)
class Chunk(PromptPiece):
    """One pass of tokens of a prompt, or of several short ones to their ends."""

    prompts: tuple[int, ...]
    most: int
    """Tokens."""
    beside: bool
    """Rows run, and wait for it: they get their next tokens before these rows' first ones."""
    last: bool
    """No other prompt waits for what this one leaves."""


@dataclass(frozen=True, slots=True)
class Join(PromptPiece):
    """Prefilled rows join the batch."""

    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Texts(Pass):
    """One pass of texts, or the next piece of a long one."""

    texts: tuple[tuple[int, int], ...]
    """(request, place of the text in it)."""
    most: int
    """Tokens."""
    beside: bool
    """Rows run, and wait for it."""


@dataclass(frozen=True, slots=True)
class Perform(Pass):
    """The next piece of a text that is spoken, or of speech that is written down: one at a time."""

    request: int
    beside: bool
    """Rows run, and wait for it."""


@dataclass(frozen=True, slots=True)
class Rest(Piece):
    """Nothing can be run now: the time belongs to other engines of the process."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The pieces that a step of an engine ran, in this order, for `client.stats(plans=True)`."""

    number: int
    """From 1."""
    enter: tuple[int, ...] = ()
    """Rows that were queued since the step before."""
    leave: tuple[int, ...] = ()
    """Rows that were canceled or abandoned since then; some may have ended."""
    pieces: tuple[Piece, ...] = ()

    @property
    def before(self) -> list[Piece]:
        """Pieces that made room in memory for the next tokens of running rows."""
        return [*self.pieces[: self.pieces.index(Collect())]] if Collect() in self.pieces else []

    @property
    def decode(self) -> Decode | None:
        """The decode step; None: no row ran."""
        return next((piece for piece in self.pieces if isinstance(piece, Decode)), None)

    @property
    def beside(self) -> list[Piece]:
        """Pieces of prompts or texts, which ran while the decode step did."""
        return [piece for piece in self.pieces[len(self.before) :] if isinstance(piece, (PromptPiece, Pass))]

    def to_dict(self) -> Json:
        """All of it in dicts, lists, numbers, and strings; a piece has its `kind` next to its fields."""
        noted = {"number": self.number, "enter": [*self.enter], "leave": [*self.leave]}
        decode = None if self.decode is None else asdict(self.decode)
        return {**noted, "before": _named(self.before), "decode": decode, "beside": _named(self.beside)}


def _named(pieces: Sequence[Piece]) -> list[Json]:
    return [{"kind": type(piece).__name__.lower(), **asdict(piece)} for piece in pieces]

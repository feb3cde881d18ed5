"""A head that was trained with the model to guess the token after the next one (MTP): it drafts for the model's rows.

The head reads each token with the model's hidden state of the token before it, and keeps entries for both in a slot of
each row. Passes of the model give these states. The head reads all that came since it was last asked in one pass for
all rows, which is the pass of their first drafts, too. Further drafts read the head's own state instead of the
model's. A GPU reads several tokens as fast as one, so these entries are replaced there by entries for the model's
states. On a CPU, those of drafts that were right stay, which are nearly as good.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

import mlx.core as mx
import numpy as np

from ..costs.cost_model import MAX_STEP_TOKENS, CostModel, Stopwatch
from ..kv import Buckets, Place, RowCache
from ..ports import Model
from ..row import KnownStates, Row
from ..sampling.sampler import has_history
from .past import Past
from .ports import DraftHead
from .rows import Piece, Trail, chained, gather, length_of, sampler_of, tokens_of

log = logging.getLogger("localai_shim")

STALL_SHARE = 0.5  # of `max_stall`, for which rows wait while the head reads what it has missed
CHUNK_TOKENS = 512  # of one row in one pass
READ_CALLS = 8  # for a row's drafts, that share the time of reading what came before the first of them
TRAIL_BYTES = 2**26  # of all rows' hidden states that wait to be read
MAX_PROMPT_TOKENS = 2048  # of a prompt that the head reads, its last ones: it has one layer for what is near
UNASKED_STEPS = 512  # without drafts by the head, after which it reads no prompts until it is asked again
MIN_TRAIL_TOKENS = 2 * MAX_STEP_TOKENS  # of a row, however many rows there are
PROOF_GUESSES = 64  # after which a head that is seldom right is turned off
MIN_AGREEMENT = 0.3
MAX_PROOF_TEMPERATURE = 1.0  # of rows whose guesses are compared: above it the model itself is seldom sure


@dataclass(slots=True)
class _Seat:
    """A row's place in the head's cache, and what the head has read of it."""

    start: int
    """Number of the row's tokens before the first state that was read."""
    ran: int
    """Number of its tokens up to the last one."""
    cache: RowCache | None
    """Its entries, until it has a place."""
    place: Place = (0, 0)
    guess: tuple[int, int] | None = None
    """The last first draft: the number of tokens before it, and what it was."""
    guessed: Sequence[int] = ()
    """Drafts whose entries are behind those of its tokens, made of the head's own states."""
    is_kept: bool = False
    """Its prompt's entries are kept for other rows."""


class HeadDrafter:
    """Drafts by a head of the model itself.

    Args:
        head: drafts.
        most: drafts of a row in one step.
        model: the one that it drafts for.
        max_stall: see `EngineOptions`.
        costs: gets what its passes take.
        past: its entries for rows that left; None: none are kept.

    Attributes:
        reads_hidden: it is not turned off.
    """

    source, trust = "mtp", 0.7

    def __init__(
        self, head: DraftHead, most: int, model: Model, max_stall: float, costs: CostModel, past: Past | None = None
    ) -> None:
        self._past = past
        self._head, self._doubt = head, head.doubt
        self.most, self._costs = most, costs
        self._name, self._weight_bytes = model.name, head.weight_bytes
        self._share = head.read_bytes / max(1, model.weight_bytes)
        self._eos, self._on_device = sorted(model.eos_token_ids), model.samples_on_device
        self._keeps_guesses = not self._on_device
        self._stall = STALL_SHARE * max_stall
        self._trails: dict[Row, Trail] = {}
        self._state_bytes = 0
        self._begin_proof()

    def _begin_proof(self) -> None:
        self.reads_hidden, self._is_proven = True, False
        self._compared = self._right = self._unasked = 0
        self._trails.clear()
        self._forget()

    def renew(self) -> None:
        """Prove itself again, even if it was turned off: the model has other weights, and says other things."""
        self._begin_proof()
        self._doubt = "Probably the model's new weights are too far from those that the head was trained with"

    def _forget(self) -> None:
        self._cache = Buckets(self._weight_bytes, MAX_STEP_TOKENS)
        self._seats: dict[Row, _Seat] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of its entries, and of the states that wait."""
        return self._cache.nbytes + self._state_bytes * sum(map(len, list(self._trails.values())))

    def ran(self, rows: Sequence[Row], hidden: mx.array, first: Sequence[int], counts: Sequence[int]) -> None:
        if not self.reads_hidden:
            return
        self._unasked += 1
        self._state_bytes = hidden.shape[-1] * hidden.itemsize
        most = max(MIN_TRAIL_TOKENS, TRAIL_BYTES // (self._state_bytes * len(rows)))
        for row, at, count in zip(rows, first, counts, strict=True):
            if count and row.request.speculation:
                trail = self._trails.get(row)
                if trail is None:
                    trail = self._trails[row] = Trail()
                trail.add(length_of(row) - 1 - count, Piece(hidden, at, count), most)

    def wanted_states(self, rows: Sequence[Row]) -> int:
        used = self._unasked < UNASKED_STEPS and any(row.request.speculation for row in rows)
        return MAX_PROMPT_TOKENS if used else 0

    def joined(self, rows: Sequence[Row], states: Sequence[KnownStates]) -> None:
        for row in rows if self.reads_hidden else ():
            if row.request.speculation:
                trail = self._trails[row] = Trail()
                for at, hidden, first, length in states:
                    trail.add(at, Piece(hidden, first, length), MAX_PROMPT_TOKENS)

    def takes(self, row: Row) -> bool:
        trail = self._trails.get(row)
        return self.reads_hidden and trail is not None and trail.stop == length_of(row) - 1

    def seconds(self, rows: int, drafts: int, plain: float) -> float:
        known = self._costs.seconds("draft", (rows, 1))
        return drafts * (self._share * plain if known is None else known)

    def keep(self, rows: Sequence[Row]) -> None:
        here = set(rows)
        for row in [row for row in self._trails if row not in here]:
            del self._trails[row]
        try:
            self._leave([row for row in self._seats if row not in here])
        except BaseException:
            self._forget()
            raise

    def _leave(self, rows: Sequence[Row]) -> None:
        self._remove_guesses(rows)
        for row in rows:
            self._keep_entries(row)
        gone = [self._seats.pop(row) for row in rows]
        places = [seat.place for seat in gone if seat.cache is None]
        if places:
            self._cache.leave(places, places)

    def _keep_entries(self, row: Row) -> None:
        """Keep what the head has read of a row, for others that begin alike."""
        seat = self._seats[row]
        if self._past is not None and seat.cache is None:
            self._past.keep(row, seat.start, seat.ran, partial(self._cache.read, seat.place))

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> Sequence[Sequence[int]]:
        """Draft as `Drafter.draft` says; rows whose states are not all read yet have none."""
        self._unasked = 0
        self._compare(rows)
        if not self.reads_hidden:
            return [()] * len(rows)
        head, found = self._head, dict[Row, list[int]]()
        try:
            watch = self._costs.start()
            known = [row for row in rows if self.takes(row)]
            self._keep_right_guesses([row for row in known if row in self._seats])
            self._seat(head, known, watch)
            placed = [row for row in known if self._seats[row].cache is None]
            self._catch_up(head, placed, watch)
            read = watch.seconds
            ready = [row for row in placed if self._behind(row) <= MAX_STEP_TOKENS]
            if ready:
                count = min(self.most, max(most))
                found = dict(zip(ready, self._run(head, ready, count), strict=True))
                self._costs.note("draft", (len(ready), 1), (watch.seconds - read + read / READ_CALLS) / count)
        except Exception:
            self._forget()  # some of its caches may have run the tokens, and others not
            raise
        return [found.get(row, [])[:n] for row, n in zip(rows, most, strict=True)]

    # -- whether it is any good ---------------------------------------------------------------------------------

    def _compare(self, rows: Sequence[Row]) -> None:
        """Compare the last first drafts with what came, and turn a head off that is seldom right."""
        for row in rows:
            seat = self._seats.get(row)
            if seat is None or seat.guess is None or length_of(row) <= seat.guess[0]:
                continue
            at, guess = seat.guess
            seat.guess = None
            self._compared += 1
            self._right += tokens_of(row, at, at + 1)[0] == guess
        if self._is_proven or self._compared < PROOF_GUESSES:
            return
        self._is_proven = True
        if self._right < MIN_AGREEMENT * self._compared:
            log.warning(
                "the MTP head of '%s' was right in %d of its first %d guesses: it is turned off, and answers do not "
                "change. %s",
                self._name,
                self._right,
                self._compared,
                self._doubt,
            )
            self.reads_hidden = False
            self._trails.clear()
            self._forget()

    # -- rows that are not there yet ----------------------------------------------------------------------------

    def _behind(self, row: Row) -> int:
        """States of a row that are to be read."""
        return length_of(row) - 1 - self._seats[row].ran

    def _seat(self, head: DraftHead, rows: Sequence[Row], watch: Stopwatch) -> None:
        """Give rows a cache, and a place once few of their states are left; a row that has lost some starts again."""
        self._leave([row for row in rows if row in self._seats and self._seats[row].ran != self._trails[row].start])
        for row in rows:
            if row not in self._seats:
                self._seats[row] = self._new_seat(head, row)
        joining: list[Row] = []
        has_read = False
        for row in rows:
            seat = self._seats[row]
            if seat.cache is None:
                continue
            while self._behind(row) > MAX_STEP_TOKENS and not (has_read and watch.seconds >= self._stall):
                self._read(head, row, seat.cache)
                has_read = True
            if self._behind(row) <= MAX_STEP_TOKENS:
                joining.append(row)
        places = self._cache.join([cache for row in joining if (cache := self._seats[row].cache)]) if joining else []
        for row, place in zip(joining, places, strict=True):
            self._seats[row].place, self._seats[row].cache = place, None

    def _new_seat(self, head: DraftHead, row: Row) -> _Seat:
        """A seat with what the head has read of a row with the same first tokens, if there was one."""
        trail = self._trails[row]
        found = None if self._past is None else self._past.find(row, trail.start)
        if found is None:
            return _Seat(trail.start, trail.start, head.new_cache())
        trail.lead(trail.start - found.ran)
        return _Seat(found.start, found.ran, found.cache)

    def _read(self, head: DraftHead, row: Row, cache: RowCache) -> None:
        """Read some of the states of a row that has its own cache."""
        count = min(CHUNK_TOKENS, self._behind(row) - 1)
        tokens, pieces = self._next(row, count)
        head.forward(mx.array([tokens], mx.int32), gather([pieces], count), cache, [count - 1])
        mx.eval([layer.state for layer in cache])

    def _next(self, row: Row, count: int) -> tuple[Sequence[int], list[Piece]]:
        """A row's next tokens, and the states of the tokens before them, which are taken to be read."""
        seat = self._seats[row]
        at, seat.ran = seat.ran, seat.ran + count
        return tokens_of(row, at + 1, at + 1 + count), self._trails[row].take(count)

    def _catch_up(self, head: DraftHead, rows: Sequence[Row], watch: Stopwatch) -> None:
        """Read what rows have missed while the head was not asked, all at once, as far as there is time."""
        while behind := [row for row in rows if self._behind(row) > MAX_STEP_TOKENS]:
            blocks = {row: self._next(row, min(CHUNK_TOKENS, self._behind(row) - 1)) for row in behind}
            logits, _ = self._advance(head, behind, _Read(list(blocks.values())))
            mx.eval(logits)
            if watch.seconds >= self._stall:
                return

    # -- drafts -------------------------------------------------------------------------------------------------

    def _keep_right_guesses(self, rows: Sequence[Row]) -> None:
        """Take the entries of drafts that were right for those of the tokens, and remove the others."""
        for row in rows:
            seat, trail = self._seats[row], self._trails[row]
            if seat.guessed and seat.ran == trail.start:
                came = tokens_of(row, seat.ran + 1, length_of(row) - 1)  # all but the last one, which has to be read
                pairs = zip(came, seat.guessed, strict=False)
                right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
                self._next(row, right)
                seat.guessed = seat.guessed[right:]
        self._remove_guesses(rows)

    def _remove_guesses(self, rows: Sequence[Row]) -> None:
        """Remove the entries behind those of rows' tokens."""
        guessed = {row: len(its) for row in rows if (its := self._seats[row].guessed)}
        self._cache.rollback({self._seats[row].place: count for row, count in guessed.items()})
        for row in guessed:
            self._seats[row].guessed = ()

    def _run(self, head: DraftHead, rows: Sequence[Row], count: int) -> list[list[int]]:
        """This number of drafts of each row: a pass for the first one of all, and one for each that follows."""
        sampler = sampler_of(rows, self._eos, on_device=self._on_device)
        logits, hidden = self._advance(head, rows, _Read([self._next(row, self._behind(row)) for row in rows]))

        def following(tokens: mx.array) -> mx.array:
            nonlocal hidden
            logits, hidden = self._advance(head, rows, _Guessed(tokens, hidden))
            return logits

        drafts = chained(sampler, logits, following, count)
        for row, its in zip(rows, drafts, strict=True):
            self._seats[row].guessed = its[:-1]
        self._remove_guesses([row for row in rows if not (self._keeps_guesses and self._seats[row].is_kept)])
        if self._cache.wants_compaction:
            moves = self._cache.compact()
            for seat in self._seats.values():
                seat.place = moves.get(seat.place, seat.place)
        for row in rows:
            if not self._seats[row].is_kept:
                self._seats[row].is_kept = True
                self._keep_entries(row)
        if not self._is_proven:
            for row, its in zip(rows, drafts, strict=True):
                if _proves(row):
                    self._seats[row].guess = length_of(row), its[0]
        return drafts

    def _advance(self, head: DraftHead, rows: Sequence[Row], inputs: _Read | _Guessed) -> tuple[mx.array, mx.array]:
        """Run some rows' next tokens; others in their buckets run to no purpose.

        Returns:
            After each row's last one the logits, `[rows, vocabulary]`, and the head's states, `[rows, width]`, lazy.
        """
        at = {self._seats[row].place: i for i, row in enumerate(rows)}
        used = {name for name, _ in at}
        places = sorted(seat.place for seat in self._seats.values() if seat.cache is None and seat.place[0] in used)
        counts = {place: inputs.count(at[place]) if place in at else 0 for place in places}
        logits: list[mx.array] = []
        hidden: list[mx.array] = []
        where, start = [0] * len(rows), 0
        names = dict.fromkeys(name for name, _ in places)
        for name, step in zip(names, self._cache.advance_several(counts), strict=True):
            which = [at.get((name, slot)) for slot in range(step.width)]
            ends = [max(0, counts.get((name, slot), 0) - 1) for slot in range(step.width)]
            made = head.forward(*inputs.of(which, step.tokens), step.layers, ends, step.starts)
            assert made.hidden is not None
            logits.append(made.logits)
            hidden.append(made.hidden)
            for slot, i in enumerate(which):
                if i is not None:
                    where[i] = start + slot
            start += step.width
        self._cache.settle(counts)
        return _rows(logits, where), _rows(hidden, where)


def _rows(parts: Sequence[mx.array], where: Sequence[int]) -> mx.array:
    """Rows of the results of buckets."""
    whole = parts[0] if len(parts) == 1 else mx.concatenate(list(parts))
    return whole if list(where) == list(range(whole.shape[0])) else whole[mx.array(list(where))]


def _proves(row: Row) -> bool:
    """True if a row's guesses tell whether the head is right: nothing but the model decides its tokens."""
    settled = has_history(row) or row.adapter is not None
    return not settled and row.sampling.temperature <= MAX_PROOF_TEMPERATURE


class _Read:
    """Tokens of rows, each with the model's state of the token before it."""

    def __init__(self, blocks: Sequence[tuple[Sequence[int], Sequence[Piece]]]) -> None:
        self._blocks = blocks

    def count(self, i: int) -> int:
        return len(self._blocks[i][0])

    def of(self, which: Sequence[int | None], k: int) -> tuple[mx.array, mx.array]:
        """`[slots, k]` and `[slots, k, width]`: the inputs of these rows; None: a slot of another one."""
        tokens = np.zeros((len(which), k), dtype=np.int32)
        for its, i in zip(tokens, which, strict=True):
            if i is not None:
                its[: self.count(i)] = self._blocks[i][0]
        return mx.array(tokens), gather([() if i is None else self._blocks[i][1] for i in which], k)


class _Guessed:
    """A guessed token of each row, with the head's own state."""

    def __init__(self, tokens: mx.array, hidden: mx.array) -> None:
        self._tokens, self._hidden = tokens, hidden

    def count(self, i: int) -> int:
        return 1

    def of(self, which: Sequence[int | None], k: int) -> tuple[mx.array, mx.array]:
        """`[slots, 1]` and `[slots, 1, width]`: the inputs of these rows; None: a slot of another one."""
        places = mx.array([i or 0 for i in which])
        return self._tokens[places][:, None], self._hidden[places][:, None]

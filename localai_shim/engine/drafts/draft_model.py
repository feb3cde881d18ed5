"""A small model that drafts for a large one: each row has a slot in its caches, and all draft together.

A row's prompt is run into a cache for it in chunks, while rows run, as prefill is; the row has drafts once that
cache has all its tokens but the last ones. Wrong drafts are taken out by length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from ..cache_contents import KeyValues
from ..costs.cost_model import MAX_STEP_TOKENS, CostModel, Stopwatch
from ..kv import Buckets, BucketStep, Place, RowCache, fits_slots, read_row
from ..kv.row import leaves
from ..ports import Model, StepInput
from ..probes import takes_several
from ..row import KnownStates, Row
from .rows import chained, length_of, sampler_of, tokens_of

STALL_SHARE = 0.5  # of the time that a prompt may keep rows from their next token; the other model's prefill has all
MIN_CHUNK_TOKENS, MAX_CHUNK_TOKENS = 16, 512  # of a prompt in one pass, however slow or fast the machine is
SHORT_TOKENS = 64  # rows of so many catch up in their slots, together
LAST_TOKENS = 2  # that a row may run with its first draft: after right drafts it is the last of them and one more
PROMPT_TOKENS_PER_ANSWER = 64  # a prompt that is longer, per token that the row may still emit, is not worth it
UNKNOWN_COST = 0.5  # of its share of the weights, before it is measured: some are embeddings, of which little is read


@dataclass(slots=True)
class _Seat:
    """A row's place, and what is there."""

    place: Place
    ran: int
    """Number of the row's tokens in it, prompt and output; behind them are its drafts without the last one."""
    drafts: list[int]


@dataclass(slots=True, eq=False)
class _Fill:
    """A cache that a prompt is run into, and the rows that are to join with it."""

    rows: list[Row]
    cache: RowCache
    done: int = 0

    @property
    def left(self) -> int:
        """Tokens to run: of a row that is alone its output, too, all but the last one; else of the prompt only."""
        row = self.rows[0]
        output = row.generated if len(self.rows) == 1 else 0
        return len(row.prompt_tokens) + output - 1 - self.done


class DraftModel:
    """Drafts by a model with the same vocabulary.

    Rows are drafted for with their own sampling parameters and noise, so that two models that agree sample the same.
    Only what `has_history` tells of, such as penalties and grammars, is left out.

    Args:
        model: drafts.
        most: drafts of a row in one step.
        verifier: the model that it drafts for.
        max_stall: see `EngineOptions`.
        costs: gets what its passes take.

    Raises:
        ValueError: this model cannot draft; says why.
    """

    source, trust, reads_hidden = "model", 0.7, False

    def __init__(self, model: Model, most: int, verifier: Model, max_stall: float, costs: CostModel) -> None:
        check(model)
        self._model = model
        self.most, self._costs = most, costs
        self._share = model.weight_bytes / max(1, verifier.weight_bytes)
        self._eos = sorted(verifier.eos_token_ids)
        self._last_id = takes_several(model) - 1
        self._stall = STALL_SHARE * max_stall
        self._pace = costs.pace("draft model", self._stall)
        self._forget()

    def _forget(self) -> None:
        self._cache = Buckets(self._model.weight_bytes, MAX_STEP_TOKENS)
        self._seats: dict[Row, _Seat] = {}
        self._filling: dict[Row, _Fill] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of its rows' caches."""
        return self._cache.nbytes

    def takes(self, row: Row) -> bool:
        tokens, longest = length_of(row), self._model.context_length
        if row.request.prompt.media or (longest is not None and tokens + self.most > longest):
            return False
        return row in self._seats or tokens <= PROMPT_TOKENS_PER_ANSWER * (row.max_tokens - row.generated)

    def ran(self, rows: Sequence[Row], hidden: mx.array, first: Sequence[int], counts: Sequence[int]) -> None:
        """Read no hidden states."""

    def wanted_states(self, rows: Sequence[Row]) -> int:
        return 0

    def joined(self, rows: Sequence[Row], states: Sequence[KnownStates]) -> None:
        """Read no hidden states."""

    def renew(self) -> None:
        """Draft as before: its own weights stay."""

    def seconds(self, rows: int, drafts: int, plain: float) -> float:
        known = self._costs.seconds("draft", (rows, 1))
        return drafts * (UNKNOWN_COST * self._share * plain if known is None else known)

    def keep(self, rows: Sequence[Row]) -> None:
        here = set(rows)
        gone = [row for row in self._seats if row not in here]
        try:
            if gone:
                self._cache.leave([self._seats.pop(row).place for row in gone])
            for row in [row for row in self._filling if row not in here]:
                self._filling.pop(row).rows.remove(row)
        except BaseException:
            self._forget()
            raise

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> Sequence[Sequence[int]]:
        """Draft as `Drafter.draft` says; rows that are not caught up are brought nearer to that, and have none."""
        try:
            watch = self._costs.start()
            self._settle()
            self._fill([row for row in rows if row not in self._seats], watch)
            self._catch_up([row for row in rows if row in self._seats], watch)
            ready = [row for row in rows if row in self._seats and self._behind(row) <= LAST_TOKENS]
            found = dict(zip(ready, self._run(ready, min(self.most, max(most))), strict=True)) if ready else {}
        except Exception:
            self._forget()  # some of its caches may have run the tokens, and others not
            raise
        return [found.get(row, [])[:n] for row, n in zip(rows, most, strict=True)]

    # -- rows that are not there yet ----------------------------------------------------------------------------

    def _behind(self, row: Row) -> int:
        """Tokens that are still to run, always with the last one."""
        return length_of(row) - self._seats[row].ran

    def _settle(self) -> None:
        """Take out the drafts that were wrong, of all rows."""
        wrong: dict[Place, int] = {}
        for row, seat in self._seats.items():
            if not seat.drafts:
                continue
            came = row.output_tokens[seat.ran - len(row.prompt_tokens) :][: len(seat.drafts)]
            right = next((i for i, (a, b) in enumerate(zip(seat.drafts, came, strict=False)) if a != b), len(came))
            stay = min(right, len(seat.drafts) - 1, self._behind(row) - 1)  # the last token is run once more
            if stay < len(seat.drafts) - 1:
                wrong[seat.place] = len(seat.drafts) - 1 - stay
            seat.ran, seat.drafts = seat.ran + stay, []
        self._cache.rollback(wrong)
        if self._cache.wants_compaction:
            moves = self._cache.compact()
            for seat in self._seats.values():
                seat.place = moves.get(seat.place, seat.place)

    def _fill(self, rows: Sequence[Row], watch: Stopwatch) -> None:
        """Run chunks of rows' prompts, the nearest to its end first, and add those that are done."""
        for row in rows:
            if row not in self._filling:
                self._begin(row)
        fills = list({id(fill): fill for row in rows if (fill := self._filling[row])}.values())
        done = [fill for fill in fills if not fill.done and fill.left < SHORT_TOKENS]
        ran = False
        for fill in sorted((fill for fill in fills if fill not in done), key=lambda fill: fill.left):
            while fill.left > 0 and not (ran and not self._pace.is_enough(self._stall - watch.seconds)):
                self._run_chunk(fill, self._stall - watch.seconds)
                ran = True
            if fill.left > 0:
                break
            done.append(fill)
        joining = [(row, fill) for fill in done for row in fill.rows]
        places = self._cache.join([fill.cache for _, fill in joining]) if joining else []
        for (row, fill), place in zip(joining, places, strict=True):
            self._seats[row] = _Seat(place, fill.done, [])
            del self._filling[row]

    def _begin(self, row: Row) -> None:
        """Let a row wait for the cache of others with its prompt, or give it one."""
        for fill in self._filling.values():
            if fill.rows[0].request.prompt is row.request.prompt and fill.done < len(row.prompt_tokens):
                break
        else:
            fill = _Fill([], self._model.new_cache())
        fill.rows.append(row)
        self._filling[row] = fill

    def _run_chunk(self, fill: _Fill, left: float) -> None:
        watch = self._costs.start()
        size = min(fill.left, MAX_CHUNK_TOKENS, max(MIN_CHUNK_TOKENS, self._pace.chunk(left)))
        tokens = self._inputs([tokens_of(fill.rows[0], fill.done, fill.done + size)])
        self._model.prefill(StepInput(tokens, fill.cache))
        fill.done += size
        self._pace.note(size, watch.seconds, fill.done)

    def _catch_up(self, rows: Sequence[Row], watch: Stopwatch) -> None:
        """Run what rows have emitted since they were drafted for, or their short prompts, all at once."""
        while behind := [row for row in rows if self._behind(row) > LAST_TOKENS]:
            before = watch.seconds
            blocks = {row: self._next(row, min(MAX_STEP_TOKENS, self._behind(row) - 1)) for row in behind}
            mx.eval([layer.state for step in self._advance(blocks)[0] for layer in step.layers])
            if 2 * watch.seconds - before > self._stall:
                return

    def _next(self, row: Row, count: int) -> Sequence[int]:
        """A row's next tokens, which are taken to have run."""
        seat = self._seats[row]
        seat.ran += count
        return tokens_of(row, seat.ran - count, seat.ran)

    # -- drafts -------------------------------------------------------------------------------------------------

    def _run(self, rows: Sequence[Row], count: int) -> list[list[int]]:
        """So many drafts of each row: a pass for the first one of all, and one for each that follows."""
        watch = self._costs.start()
        sampler = sampler_of(rows, self._eos, on_device=self._model.samples_on_device)
        blocks = {row: self._next(row, self._behind(row)) for row in rows}
        logits, one = self._advance(blocks)[1], dict.fromkeys(rows, (0,))
        drafts = chained(sampler, logits, lambda tokens: self._advance(one, tokens)[1], count)
        for row, its in zip(rows, drafts, strict=True):
            self._seats[row].drafts = its
        self._costs.note("draft", (len(rows), 1), watch.seconds / count)
        return drafts

    def _advance(
        self, blocks: Mapping[Row, Sequence[int]], known: mx.array | None = None
    ) -> tuple[list[BucketStep], mx.array]:
        """Run some rows' next tokens: the passes, and the logits after each row's last one, `[rows, vocabulary]`, lazy.

        Args:
            blocks: by row; others in their buckets run to no purpose.
            known: a token that replaces one of each row, `[rows]`, if the host does not know it yet.
        """
        at = {self._seats[row].place: i for i, row in enumerate(blocks)}
        used, its = {name for name, _ in at}, list(blocks.values())
        places = sorted(seat.place for seat in self._seats.values() if seat.place[0] in used)
        counts = {place: len(its[at[place]]) if place in at else 0 for place in places}
        steps = self._cache.advance_several(counts)
        logits, ends, start = [], [0] * len(its), 0
        for name, step in zip(dict.fromkeys(name for name, _ in places), steps, strict=True):
            which = [at.get((name, slot)) for slot in range(step.width)]
            if known is None:
                tokens = self._inputs([() if i is None else its[i] for i in which])
            else:
                tokens = known[mx.array([i or 0 for i in which])][:, None]
            lengths = [counts.get((name, slot), 0) for slot in range(step.width)]
            inputs = StepInput(tokens, step.layers, lengths, starts=step.starts)
            logits.append(self._model.forward(inputs).logits.flatten(0, 1))
            for slot, i in enumerate(which):
                if i is not None:
                    ends[i] = start + slot * step.tokens + lengths[slot] - 1
            start += step.width * step.tokens
        self._cache.settle(counts)
        return steps, (logits[0] if len(logits) == 1 else mx.concatenate(logits))[mx.array(ends)]

    def _inputs(self, rows: Sequence[Sequence[int]]) -> mx.array:
        """Rows' tokens with padding behind, `[rows, tokens]` int32; tokens unknown to this model are replaced."""
        tokens = np.zeros((len(rows), max(map(len, rows))), dtype=np.int32)
        for row, its in zip(tokens, rows, strict=True):
            row[: len(its)] = its
        return mx.array(np.minimum(tokens, self._last_id))


def check(model: Model) -> None:
    """Refuse a model that cannot draft.

    Raises:
        ValueError: says why.
    """
    row = model.new_cache()
    if not fits_slots(row):
        reason = "its caches are of a kind that cannot be taken back"
    elif not all(isinstance(layer, KeyValues) for layer in leaves(read_row(row))):
        reason = "it has recurrent layers, whose states cannot be taken back when a draft was wrong"
    elif not takes_several(model):
        reason = "its code gives wrong results for several tokens of several rows in one pass"
    else:
        return
    raise ValueError(f"draft_model: '{model.name}' cannot draft: {reason}. Choose a model with plain attention")

"""The decode batch: every running row gets one token per step.

While step t+1 runs, the tokens of step t are emitted and the graph of step t+2 is built, unless rows are about to
join. Where the sampler can queue ahead (greedy rows everywhere, all rows on a GPU), that graph begins with tokens that
are not read yet. Otherwise the host samples token t as soon as its logits are there, and writes it into the graph of
step t+1 before it does anything else. Rows with a grammar constraint are sampled so on all back ends, and on a GPU
nothing is built ahead for them; their logits masks are made while the forward pass runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import mlx.core as mx
import numpy as np

from ...types import Failure, RowError, log
from ..costs.cost_model import MAX_STEP_TOKENS
from ..kv import Buckets, Place, RowCache
from ..kv.shared import Prefix
from ..pieces import Decode, Draft
from ..ports import Model, PassOutput
from ..row import Emit, Row, emit_next, row_error
from ..sampling.sampler import Sampler
from ..setup import Setup
from .forward import StepGraph, forward
from .in_flight import AwaitingHost, Idle, InFlight, Queued, Verifying, begin_step


class Batch:
    """Rows in the order of their slots, their cache, and the step that is in flight.

    An error of a step fails its rows and no others: no method but `join` raises.
    """

    def __init__(self, model: Model, emit: Emit, setup: Setup, deliver: Callable[[], None] = lambda: None) -> None:
        """`emit` takes each event; it is called between two steps of work and must not block. `setup` has what gets
        the rows' caches, drafts for them, and chooses what they share. `deliver` is called when events had better not
        wait until `step` returns.
        """
        self._prefixes, self._sharing = setup.prefixes, setup.sharing
        self._deliver, self._speculation = deliver, setup.speculation
        # Steps whose tokens the host will write: of one, where it samples; of several, where they are not computed as
        # they are built.
        self._builds_one = setup.runs_built and not model.samples_on_device
        self._builds_several = setup.runs_built and model.samples_on_device and setup.speculation is not None
        self.rows: list[Row] = []
        self.in_flight: InFlight = Idle()
        self._model, self._emit = model, emit
        self._cache = self._new_cache()
        self._places: list[Place] = []
        self._sampler: Sampler | None = None  # None: after steps of several tokens, which make their own
        self._to_insert: list[Row] = []  # rows whose prompts go into the prefix cache after their first tokens

    def __len__(self) -> int:
        return len(self.rows)

    def join(
        self, joining: Sequence[tuple[Row, RowCache]], to_insert: Sequence[Row] = (), logits: Sequence[mx.array] = ()
    ) -> None:
        """Add rows: all of a row's tokens but the last one are in its cache, that one runs with the batch.

        Args:
            joining: rows with one prompt may bring the same cache.
            to_insert: those whose prompts go into the prefix cache, once their first tokens have been delivered.
            logits: `[1, vocabulary]` of each row's next token, where the batch is empty: last tokens are in their
                caches, too, and the rows' first step is in flight.

        Raises:
            Exception: some of these rows cannot join. None has joined, and running rows continue.
        """
        rows, caches = [row for row, _ in joining], [cache for _, cache in joining]
        with self._failing_rows():
            self._settle()
        shared: list[Prefix | None] = [None] * len(joining)
        with self._failing_rows():
            shared = self._share(joining)
        chosen = self._cache.choose(caches, *([[0 if p is None else p.length for p in shared]] if any(shared) else []))
        # From here on some layers may hold the rows and others not: if that fails, no row can go on.
        self.rows = self.rows + rows
        with self._failing_rows():
            self._places = self._places + self._cache.join(caches, chosen, *([shared] if any(shared) else []))
            self.in_flight = AwaitingHost(mx.concatenate(list(logits))) if logits else Idle(joined=True)
            self._in_order_of_places()
            self._to_insert += to_insert

    def _share(self, joining: Sequence[tuple[Row, RowCache]]) -> list[Prefix | None]:
        """First tokens that joining rows share; rows that run drop their copies of these. Nothing is shared if choosing
        fails: no cache has changed then.
        """
        if self._sharing is None:
            return [None] * len(joining)
        try:
            chosen = self._sharing.choose(joining, self.rows)
        except Exception:
            log.exception("choosing what requests share failed; they hold copies")
            return [None] * len(joining)
        for row, place in zip(self.rows, self._places, strict=True):
            if row in chosen:
                self._cache.share(place, chosen[row])
        for row, prefix in chosen.items():
            row.prefix = prefix
        return [row.prefix for row, _ in joining]

    def collect(self) -> None:
        """Finish what is in flight, and launch what was built behind it."""
        with self._failing_rows():
            if not isinstance(self.in_flight, Idle):
                drafted = isinstance(self.in_flight, Verifying)
                self._finish()
                if isinstance(self.in_flight, Idle) and not drafted:
                    self._deliver()  # launching a step that was not built before may take as long as it does
                self.insert_prompts()
            if isinstance(self.in_flight, Idle) and self._cache.wants_compaction:
                self._compact()
                self.in_flight.built = None

    def run(self, piece: Decode) -> None:
        """Launch a step of every running row if nothing is in flight, and build the step behind it."""
        with self._failing_rows():
            ahead = piece.ahead
            if isinstance(self.in_flight, Idle):
                ahead = ahead and not self.in_flight.joined
                self._launch(self.in_flight, piece.drafts)
            self._prepare()
            if ahead:
                self._build()
            elif isinstance(self.in_flight, Verifying):
                self._finish()  # those that join, or have, wait for it

    def drop(self, gone: Collection[Row], ended: Collection[Row] = ()) -> None:
        """Drop rows without an event; those that do not run are ignored.

        Args:
            gone: the rows.
            ended: those of them that ended normally; others may hold NaN.
        """
        with self._failing_rows(gone):
            if any(row in gone for row in self._to_insert):
                self.insert_prompts()
            self._leave(gone, ended)

    def insert_prompts(self) -> None:
        """Insert the prompts of rows that have joined into the prefix cache, if that is still to be done."""
        to_insert, self._to_insert = self._to_insert, []
        self._insert([row for row in to_insert if row in self.rows])

    def settle(self) -> None:
        """Finish what is in flight: afterwards nothing that was not run holds the model's arrays."""
        with self._failing_rows():
            self._settle()

    def wait(self) -> None:
        """Wait for the step that is in flight, if one is."""
        with self._failing_rows():
            self.in_flight.wait()

    def take(self, row: Row) -> bool:
        """Remove a row that continues later: its output is known then. False if it has ended meanwhile."""
        with self._failing_rows():
            self._settle()
        self.insert_prompts()
        if row not in self.rows:
            return False
        self.drop([row])
        row.replay = []
        return True

    @property
    def nbytes(self) -> int:
        """Bytes of the rows' caches, those of what drafts for them and what they share too, free places included."""
        shared = 0 if self._sharing is None else self._sharing.bytes
        return shared + self._cache.nbytes + (0 if self._speculation is None else self._speculation.nbytes)

    def fail(self, error: Exception) -> None:
        """End every row with an error and start afresh."""
        rows, self.rows = self.rows, []
        for row in rows:
            row.prefix = None
            self._emit(row, Failure(error))
        self._reset()

    # -----------------------------------------------------------------------------------------------------------

    @contextmanager
    def _failing_rows(self, but: Collection[Row] = ()) -> Iterator[None]:
        """Fail all rows, or all but some that leave, with what is raised here."""
        try:
            yield
        except BaseException as error:
            failure = row_error("the model failed", error)  # before a log keeps it
            log.exception("a model step failed; its requests fail, the engine continues")
            self.rows = [row for row in self.rows if row not in but]
            self.fail(failure)

    def _launch(self, idle: Idle, drafts: Sequence[Draft] | None) -> None:
        """Launch the next step: rows' last tokens, and the drafts that there are behind them."""
        if drafts is not None:
            self._launch_several(idle, drafts)
            return
        if self._sampler is None:
            self._renew_sampler()
        assert self._sampler is not None
        tokens = mx.array([row.last_token for row in self.rows], dtype=mx.int32)
        self.in_flight = flight = (
            self._queued(tokens) if self._sampler.queues_ahead else AwaitingHost(*self._forward(tokens))
        )
        flight.launch()

    def _launch_several(self, idle: Idle, drafts: Sequence[Draft]) -> None:
        """Launch a step of several tokens; earlier tokens are delivered meanwhile if that costs no time."""
        if not idle.joined:
            self.insert_prompts()
        self._retire_sampler()
        built, idle.built = idle.built, None
        hidden = self._wants_hidden
        self.in_flight = step = begin_step(
            self._cache, self._places, self.rows, drafts, built, after=idle.sizes, hidden=hidden
        )
        built = None
        # Launching it lets go of the GIL for long, and takes nearly as long as the step does on CPUs. Where a GPU's is
        # still to be built, the GPU would wait for both.
        early = step.built is not None or not self._model.samples_on_device
        if early and not self._to_insert:
            self._deliver()  # this may drop rows, which inserts nothing that has not run
        if self.in_flight is step:  # else all rows have left
            step.launch(self._model)

    @property
    def _wants_hidden(self) -> bool:
        return self._speculation is not None and self._speculation.reads_hidden

    def _forward(self, tokens: mx.array) -> PassOutput[mx.array]:
        """See `forward`."""
        return forward(self._model, self._cache, self._places, self.rows, tokens, hidden=self._wants_hidden)

    def _queued(self, tokens: mx.array) -> Queued:
        """A step of these tokens whose sample is made on the device."""
        assert self._sampler is not None
        logits, hidden = self._forward(tokens)
        return Queued(self._sampler.sample(logits), hidden)

    def _build(self) -> None:
        """While a step runs, build the next one's graph, in Python."""
        if self._all_end_now() or self._cache.wants_compaction:
            return
        flight, sampler = self.in_flight, self._sampler
        if isinstance(flight, Verifying):
            if self._builds_several and flight.repeats:
                flight.build(self._cache, self._model)
        elif sampler is None:
            return
        elif isinstance(flight, Queued):
            flight.next = self._queued(flight.sample.inputs)
        elif isinstance(flight, AwaitingHost) and self._builds_one and not sampler.queues_ahead:
            tokens = mx.array(np.zeros(len(self.rows), dtype=np.int32))
            # MLX's arrays and views of them share their memory: what is written before the graph runs is its input.
            view = np.array(tokens, copy=False)
            flight.built = StepGraph(view, list(range(len(self.rows))), *self._forward(tokens))

    def _finish(self) -> None:
        """Launch what was built behind the step in flight, and emit its tokens."""
        self._prepare()
        if isinstance(self.in_flight, Verifying):
            self._verify(self.in_flight)
        elif not isinstance(self.in_flight, Idle):
            assert self._sampler is not None
            hidden = self.in_flight.hidden
            sample, following = self.in_flight.finish(self._sampler)
            self.in_flight = following  # lets go of the logits before the next ones take as much memory
            following.launch()
            tokens, details = sample.read()
            eos, outcomes = self._model.eos_token_ids, dict[Row, RowError | bool]()
            for i, (row, token_id) in enumerate(zip(self.rows, tokens, strict=True)):
                if outcome := emit_next(row, token_id, details.get(i), eos, self._emit):
                    outcomes[row] = outcome
            if hidden is not None and self._speculation is not None:
                self._speculation.ran(self.rows, hidden, range(len(self.rows)), [1] * len(self.rows))
            ended = [row for row, outcome in outcomes.items() if outcome is True]
            self._reap(ended, [row for row in outcomes if row not in ended])

    def _verify(self, flight: Verifying) -> None:
        """Emit what holds of a step of several tokens."""
        self._retire_sampler()  # one that was made meanwhile, when rows left, has sampled nothing
        self.in_flight, flight.next = Idle(sizes=flight.sizes, built=flight.next), None
        done = flight.finish(self.rows, self._cache, self._model, self._emit)
        if self._speculation is not None:
            self._speculation.verified(flight.rows, flight.drafts, done.accepted)
            if flight.hidden is not None:
                self._speculation.ran(flight.rows, flight.hidden, flight.first, done.emitted)
        self._reap(done.ended, done.failed)

    def _prepare(self) -> None:
        """Have the masks of the logits in flight, and end the rows whose constraint fails."""
        while isinstance(self.in_flight, AwaitingHost):
            assert self._sampler is not None
            failures = self._sampler.prepare(self.in_flight.logits.shape[-1])
            if not failures:
                return
            for i, error in failures.items():
                self._emit(self.rows[i], Failure(error))
            self.drop([self.rows[i] for i in failures])  # with a sampler that has not asked yet

    def _settle(self) -> None:
        """Finish what is in flight: afterwards rows' last tokens are known, and nothing is built."""
        while not isinstance(self.in_flight, Idle):
            self._finish()
        self.in_flight = Idle(self.in_flight.joined)

    def _all_end_now(self) -> bool:
        return all(row.generated + 1 >= row.max_tokens for row in self.rows)

    def _reap(self, ended: Sequence[Row], failed: Sequence[Row]) -> None:
        """Drop the rows that ended or failed with their last tokens; ended ones are put into the prefix cache."""
        if ended and self._prefixes is not None:
            self._deliver()  # keeping waits for the step in flight; this may drop rows
            self._insert([row for row in ended if row in self.rows])
        if ended or failed:
            self._to_insert = [row for row in self._to_insert if row.generated or row not in failed]  # else it is NaN
            self.drop({*ended, *failed}, ended)
        elif self._sampler is not None and any(self.rows[i].constraint is None for i in self._sampler.constrained):
            self._renew_sampler()

    def _insert(self, rows: Sequence[Row]) -> None:
        """Insert what has run through rows' caches into the prefix cache, last tokens too if a step is in flight."""
        if not rows or self._prefixes is None:
            return
        places = dict(zip(self.rows, self._places, strict=True))
        for row in rows:
            keys = [*row.request.prompt.keys, *row.output_tokens]
            ran = keys[: len(keys) - 1 - len(row.replay)] if isinstance(self.in_flight, Idle) else keys
            self._prefixes.insert(row.request.prompt.salt, ran, partial(self._cache.read, places[row]))

    def _leave(self, gone: Collection[Row], ended: Collection[Row]) -> None:
        """Remove rows; see `drop`."""
        for row in gone:
            row.prefix = None
        kept = [i for i, row in enumerate(self.rows) if row not in gone]
        if not kept:
            self.rows = []
            self._reset()
        elif len(kept) < len(self.rows):
            places = {row: place for row, place in zip(self.rows, self._places, strict=True) if row in gone}
            self._cache.leave([*places.values()], [place for row, place in places.items() if row not in ended])
            self._arrange(kept)

    def _compact(self) -> None:
        """Close the slots of rows that left, with nothing in flight: what is in flight holds the buffers."""
        moves = self._cache.compact()
        self._places = [moves.get(place, place) for place in self._places]
        self._in_order_of_places()

    def _in_order_of_places(self) -> None:
        self._arrange(sorted(range(len(self._places)), key=self._places.__getitem__))

    def _arrange(self, indices: list[int]) -> None:
        """Have these rows, in this order, with what is in flight for them."""
        if indices != list(range(len(self.rows))):
            self.rows = [self.rows[i] for i in indices]
            self._places = [self._places[i] for i in indices]
            self.in_flight = self.in_flight.take(indices)
        self._renew_sampler()

    def _renew_sampler(self) -> None:
        self._retire_sampler()
        if self._speculation is not None:
            self._speculation.keep(self.rows)
        self._sampler = Sampler(self.rows, sorted(self._model.eos_token_ids), on_device=self._model.samples_on_device)

    def _retire_sampler(self) -> None:
        """Drop the sampler, in this way only: its rows may continue in another one, from where it got to."""
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.retire()

    def _new_cache(self) -> Buckets:
        most_tokens = 1 if self._speculation is None else MAX_STEP_TOKENS
        return Buckets(self._model.weight_bytes, most_tokens, builds_ahead=self._builds_several)

    def _reset(self) -> None:
        self._cache, self._places, self._to_insert, self.in_flight = self._new_cache(), [], [], Idle()
        self._retire_sampler()
        if self._speculation is not None:
            self._speculation.keep(self.rows)

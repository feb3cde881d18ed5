"""The decode batch: every running row gets one token per step.

While step t+1 runs, the tokens of step t are emitted and the graph of step t+2 is built, unless rows are about to
join. Where the sampler can queue ahead (greedy rows everywhere, all rows on a GPU), that graph begins with tokens that
nobody has read yet. Otherwise the host samples token t as soon as its logits are there, and writes it into the graph of
step t+1 before it does anything else. Rows with a grammar constraint are sampled so on all back ends, and on a GPU
nothing is built ahead for them; their logits masks are made while the forward pass runs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import mlx.core as mx

from ...types import Failure
from ..drafts.controller import Speculation
from ..kv import Buckets, Place, RowCache
from ..ports import Model
from ..prefix.cache import PrefixCache
from ..row import MAX_STEP_TOKENS, Emit, Row, emit_all, row_error
from ..sampling.sampler import Sample, Sampler
from . import verify
from .forward import Built, forward
from .verify import Several

log = logging.getLogger("localai_shim")
_async_eval: Callable[..., None] = mx.async_eval


class Batch:
    """Rows in the order of their slots, their cache, and the step that is in flight.

    What a step raises fails its rows and nobody else: no method but `join` raises.
    """

    def __init__(
        self,
        model: Model,
        emit: Emit,
        prefixes: PrefixCache | None = None,
        deliver: Callable[[], None] = lambda: None,
        speculation: Speculation | None = None,
        runs_built: bool = True,
    ) -> None:
        """`emit` takes each event; it is called between two steps of work and must not block. `prefixes` gets what
        rows hold. `deliver` is called when events had better not wait until `step` returns. `speculation` has drafts.
        `runs_built`: the model computes nothing of a step whose tokens are not there yet.
        """
        self._deliver, self._speculation = deliver, speculation
        # Steps whose tokens the host will write: of one, where it samples; of several, where they are not computed as
        # they are built.
        self._builds_one = runs_built and not model.samples_on_device
        self._builds_several = runs_built and model.samples_on_device and speculation is not None
        self.rows: list[Row] = []
        self._states: list[object | None] | None = None  # of the rows; None: all are text
        self._model = model
        self._emit = emit
        self._prefixes = prefixes
        self._cache = self._new_cache()
        self._places: list[Place] = []
        self._sampler: Sampler | None = None
        # One of three is there for the next step: its inputs, the sample that gives them, or the logits to sample from.
        self._inputs: mx.array | None = None  # tokens known to the host, still to be run: `[rows]`
        self._sample: Sample | None = None  # tokens queued on the device, not read yet
        self._next: Sample | None = None  # the sample after that one, not queued yet
        self._logits: mx.array | None = None  # logits, nothing sampled yet
        self._built: Built | None = None  # the step after these logits
        self._several: Several | None = None  # a step of several tokens, not verified yet
        self._built_several: verify.Built | None = None  # one behind it
        self._joined = False  # rows have joined: nothing is built ahead, their first tokens are delivered at once
        self._last_step: tuple[list[Row], int, float] | None = None
        """Rows of the last step of one token each, how many (0: one, not built ahead), and when it began."""
        self._last_sizes: list[int] = []  # tokens of each row in the last step of several, by bucket
        self._drafts_next = False  # nothing was built ahead, as drafts are to be run next
        self._to_insert: list[Row] = []  # rows whose prompts go into the prefix cache after their first tokens
        self._before_first_token: list[Row] = []  # rows that have had no token since they joined

    def __len__(self) -> int:
        return len(self.rows)

    def join(
        self,
        joining: Sequence[tuple[Row, RowCache]],
        to_insert: Sequence[Row] = (),
        logits: Sequence[mx.array] = (),
    ) -> None:
        """Add rows: all of a row's tokens but the last one are in its cache, that one runs with the batch.

        Args:
            joining: rows with one prompt may bring the same cache.
            to_insert: those whose prompts go into the prefix cache, once their first tokens have been delivered.
            logits: `[1, vocabulary]` of each row's next token, where the batch is empty: last tokens are in their
                caches, too, and the rows' first step is in flight.

        Raises:
            Exception: some of these rows cannot join. None has, and those that run go on.
        """
        rows, caches = [row for row, _ in joining], [cache for _, cache in joining]
        last = [row.last_token for row in rows]
        with self._failing_rows():
            self._settle()
        chosen = self._cache.choose(caches)
        # From here on some layers may hold the rows and others not: if that fails, no row can go on.
        self.rows = self.rows + rows
        with self._failing_rows():
            self._places = self._places + self._cache.join(caches, chosen)
            if not logits:
                known = mx.array(last, dtype=mx.int32)
                self._inputs = known if self._inputs is None else mx.concatenate([self._inputs, known])
            self._logits = mx.concatenate(list(logits)) if logits else None
            self._in_order_of_places()
            self._joined = True
            self._to_insert += to_insert
            self._before_first_token += rows

    def step(self, *, ahead: bool = True) -> None:
        """Give every running row its next token.

        Args:
            ahead: build the step after the next one, too. Rows that join have to wait until it has run.
        """
        with self._failing_rows():
            self._step(ahead)

    def _step(self, ahead: bool) -> None:
        start, rows, (last, self._last_step) = time.perf_counter(), self.rows, (self._last_step, None)
        if last is not None and self._speculation is not None and last[0] is rows:  # nobody has joined or left
            self._speculation.note(len(rows), last[1], start - last[2])
        several, drafts_next = self._several, self._drafts_next
        usual = self._in_flight and several is None and ahead and not self._joined
        if self._in_flight:
            self._finish()
            self._joined = False  # who joined with logits has its first token
            if several is not None:
                if self._speculation is not None and several.rows is self.rows:  # nobody has left
                    self._speculation.note(len(rows), several.tokens, time.perf_counter() - several.begun)
            elif not self._in_flight:
                self._deliver()  # launching a step that was not built before may take as long as it does
            self.insert_prompts()
            if not self.rows:
                return
        if not self._in_flight:
            if self._cache.wants_compaction:
                self._compact()
            if self._speculation is not None and self._launch_several(self._speculation, ahead):
                if self._in_flight and (not ahead or self._joined):
                    self._finish()
                elif self._several is not None:
                    self._build_several(self._several)
                self._joined = False
                return
            self._launch()
        self._prepare()
        speculation = self._speculation
        self._drafts_next = speculation is not None and ahead and not self._joined and speculation.expects(self.rows)
        if ahead and not self._joined and not self._drafts_next:
            self._build()
        self._last_step = (rows, 0 if drafts_next else 1, start) if usual else None
        self._joined = False

    def drop(self, gone: Collection[Row]) -> None:
        """Drop running rows; no event is sent. Rows that do not run are ignored."""
        with self._failing_rows(gone):
            if any(row in gone for row in self._to_insert):
                self.insert_prompts()
            self._keep_only([i for i, row in enumerate(self.rows) if row not in gone])

    def insert_prompts(self) -> None:
        """Insert the prompts of rows that have joined into the prefix cache, if that is still to be done."""
        to_insert, self._to_insert = self._to_insert, []
        self._insert([row for row in to_insert if row in self.rows])

    def wait(self) -> None:
        """Wait for the step that is in flight, if one is."""
        with self._failing_rows():
            if self._sample is not None:
                mx.eval(*self._sample.arrays())
            elif self._logits is not None:
                mx.eval(self._logits)
            elif self._several is not None:
                self._several.wait()

    def take(self, row: Row) -> bool:
        """Remove a row that is to go on later: its output is known then. False if it has ended meanwhile."""
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
        """Bytes of the rows' caches, those of what drafts for them too, free slots and places included."""
        return self._cache.nbytes + (0 if self._speculation is None else self._speculation.nbytes)

    def fail(self, error: Exception) -> None:
        """End every row with an error and start afresh."""
        rows, self.rows = self.rows, []
        for row in rows:
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
            log.exception("a model step failed; its rows fail, the engine goes on")
            self.rows = [row for row in self.rows if row not in but]
            self.fail(failure)

    @property
    def _in_flight(self) -> bool:
        return self._sample is not None or self._logits is not None or self._several is not None

    def _launch(self) -> None:
        """Queue the next forward pass, and the sample behind it where that needs nothing from the host."""
        if self._sampler is None:  # after steps of several tokens
            self._renew_sampler()
        sampler = self._sampler
        assert sampler is not None and self._inputs is not None
        logits, self._inputs = self._forward(self._inputs), None
        if sampler.queues_ahead:
            self._sample = sampler.sample(logits)
            _async_eval(*self._sample.arrays())
        else:
            self._logits = logits
            _async_eval(logits)

    def _forward(self, tokens: mx.array) -> mx.array:
        """See `forward`."""
        return forward(self._model, self._cache, self._places, self._states, tokens)

    def _build(self) -> None:
        """While a step runs, build the next one's graph, in Python."""
        sampler = self._sampler
        if sampler is None or self._all_end_now() or self._cache.wants_compaction:
            return
        if self._sample is not None:
            self._next = sampler.sample(self._forward(self._sample.tokens))
        elif self._logits is not None and self._builds_one and not sampler.queues_ahead:
            self._built = Built.of(len(self.rows), self._forward)

    def _launch_several(self, speculation: Speculation, ahead: bool) -> bool:
        """Launch the drafts that there are behind the rows' last tokens, with nothing in flight; whether there are."""
        begun = time.perf_counter()
        # What joins has its first tokens soon.
        drafts = speculation.drafts(self.rows, wanted=not self._joined, beside_prompts=not ahead)
        built, self._built_several = self._built_several, None
        if drafts is None:
            return False
        if not self._joined:
            self.insert_prompts()
        self._retire_sampler()
        begun += speculation.spent
        self._several = several = verify.begin(self._cache, self._places, self.rows, drafts, begun, built)
        self._inputs = built = None
        # Launching it lets go of the GIL for long, and takes nearly as long as the step does on CPUs. Where a GPU's is
        # still to be built, the GPU would wait for both.
        early = several.built is not None or not self._model.samples_on_device
        if early and not self._to_insert:
            self._deliver()  # this may drop rows, which inserts nothing that has not run
        if self._several is several:  # else all rows have left
            several.launch(self._model)
        return True

    def _build_several(self, several: Several) -> None:
        """While a step of several tokens runs, build one behind it, if there are to be as many again."""
        sizes, self._last_sizes = self._last_sizes, [step.tokens for step in several.steps]
        expected = self._builds_several and sizes == self._last_sizes and any(several.drafts)
        if expected and not self._all_end_now() and not self._cache.wants_compaction:
            self._built_several = verify.build(self._cache, several, self._model)

    def _finish_several(self, several: Several, speculation: Speculation) -> None:
        """Emit what holds of the step of several tokens in flight."""
        self._several = None
        self._retire_sampler()  # one that was made meanwhile, when rows left, has sampled nothing
        done = several.finish(self.rows, self._cache, self._model, self._emit)
        speculation.verified(several.drafts, done.accepted)
        self._note_first_tokens()
        self._inputs = mx.array([row.last_token for row in self.rows], dtype=mx.int32)
        if done.ended and self._prefixes is not None:
            self._deliver()  # this may drop rows
            self._insert([row for row in done.ended if row in self.rows])
        self.drop({*done.ended, *done.failed})

    def _finish(self) -> None:
        """Have the tokens of the step in flight, launch the one that was built behind it, emit."""
        if self._several is not None and self._speculation is not None:
            self._finish_several(self._several, self._speculation)
            return
        if self._logits is not None:
            self._sample_on_host()
            return
        sample, following = self._sample, self._next
        assert sample is not None
        self._sample = self._next = None
        if following is None:
            self._inputs = sample.tokens
        else:
            self._sample = following
            _async_eval(*following.arrays())
        self._emit_tokens(self.rows, sample)

    def _sample_on_host(self) -> None:
        """Sample from the logits in flight, launch the step that was built for these tokens if one was, emit."""
        self._prepare()
        if self._logits is None:
            return
        assert self._sampler is not None
        sample, built = self._sampler.sample(self._logits), self._built
        self._logits = self._built = None
        if built is None:
            self._inputs = sample.inputs
        else:
            built.tokens[built.places] = sample.tokens
            self._logits = built.logits
            _async_eval(self._logits)
        self._emit_tokens(self.rows, sample)

    def _prepare(self) -> None:
        """Have the masks of the logits in flight, and end the rows whose constraint fails."""
        while self._logits is not None:
            assert self._sampler is not None
            failures = self._sampler.prepare(self._logits.shape[-1])
            if not failures:
                return
            for i, error in failures.items():
                self._emit(self.rows[i], Failure(error))
            self.drop([self.rows[i] for i in failures])  # with a sampler that has not asked yet

    def _settle(self) -> None:
        """Bring what is in flight to the host: afterwards the next step's inputs are known."""
        self._built_several = None
        while self._in_flight:
            self._finish()

    def _all_end_now(self) -> bool:
        return all(row.generated + 1 >= row.max_tokens for row in self.rows)

    def _emit_tokens(self, rows: Sequence[Row], sample: Sample) -> None:
        """Emit the tokens of a sample, and drop the rows that it finished."""
        tokens, details = sample.read()
        if self._before_first_token:
            self._note_first_tokens()
        ended, failed = emit_all(rows, tokens, details, self._model.eos_token_ids, self._emit)
        if ended and self._prefixes is not None:
            self._deliver()  # keeping waits for the step in flight; this may drop rows
            self._insert([row for row in ended if row in self.rows])
        if ended or failed:
            self.drop({*ended, *failed})
        elif self._sampler is not None and any(rows[i].constraint is None for i in self._sampler.constrained):
            self._renew_sampler()

    def _note_first_tokens(self) -> None:
        """Rows that have joined have their first tokens."""
        waiting, self._before_first_token = self._before_first_token, []
        for row in waiting:
            if row.request.timings.first_token is None:
                row.request.timings.first_token = time.monotonic()

    def _insert(self, rows: Sequence[Row]) -> None:
        """Insert what has run through rows' caches into the prefix cache, last tokens too if a step is in flight."""
        if not rows or self._prefixes is None:
            return
        places = dict(zip(self.rows, self._places, strict=True))
        for row in rows:
            keys = [*row.request.prompt.keys, *row.output_tokens]
            ran = keys if self._in_flight else keys[: len(keys) - 1 - len(row.replay)]
            self._prefixes.insert(row.request.prompt.salt, ran, partial(self._cache.read, places[row]))

    def _keep_only(self, indices: list[int]) -> None:
        """Keep the rows at these places; the others leave."""
        if len(indices) == len(self.rows):
            return
        if not indices:
            self.rows = []
            self._reset()
            return
        kept = set(indices)
        self._cache.leave([place for i, place in enumerate(self._places) if i not in kept])
        self._arrange(indices)

    def _compact(self) -> None:
        """Close the slots of rows that left, with nothing in flight: what is in flight holds the buffers."""
        self._settle()
        moves = self._cache.compact()
        self._places = [moves.get(place, place) for place in self._places]
        self._in_order_of_places()

    def _in_order_of_places(self) -> None:
        self._arrange(sorted(range(len(self._places)), key=self._places.__getitem__))

    def _arrange(self, indices: list[int]) -> None:
        """Have these rows, in this order, with what is in flight for them."""
        if indices == list(range(len(self.rows))):
            self._renew_sampler()
            return
        self.rows = [self.rows[i] for i in indices]
        self._places = [self._places[i] for i in indices]
        at = mx.array(indices)
        if self._inputs is not None:
            self._inputs = self._inputs[at]
        if self._logits is not None:
            self._logits = self._logits[at]
        if self._sample is not None:
            self._sample = self._sample.take(indices)
        if self._next is not None:
            self._next = self._next.take(indices)
        if self._built is not None:
            self._built = self._built.take(indices)
        self._renew_sampler()

    def _renew_sampler(self) -> None:
        states = [row.state for row in self.rows]
        self._states = states if any(state is not None for state in states) else None
        self._retire_sampler()
        if self._speculation is not None:
            self._speculation.keep(self.rows)
        self._sampler = Sampler(self.rows, sorted(self._model.eos_token_ids), on_device=self._model.samples_on_device)

    def _retire_sampler(self) -> None:
        """Drop the sampler, in this way only: its rows may go on in another one, from where it got to."""
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.retire()

    def _new_cache(self) -> Buckets:
        most_tokens = 1 if self._speculation is None else MAX_STEP_TOKENS
        return Buckets(self._model.weight_bytes, most_tokens, builds_ahead=self._builds_several)

    def _reset(self) -> None:
        self._cache, self._places, self._to_insert, self._before_first_token = self._new_cache(), [], [], []
        self._inputs = self._sample = self._next = self._logits = self._built = self._states = None
        self._several = self._built_several = None
        self._retire_sampler()
        if self._speculation is not None:
            self._speculation.keep(self.rows)

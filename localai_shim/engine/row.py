"""One running request."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import mlx.core as mx

from ..types import (
    Adapter,
    EngineError,
    Event,
    Failure,
    FinishReason,
    GenerationRequest,
    GrammarConstraint,
    RowError,
    Sink,
    Token,
)
from .failures.gpu import note_gpu_fault
from .kv.shared import Prefix
from .mirror import journal as mirror
from .noise import stream_key
from .ports import Model

Array: TypeAlias = Any
"""MLX's where the sampler works on the device, NumPy's where it works on the host; mypy knows no type for both."""


class KnownStates(NamedTuple):
    """Hidden states of consecutive tokens of a row, which a pass has given."""

    at: int
    """Number of the row's tokens before the first one."""
    states: mx.array
    """`[positions, width]`, those of other rows too."""
    first: int
    """Place of the row's first one in it."""
    length: int


NO_TOKEN = -1
"""Sampled instead of a token if the likeliest logit of a row is not finite: the row fails."""


class Row:
    """One running request."""

    def __init__(self, request: GenerationRequest, sink: Sink, index: int, model: Model) -> None:
        if not request.prompt.tokens:
            raise ValueError("the prompt encodes to zero tokens; at least one is needed")
        self.request = request
        self.sink = sink
        self.index = index
        """The request's place in its submission."""
        self.arrival = 0
        """Smaller for rows that came earlier."""
        self.number = 0
        """Its name in plans, from 1; set when it is queued."""
        self.keeps_place = 0
        """Number of generated tokens before which no more urgent prompt gets its place."""
        self.state: object | None = None
        """See `Model.row_state`; rows that share a prompt share it."""
        self.shares = False
        """It may share its prompt's first tokens with other rows; set when its prompt begins."""
        self.prefix: Prefix | None = None
        """First tokens that it shares while it runs."""
        self.adapter = request.prompt.adapter
        self.sampling = request.sampling
        self.key = stream_key(request.sampling.seed)
        self.sampled = 0
        """Tokens sampled so far, also those that the host has not seen yet: the position of the next noise."""
        self.generated = 0
        self.output_tokens: list[int] = []
        request.timings.output = self.output_tokens
        self.counts: Array | None = None
        """`[vocabulary]` occurrences in the output, once some penalty asked for them."""
        self.recent: Array | None = None
        """The last tokens, once bad words asked for them: see `Bans`."""
        self.replay: list[int] = []
        """Tokens before the last one that the row's caches must run once more: see `in_flight._take_back`."""
        self.next_draft_at: float = 0
        """Number of generated tokens at which sources of drafts are asked again."""
        self.drafting: dict[object, Any] = {}
        """State of drafters, and of what chooses among them, by owner."""
        constraint = request.constraint
        self.constraint: GrammarConstraint | None = None if constraint is None or constraint.idle else constraint
        """The grammar constraint, until it is idle."""
        self.max_tokens = request.max_tokens
        """Output tokens in all."""
        if model.context_length is not None:
            self.max_tokens = min(self.max_tokens, model.context_length - len(request.prompt.tokens))

    @property
    def prompt_tokens(self) -> Sequence[int]:
        return self.request.prompt.tokens

    @property
    def last_token(self) -> int:
        """The token that is run next."""
        return (self.output_tokens or self.prompt_tokens)[-1]

    def count_token(self, token_id: int, eos: frozenset[int]) -> tuple[FinishReason | None, bool]:
        """Count a token; returns why the row ends with it, if it does, and whether it is an end of sequence.

        Raises:
            RowError: the row's grammar constraint or stop check failed.
        """
        self.generated += 1
        self.output_tokens.append(token_id)
        request = self.request
        if self.generated == 1:
            request.timings.sample()
        is_eos = token_id in eos
        if (is_eos and not request.ignore_eos) or token_id in request.stop_token_ids:
            return "stop", is_eos
        try:
            ends = request.stop is not None and request.stop.feed(token_id)
        except BaseException as error:  # that of a panic in Rust is no Exception
            raise RowError(f"the stop check of this request failed: {error!r}") from error
        if self.constraint is not None:
            ends = self._constraint_ends(self.constraint, token_id) or ends
        if ends:
            return "stop", is_eos
        if self.generated >= self.max_tokens:
            return "length", is_eos
        return None, is_eos

    def _constraint_ends(self, constraint: GrammarConstraint, token_id: int) -> bool:
        try:
            ends = constraint.accept(token_id)
            if constraint.idle:
                self.constraint = None
        except BaseException as error:
            raise grammar_failed(error) from error
        return ends


def adapters_of(rows: Sequence[Row]) -> list[Adapter | None] | None:
    """The adapter of each row; None: no row has one."""
    adapters = [row.adapter for row in rows]
    return adapters if any(adapter is not None for adapter in adapters) else None


def release_frames(error: BaseException) -> None:
    """Have notes say what the tracebacks of an exception and of its causes say, and let these go.

    Frames hold what they worked with, and the frames that called them: who keeps the exception would keep a model's
    weights.
    """
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if each.__traceback__ is not None:
            each.add_note("".join(traceback.format_tb(each.__traceback__)).rstrip())
            each.__traceback__ = None
        pending += [each.__cause__, each.__context__]


def row_error(what: str, cause: BaseException) -> EngineError:
    """An error that says what failed, and why; who keeps it keeps nothing of the engine."""
    return mirror.lost(cause) or note_gpu_fault(cause) or _failure(what, cause)


def _failure(what: str, cause: BaseException) -> RowError:
    release_frames(cause)
    error = RowError(f"{what}: {cause!r}")
    error.__cause__ = cause
    return error


def grammar_failed(cause: BaseException) -> RowError:
    """The error that ends a row whose grammar constraint failed."""
    return _failure("the grammar of this request failed", cause)


NOT_FINITE = (
    "the model computed logits that are not finite numbers. Check the adapter and the weights; if other requests with "
    "this model work, the numbers of this request exceed the range of the model's dtype"
)
Emit = Callable[[Row, Event], None]
Details = tuple[float | None, Sequence[tuple[int, float]]]
"""A token's logprob, and the likeliest tokens of its position with theirs."""

_NO_DETAILS: Details = (None, ())


def emit_next(row: Row, token_id: int, details: Details | None, eos: frozenset[int], emit: Emit) -> RowError | bool:
    """Count and emit a row's next token; returns whether the row ends with it, or why it failed."""
    try:
        if token_id == NO_TOKEN:
            raise RowError(NOT_FINITE)
        reason, is_eos = row.count_token(token_id, eos)
    except RowError as error:
        emit(row, Failure(error))
        return error
    logprob, top = details or _NO_DETAILS
    emit(row, Token(token_id, logprob, top, reason, is_eos))
    return reason is not None

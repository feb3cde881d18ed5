"""The nouns that all layers share. Imports nothing heavy, neither the SDK nor MLX."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from .stats import InputCounts, RowTimings

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .media import MediaSpan
    from .stats import EngineStats
    from .vectors import Embedding, Reranking

log = logging.getLogger("localai_shim")
VERSION = "0.2.0"

Json = dict[str, Any]
"""An object of JSON."""


def map_texts(value: Any, change: Callable[[str], Any]) -> Any:
    """A copy of a JSON value with what `change` makes of its strings, other than keys, in their place."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: map_texts(item, change) for key, item in value.items()}
    return [map_texts(item, change) for item in value] if isinstance(value, list | tuple) else value


FinishReason = Literal["stop", "length"]
Task = Literal["generate", "embed", "rerank"]
"""Task of a model."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Settings by which one row samples its tokens.

    Semantics follow OpenAI's API reference, and vLLM where OpenAI has no such field (`top_k`, `min_p`,
    `repetition_penalty`, `allowed_token_ids`, `bad_words`).
    """

    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps the whole vocabulary."""
    min_p: float = 0.0
    """Tokens less likely than `min_p` times the likeliest one are dropped."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens of the prompt and of the output."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float])
    """-inf rules a token out."""
    allowed_token_ids: tuple[int, ...] | None = None
    """The only tokens that may be sampled; None: all. A grammar constraint that allows none of them counts alone."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Sequences of tokens whose last one is not sampled where the output ends with those before it."""
    seed: int = 0
    top_logprobs: int | None = None
    """None: no logprobs. 0: the sampled token's only. n: those of the n likeliest tokens as well."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter that work may use. Equal ones have the same contents, whatever their names."""

    name: str = field(compare=False)
    fingerprint: str
    """Changes with its contents."""
    folder: str = field(compare=False)


class Prompt:
    """Token ids of a prompt. Requests that hold the same object are prefilled once.

    Args:
        tokens: the ids.
        keys: of the tokens, by which prompts are compared: the ids (None), or where media are negative hashes of these.
        boundaries: lengths at which other prompts are likely to part from this one, such as the end of the system
            prompt; only models whose rows cannot be cut need them.
        salt: what this prompt left in the prefix cache is found by prompts with an equal salt only.
        top_logprobs: score the prompt's own tokens, with so many likely ones beside each; None: they are not scored.
        media: where images, videos and sounds stand, ascending.
        adapter: what runs it; what it left in the prefix cache is found by prompts of this one only.

    Attributes:
        media_salt: as `salt`, of features of media: no adapter changes these.
        cached_tokens: how many of the tokens were in the prefix cache; the engine says so before the first event.
        scores: of each token but the first one, if wanted; the engine fills it in before the first event.
    """

    __slots__ = ("adapter", "boundaries", "cached_tokens", "keys", "media", "media_salt",
                 "salt", "scores", "tokens", "top_logprobs")  # fmt: skip

    def __init__(
        self,
        tokens: Sequence[int],
        *,
        keys: Sequence[int] | None = None,
        boundaries: Sequence[int] = (),
        salt: str | None = None,
        top_logprobs: int | None = None,
        media: Sequence[MediaSpan] = (),
        adapter: Adapter | None = None,
    ) -> None:
        self.tokens = list(tokens)
        self.keys = self.tokens if keys is None else list(keys)
        """Keys of the tokens, as many as these, and the same list for text; each fits into 64 bits."""
        if len(self.keys) != len(self.tokens):
            raise ValueError(f"{len(self.keys)} keys cannot stand for {len(self.tokens)} tokens")
        self.boundaries = tuple(boundaries)
        self.adapter = adapter
        self.media_salt = salt
        self.salt = salt if adapter is None else f"{adapter.fingerprint} {salt or ''}"
        self.top_logprobs = top_logprobs
        self.media = tuple(media)
        self.cached_tokens: int | None = None
        self.scores: list[TokenScore] | None = None

    def counts(self) -> InputCounts:
        return InputCounts(len(self.tokens), self.cached_tokens or 0, sum(len(span.places) for span in self.media))


class TokenScore(NamedTuple):
    """Likelihood of one token of a prompt, after those before it."""

    logprob: float
    """Natural logarithm, of the model's own distribution."""
    rank: int
    """1 for the likeliest token."""
    top: Sequence[tuple[int, float]] = ()
    """The likeliest (token id, logprob), best first."""


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of items that two lists begin with alike."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:  # a[:low] is alike, a[:high] is not
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


class StopChecker(Protocol):
    """Says when a row's output has one of its stop strings. One per row; called on the engine thread only."""

    def feed(self, token_id: int) -> bool:
        """Take the next output token, before the row's constraint does; True when the row ends with it."""


class GrammarConstraint(Protocol):
    """Constraint on the tokens that may follow one row's output; one per row, called on the engine thread only."""

    @property
    def idle(self) -> bool:
        """It allows every token from here on, whatever is generated."""

    @property
    def escape(self) -> int | None:
        """A token that is sampled in spite of `mask` where it is the likeliest of all, for the next token only."""

    def mask(self, out: Any) -> bool:
        """Fill the logits mask of the next token; False when every token is allowed. Changes nothing but `out`.

        Args:
            out: `[words]` int32, NumPy, zeroed: token i is allowed where bit i % 32 of word i // 32 is set.
        """

    def accept(self, token_id: int) -> bool:
        """Take the token that was sampled; True when nothing may follow it, and the row ends."""

    def forced(self) -> Sequence[int]:
        """Tokens that probably come next, as the constraint leaves no choice about the text. Changes nothing."""


class Input(Protocol):
    """Tokens that work reads: once for all work that holds the same object."""

    def counts(self) -> InputCounts: ...


@dataclass(slots=True, kw_only=True)
class Work:
    """One piece of work for an engine, of some kind. It gets events up to one that ends it."""

    emits_tokens: ClassVar[bool] = False
    """Its events are an output's tokens; others get one `Token` that means nothing, after their result."""
    priority: int = 0
    """Lower ones are served first, as in vLLM."""
    timings: RowTimings = field(default_factory=RowTimings, compare=False, repr=False)
    """The engine fills them in."""
    reply: object = field(default=None, compare=False, repr=False)
    """Answer to play, for an engine that plays answers; others ignore it."""

    @property
    def task(self) -> Task:
        """Its kind: an engine has a table of who runs which."""
        raise NotImplementedError

    @property
    def input(self) -> Input:
        raise NotImplementedError

    @property
    def uses(self) -> Adapter | None:
        """The adapter that it needs; None: the model alone."""
        raise NotImplementedError


@dataclass(slots=True)
class GenerationRequest(Work):
    """One row: what to continue, how, and for how long."""

    emits_tokens = True
    prompt: Prompt
    sampling: SamplingParams
    max_tokens: int
    min_tokens: int = 0
    """Ends of sequence, stop tokens and stop strings are not honoured before this many tokens."""
    ignore_eos: bool = False
    stop_token_ids: frozenset[int] = frozenset()
    """Tokens that end the row, whether or not `ignore_eos`."""
    stop: StopChecker | None = None
    constraint: GrammarConstraint | None = None
    prediction: Callable[[], Callable[[Sequence[int], int], Sequence[int]]] | None = None
    """Begins to follow the caller's prediction of the output: (output so far, most) -> tokens that may come next."""
    speculation: bool = True
    """Drafts may be run for it, where the engine has some."""

    @property
    def task(self) -> Task:
        return "generate"

    @property
    def input(self) -> Prompt:
        return self.prompt

    @property
    def uses(self) -> Adapter | None:
        return self.prompt.adapter


@dataclass(slots=True, eq=False)
class EmbeddingRequest(Work):
    """A request for vectors of texts."""

    texts: Sequence[Sequence[int]]
    """Token ids of each; none is empty, or longer than `Embedding.max_tokens`."""
    skip: int = 0
    """Tokens at the beginning of each text that are a prompt's, where pooling leaves these out."""
    ranks: bool = False
    """Each text is a query with a document, as `Reranking.encode` makes it, and gets a score."""
    adapter: Adapter | None = None
    vectors: npt.NDArray[np.float32] | None = field(default=None, init=False)
    """`[texts, dimensions]`, a row of length 1 per text; scores are `[texts, 1]`, from 0 to 1. Set before the event."""

    @property
    def task(self) -> Task:
        return "rerank" if self.ranks else "embed"

    @property
    def input(self) -> EmbeddingRequest:
        return self

    @property
    def uses(self) -> Adapter | None:
        return self.adapter

    def counts(self) -> InputCounts:
        return InputCounts(sum(map(len, self.texts)))


class Token(NamedTuple):
    """One generated token of one row."""

    id: int
    logprob: float | None = None
    """Natural logarithm, of the model's own distribution: before temperature, bias and penalties."""
    top: Sequence[tuple[int, float]] = ()
    """The likeliest (token id, logprob), best first."""
    finish_reason: FinishReason | None = None
    """Set on a row's last token."""
    is_eos: bool = False
    """The token marks the end of a sequence and is not part of the text, also where the row goes on."""


class Failure(NamedTuple):
    """A row's last event when it could not be finished."""

    error: Exception


Event = Token | Failure


class Waker(Protocol):
    """Wakes the consumers on one event loop; called once per engine step however many streams they have."""

    def wake(self) -> None:
        """Raises RuntimeError when the event loop has ended."""


class Sink(Protocol):
    """Receiver of the events of the requests that were submitted together."""

    @property
    def waker(self) -> Waker | None: ...

    def put(self, index: int, event: Event) -> None:
        """Take an event of the request with this index. Runs on the engine thread and must not block."""


class Recipient(Protocol):
    """A row, as far as its events' way to the consumer goes."""

    @property
    def sink(self) -> Sink: ...

    @property
    def index(self) -> int:
        """The request's place in its submission."""


class Ticket:
    """Key to cancel with, which `EngineLike.submit` takes or returns."""

    __slots__ = ()


class LoadedModel(Protocol):
    """Model of an engine, as clients need it; may be read on any thread."""

    name: str
    """Name for `response.model`."""
    created: int
    """Seconds since 1970; 0 where nobody knows."""
    fingerprint: str
    """Changes with whatever its answers, and the contents of a row's cache, depend on."""
    context_length: int | None
    """Most tokens of prompt and output together; None when the model does not say."""
    eos_token_ids: frozenset[int]
    tokenizer: Any
    """mlx-lm's `TokenizerWrapper`, or what plays one."""

    @property
    def tasks(self) -> Sequence[Task]:
        """Tasks that it serves."""

    @property
    def embedding(self) -> Embedding | None:
        """Settings for embedding texts; None: it embeds none."""

    @property
    def reranking(self) -> Reranking | None:
        """Settings for scoring documents; None: it scores none."""

    @property
    def generation_defaults(self) -> Mapping[str, Any]:
        """The checkpoint's generation_config.json."""

    @property
    def text(self) -> Any:
        """Makes its prompts: see `prompt.tokenizing.Tokenizing`."""


class EngineLike(Protocol):
    """Engine as clients need it; `engine/engine.py` has the docs of each method."""

    @property
    def model(self) -> LoadedModel: ...

    @property
    def ready(self) -> Future[None]: ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def is_closed(self) -> bool: ...

    def wait(self) -> None: ...

    def submit(self, works: Sequence[Work], sink: Sink, ticket: Ticket | None = None) -> Ticket: ...

    def cancel(self, ticket: Ticket) -> None: ...

    def stats(self, *, plans: bool = False) -> EngineStats: ...

    def close(self) -> None: ...

    def check_process(self) -> None: ...


class EngineError(Exception):
    """Base of what the engine reports; `errors.py` maps it to the SDK's exception classes."""


class QueueFullError(EngineError):
    """More requests wait than may."""


class TooManyRowsError(EngineError):
    """A request asks for more rows than may ever run and wait together."""


class AdapterGoneError(EngineError):
    """The adapter that a request names was unloaded before the request reached the engine."""


class EngineClosedError(EngineError):
    """The engine was closed, or belongs to the process that this one was forked from."""


class ModelLoadError(EngineError):
    """The model could not be loaded."""

    def __init__(self, message: str, *, missing: bool = False, transient: bool = False) -> None:
        super().__init__(message)
        self.missing = missing
        """There is no such model, as opposed to one that is broken."""
        self.transient = transient
        """It may go better next time: the network failed, or others held the memory."""

    def again(self) -> ModelLoadError:
        """The same, to be raised once more: an exception that is raised twice keeps what its first callers held."""
        made = ModelLoadError(str(self), missing=self.missing, transient=self.transient)
        made.__cause__ = self.__cause__
        return made


class RowError(EngineError):
    """One row failed. The other rows of its batch went on."""


class BackendMissingError(ImportError):
    """MLX has no back end on this machine. The message names the extra to install."""

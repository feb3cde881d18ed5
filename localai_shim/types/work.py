"""Work for an engine: its prompts, its kinds, and the settings of each."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar

from ..speech import Attended, Recognized, Spoken
from ..stats import InputCounts, RowTimings

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..media import MediaSpan, ProcessedMedia


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
        salt: only prompts with an equal salt use its entries in the prefix cache.
        top_logprobs: number of likely tokens with which its own tokens are scored; None: they are not scored.
        watched: tokens whose likelihoods are wanted in each of its scores.
        media: places of images, videos and sounds, ascending.
        adapter: of the passes that run it; only prompts with the same one use its entries in the prefix cache.

    Attributes:
        media_salt: as `salt`, of features of media: no adapter changes these.
        cached_tokens: how many of the tokens were in the prefix cache; the engine says so before the first event.
        scores: of each token but the first one, if wanted; the engine fills it in before the first event.
    """

    __slots__ = ("adapter", "boundaries", "cached_tokens", "keys", "media", "media_salt",
                 "packed_keys", "salt", "scores", "tokens", "top_logprobs", "watched")  # fmt: skip

    def __init__(
        self,
        tokens: Sequence[int],
        *,
        keys: Sequence[int] | None = None,
        boundaries: Sequence[int] = (),
        salt: str | None = None,
        top_logprobs: int | None = None,
        watched: Sequence[int] = (),
        media: Sequence[MediaSpan] = (),
        adapter: Adapter | None = None,
    ) -> None:
        self.tokens = list(tokens)
        self.keys = self.tokens if keys is None else list(keys)
        """Keys of the tokens, as many as these, and the same list for text; each fits into 64 bits."""
        if len(self.keys) != len(self.tokens):
            raise ValueError(f"{len(self.keys)} keys cannot stand for {len(self.tokens)} tokens")
        self.packed_keys = array("q", self.keys)
        """The keys as 64-bit integers, which are compared fast."""
        self.boundaries = tuple(boundaries)
        self.adapter = adapter
        self.media_salt = salt
        self.salt = salt if adapter is None else f"{adapter.fingerprint} {salt or ''}"
        self.top_logprobs, self.watched = top_logprobs, tuple(watched)
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
    watched: Sequence[float] = ()
    """Logprobs of `Prompt.watched`, in that order."""


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


Task = Literal["generate", "embed", "rerank", "transcribe", "align", "speak", "recognize"]
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
    group_from: int | None = None
    """Tokens from this id on are a group, such as Whisper's timestamps. One of them is sampled if their probabilities
    together exceed that of each other token, at a temperature of 1, after bias, penalties, and grammar constraint."""
    seed: int = 0
    top_logprobs: int | None = None
    """None: no logprobs. 0: the sampled token's only. n: those of the n likeliest tokens as well."""


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

    def mask(self, out: npt.NDArray[np.int32]) -> bool:
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

    task: ClassVar[Task]
    """Its kind: `engine/work/batcher.py` says what runs it."""
    emits_tokens: ClassVar[bool] = False
    """Its events are an output's tokens; others get one `Token` that means nothing, after their result."""
    priority: int = 0
    """Lower ones are served first, as in vLLM."""
    timings: RowTimings = field(default_factory=RowTimings, compare=False, repr=False)
    """The engine fills them in."""
    reply: object = field(default=None, compare=False, repr=False)
    """Answer to play, for an engine that plays answers; others ignore it."""

    @property
    def input(self) -> Input:
        raise NotImplementedError

    @property
    def uses(self) -> Adapter | None:
        """The adapter that it needs; None: the model alone."""
        return None


@dataclass(slots=True)
class GenerationRequest(Work):
    """One row: what to continue, how, and for how long."""

    task: ClassVar[Task] = "generate"
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
    agent: str | None = None
    """Name of the agent or conversation whose call it is; only timelines show it."""

    @property
    def input(self) -> Prompt:
        return self.prompt

    @property
    def uses(self) -> Adapter | None:
        return self.prompt.adapter


@dataclass(slots=True)
class TranscriptionRequest(GenerationRequest):
    """One window of speech to write down: a row whose prompt has one item of media, at its first token."""

    task = "transcribe"


@dataclass(slots=True, eq=False)
class EmbeddingRequest(Work):
    """A request for vectors of texts."""

    task: ClassVar[Task] = "embed"
    what: ClassVar[str] = "embedding text"
    """Beginning of an error's message; the place of the text follows."""
    texts: Sequence[Sequence[int]]
    """Token ids of each; none is empty, or longer than `Embedding.max_tokens`."""
    skip: int = 0
    """Tokens at the beginning of each text that are a prompt's, where pooling leaves these out."""
    adapter: Adapter | None = None
    vectors: npt.NDArray[np.float32] | None = field(default=None, init=False)
    """`[texts, dimensions]`, a row of length 1 per text. Set before the event."""

    @property
    def input(self) -> EmbeddingRequest:
        return self

    @property
    def uses(self) -> Adapter | None:
        return self.adapter

    def counts(self) -> InputCounts:
        return InputCounts(sum(map(len, self.texts)))


@dataclass(slots=True, eq=False)
class RankingRequest(EmbeddingRequest):
    """A request for scores from 0 to 1, whose `vectors` are `[texts, 1]`.

    Each text is a query with a document, as `Reranking.encode` makes it.
    """

    task = "rerank"
    what = "scoring document"


PieceT = TypeVar("PieceT")


@dataclass(slots=True, eq=False, kw_only=True)
class PieceRequest(Work, Generic[PieceT]):
    """Work whose result comes in pieces. Each piece is in `pieces` before its `Token`; the last `Token` has none."""

    what: ClassVar[str] = "the request"
    """Beginning of an error's message."""
    seed: int | None = None
    """Of the random numbers that the model's code draws; None: the engine draws a seed."""
    pieces: deque[PieceT] = field(default_factory=deque, init=False, repr=False)
    """Pieces that the consumer has not taken."""

    @property
    def input(self) -> PieceRequest[PieceT]:
        return self

    @property
    def size(self) -> int:
        """Smaller for work that takes less time."""
        raise NotImplementedError

    def counts(self) -> InputCounts:
        return InputCounts(0)


@dataclass(slots=True, eq=False)
class AlignmentRequest(PieceRequest[Attended]):
    """A window of speech and what was said in it, for the times of the words. It has one piece."""

    task = "align"
    what = "aligning words"
    media: ProcessedMedia
    tokens: Sequence[int]
    """From `Transcribing.begin` to the end, with `Transcribing.no_timestamps` in front of the text."""
    before: int
    """Tokens in front of `no_timestamps`."""
    end: int
    """`Transcribing.end`: ids below it are text."""
    places: int
    """Places of the window that hold sound, of 1,500."""

    @property
    def size(self) -> int:
        return len(self.tokens)

    def counts(self) -> InputCounts:
        return InputCounts(len(self.tokens))


@dataclass(slots=True, eq=False)
class SpeechRequest(PieceRequest[Spoken]):
    """A text to speak."""

    task = "speak"
    what = "speaking"
    text: str
    tokens: int = 0
    """Tokens of the text, for counts."""
    voice: str | None = None
    """One of `Speaking.voices`, or a name for a model that has no list; None: the model's own."""
    instructions: str | None = None
    """Way in which the text is spoken."""
    speed: float = 1.0

    @property
    def size(self) -> int:
        return len(self.text)

    def counts(self) -> InputCounts:
        return InputCounts(self.tokens)


@dataclass(slots=True, eq=False)
class RecognitionRequest(PieceRequest[Recognized]):
    """Speech to write down, for a model that is no Whisper."""

    task = "recognize"
    what = "recognizing speech"
    samples: npt.NDArray[np.float32]
    """Mono, `SAMPLE_RATE` per second."""
    language: str | None = None
    """Its code in ISO 639-1, or its English name; None: the model finds out, or knows one."""
    prompt: str | None = None
    """Words that may occur, or text that came before."""
    temperature: float | None = None
    """None: the model's own default."""

    @property
    def size(self) -> int:
        return len(self.samples)

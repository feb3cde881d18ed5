"""Prompts of requests, and what is known of their tokens."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ..stats import InputCounts

if TYPE_CHECKING:
    from ..media import MediaSpan


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

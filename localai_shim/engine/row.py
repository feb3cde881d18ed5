"""One running request, and what of it the sampler needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..types import FinishReason, GenerationRequest, Guide, RowError, SamplingParams, Sink
from .masks import Array, grammar_failed
from .model import Model
from .uniform import stream_key


class SampledRow(Protocol):
    """What the sampler needs of a row."""

    sampling: SamplingParams
    key: int
    sampled: int
    """Tokens sampled so far: the position of the next uniform."""
    counts: Array | None
    """`[vocabulary]` occurrences in the output, once some penalty asked for them."""
    recent: Array | None
    """The last tokens, once bad words asked for them: see `Bans`."""
    guide: Guide | None
    """The grammar constraint, while it limits anything."""

    @property
    def min_tokens(self) -> int:
        """Tokens to sample before an end of sequence may come."""
        ...

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """Tokens that end the row, as ends of sequence do."""
        ...

    @property
    def prompt_tokens(self) -> Sequence[int]: ...


class Row:
    """One running request."""

    __slots__ = (
        "arrival",
        "counts",
        "generated",
        "guide",
        "index",
        "key",
        "recent",
        "request",
        "room",
        "said",
        "sampled",
        "sampling",
        "sink",
    )

    def __init__(self, request: GenerationRequest, sink: Sink, index: int, model: Model) -> None:
        self.request = request
        self.sink = sink
        self.index = index
        """The request's place in its submission."""
        self.arrival = 0
        """Smaller for rows that came earlier."""
        self.sampling = request.sampling
        self.key = stream_key(request.sampling.seed)
        self.sampled = 0
        self.generated = 0
        self.said: list[int] = []
        """The tokens generated."""
        self.counts: Array | None = None
        self.recent: Array | None = None
        guide = request.guide
        self.guide: Guide | None = None if guide is None or guide.idle else guide
        """Forgotten once it is idle."""
        self.room = request.max_tokens
        """Tokens that this row may generate in all."""
        if model.context_length is not None:
            self.room = min(self.room, model.context_length - len(request.prompt.tokens))

    @property
    def prompt_tokens(self) -> Sequence[int]:
        return self.request.prompt.tokens

    @property
    def min_tokens(self) -> int:
        return self.request.min_tokens

    @property
    def stop_token_ids(self) -> frozenset[int]:
        return self.request.stop_token_ids

    def advance(self, token_id: int, eos: frozenset[int]) -> tuple[FinishReason | None, bool]:
        """Count a token; returns why the row ends with it, if it does, and whether it is an end of sequence.

        Raises:
            RowError: the row's guide or stop check failed.
        """
        self.generated += 1
        self.said.append(token_id)
        request = self.request
        is_eos = token_id in eos
        if (is_eos and not request.ignore_eos) or token_id in request.stop_token_ids:
            return "stop", is_eos
        ends = False
        if request.stop is not None:
            try:
                ends = request.stop.feed(token_id)
            except Exception as error:
                raise RowError(f"the stop check of this request failed: {error!r}") from error
        if self.guide is not None:
            ends = self._guide_ends(self.guide, token_id) or ends
        if ends:
            return "stop", is_eos
        if self.generated >= self.room:
            return "length", is_eos
        return None, is_eos

    def _guide_ends(self, guide: Guide, token_id: int) -> bool:
        try:
            ends = guide.accept(token_id)
            if guide.idle:
                self.guide = None
        except Exception as error:
            raise grammar_failed(error) from error
        return ends

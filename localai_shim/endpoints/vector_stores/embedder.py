"""Vectors of queries and chunks, from the model that the client names for them."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...threads.deadline import check, left
from ...threads.system import SimpleQueue, make_queue, sleep
from ...types import EmbeddingRequest, EngineLike, Event, Failure, QueueFullError, Ticket
from ..embeddings.create import encode_texts, fitting, named_prompt, prompt_tokens
from ..served import ServedModel
from .chunks import Span, ends_of, spans, token_ends_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

LOOK_SECONDS = 0.2  # between two looks at whether vectors are still wanted
DEFERRED = 1_000_000
"""Priority of chunks: requests of callers, and queries, are more urgent."""
_QUERY, _DOCUMENT = ("query",), ("document", "passage")
_MOST_TOKENS = 8192  # of a chunk, for models without a limit: more than a chunk has


Open = Callable[[Callable[[], object]], "Opened"]
"""Waits for the model that makes vectors; calls its argument meanwhile, which may raise."""


class Opened(NamedTuple):
    """The model that makes vectors."""

    engine: EngineLike
    served: ServedModel

    @property
    def name(self) -> str:
        """Name for the vectors of this model: those of others are not comparable with them."""
        assert self.served.embedding is not None
        return f"{self.served.name}, {self.served.embedding.dimensions} dimensions"

    def queries(self, texts: Sequence[str]) -> Vectors:
        """A vector for each query; a query that is too long is cut.

        Raises:
            Overdue: the caller no longer waits.
            EngineError: the engine takes no request.
        """
        return self._embed(texts, self._prompt(_QUERY), 0, check)

    def chunks(self, texts: Sequence[str], wanted: Callable[[], object]) -> Vectors:
        """A vector for each chunk.

        Args:
            wanted: called while the engine works; may raise, which cancels the work.

        Raises:
            EngineError: the engine has failed, or was closed.
        """
        while True:
            try:
                return self._embed(texts, self._prompt(_DOCUMENT), DEFERRED, wanted)
            except QueueFullError:
                wanted()
                sleep(LOOK_SECONDS)

    def spans(self, text: str, size: int, overlap: int, wanted: Callable[[], object]) -> Iterator[Span]:
        """Chunks of a text, of at most `size` tokens, and of at most as many as the model reads."""
        embedding, tokenizer = self.served.embedding, self.served.tokenizer
        assert embedding is not None
        most = embedding.max_tokens or self.served.context_length or _MOST_TOKENS
        most -= len(tokenizer.encode(self._prompt(_DOCUMENT) or " ")) + 1  # what is around the text
        size = max(1, min(size, most))
        token_ends = token_ends_of(tokenizer.model.tokenizer, lambda word: len(tokenizer.encode_bare(word)))
        ends = ends_of(text, token_ends, wanted)
        return spans(ends, len(text), size, min(overlap, size // 2))

    def _prompt(self, names: Sequence[str]) -> str:
        """The first of the model's prompts with one of these names, or its default one."""
        embedding = self.served.embedding
        assert embedding is not None
        return named_prompt(embedding, next((name for name in names if name in embedding.prompts), None))

    def _embed(self, texts: Sequence[str], before: str, priority: int, wanted: Callable[[], object]) -> Vectors:
        embedding = self.served.embedding
        assert embedding is not None
        named = {str(i): text for i, text in enumerate(texts)}
        ids = encode_texts(named, before, self.served)
        tokens = [fitting(ids[path], path, text, self.served, cut=True) for path, text in named.items()]
        skip = 0 if embedding.pools_prompt or not before else prompt_tokens(before, self.served)
        request = EmbeddingRequest(tokens, priority=priority, skip=skip)
        _run(self.engine, request, wanted)
        assert request.vectors is not None
        return request.vectors


class _Sink:
    """Takes the one event of a request for vectors."""

    waker = None

    def __init__(self) -> None:
        self.events: SimpleQueue[Event] = make_queue()

    def put(self, index: int, event: Event) -> None:
        self.events.put(event)


def _run(engine: EngineLike, request: EmbeddingRequest, wanted: Callable[[], object]) -> None:
    sink, ticket = _Sink(), Ticket()
    wanted()
    try:
        engine.submit([request], sink, ticket)
        while True:
            seconds = left()
            try:
                event = sink.events.get(timeout=LOOK_SECONDS if seconds is None else min(LOOK_SECONDS, seconds))
                break
            except queue.Empty:
                wanted()
                engine.check_process()
    except BaseException:
        engine.cancel(ticket)
        raise
    if isinstance(event, Failure):
        raise event.error

"""What every endpoint that runs a model makes of a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openai import BaseModel

from ..types import EmbeddingRequest, GenerationRequest
from .assembler import Assembler

if TYPE_CHECKING:
    from .responses.background import Run

AnyAssembler = Assembler[BaseModel]


@dataclass(slots=True)
class Prepared:
    """A validated request: the rows to run, and what makes an answer of their tokens."""

    assembler: AnyAssembler
    requests: Sequence[GenerationRequest] = ()
    stream: bool = False
    run: Run | None = None
    """The response that goes on without its caller; None: the caller takes the tokens."""
    embedding: EmbeddingRequest | None = None
    """What is embedded; then there are no rows."""

    @property
    def work(self) -> Sequence[GenerationRequest] | EmbeddingRequest:
        """What the engine is asked for."""
        return self.requests if self.embedding is None else self.embedding

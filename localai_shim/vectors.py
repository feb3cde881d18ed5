"""Settings of models that make vectors of texts, or score documents by their relevance to a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Embedding:
    """Settings of a model for embedding texts."""

    dimensions: int
    """Numbers in a vector."""
    max_tokens: int | None = None
    """Most tokens of a text; None: it has no limit."""
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts that are put before texts, by name: `query`, `document`, ..."""
    default_prompt: str | None = None
    """The name of the prompt that is put before texts where the request names none."""
    pools_prompt: bool = True
    """The prompt's tokens are pooled with the text's."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Documents that are to be scored by their relevance to a query."""

    query: str
    documents: Sequence[str]
    instruction: str | None = None
    """Criterion by which a document is relevant; None: the model's own."""
    most: int | None = None
    """Documents are cut so that a pair has no more tokens, where the query leaves that many; None: they are not."""
    most_each: int | None = None
    """Most tokens of a document itself, to which it is cut; None: it is not cut."""


@dataclass(frozen=True, slots=True)
class Reranking:
    """Settings of a model for scoring documents."""

    encode: Callable[[Ranking], Sequence[Sequence[int]]]
    """Token ids of the query with each document; may be called on any thread."""
    max_tokens: int | None = None
    """Most tokens of a query and a document together; None: it has no limit."""
    takes_instruction: bool = False

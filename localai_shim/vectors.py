"""How a model makes vectors of texts, and scores documents by their relevance to a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Embedding:
    """How a model embeds texts."""

    dimensions: int
    """Numbers in a vector."""
    max_tokens: int | None = None
    """Most tokens of a text; None: it has no limit."""
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    """What is put before texts, by name: `query`, `document`, ..."""
    default_prompt: str | None = None
    """The name of the prompt that is put before texts where the request names none."""
    pools_prompt: bool = True
    """The prompt's tokens are pooled with the text's."""


class EncodePairs(Protocol):
    """Makes a reranker's texts; may be called on any thread."""

    def __call__(
        self,
        query: str,
        documents: Sequence[str],
        instruction: str | None,
        most: int | None,
        most_each: int | None = None,
    ) -> Sequence[Sequence[int]]:
        """Token ids of the query with each document.

        Args:
            instruction: what makes a document relevant; None: the model's own.
            most: documents are cut so that a pair has no more tokens, where the query leaves that many.
            most_each: documents are cut to so many tokens of their own; None: they are not.
        """
        ...


@dataclass(frozen=True, slots=True)
class Reranking:
    """How a model scores documents."""

    encode: EncodePairs
    max_tokens: int | None = None
    """Most tokens of a query and a document together; None: it has no limit."""
    takes_instruction: bool = False

"""Reranking through a client of the SDK, which has no resource for it: `POST /rerank` in Cohere's and Jina's shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

from openai import BaseModel

Posted = TypeVar("Posted", covariant=True)
Document = str | Mapping[str, object]
"""A text, or an object that has it as its `text`, or in the fields that `rank_fields` names."""


class RerankResult(BaseModel):
    """Result of one document."""

    index: int
    """Its place among the documents that were sent."""
    relevance_score: float
    """From 0 to 1; of models that embed the cosine, from -1 to 1."""
    document: dict[str, Any] | None = None
    """With its `text`; None where it is not to be returned."""


class RerankUsage(BaseModel):
    """Tokens of the documents, and of the query once for each."""

    prompt_tokens: int = 0
    total_tokens: int = 0


class RerankResponse(BaseModel):
    """Documents by their relevance, the most relevant first."""

    results: list[RerankResult]
    id: str | None = None
    object: Literal["list"] | None = None
    model: str | None = None
    usage: RerankUsage | None = None
    meta: dict[str, Any] | None = None
    """Cohere's form of the usage."""


class Posts(Protocol[Posted]):
    """A client of the SDK: `openai.OpenAI`, or `openai.AsyncOpenAI`, whose answers are awaited."""

    def post(self, path: str, /, *, cast_to: type[RerankResponse], body: object) -> Posted: ...


def rerank(
    client: Posts[Posted],
    query: str,
    documents: Sequence[Document],
    *,
    model: str | None = None,
    top_n: int | None = None,
    return_documents: bool | None = None,
    instruction: str | None = None,
    truncate: bool = False,
    max_tokens_per_doc: int | None = None,
    rank_fields: Sequence[str] | None = None,
) -> Posted:
    """Order documents by their relevance to a query: `rerank(client, ...)`, or `await rerank(async_client, ...)`.

    Args:
        client: Local client, or a client whose server has `/rerank`. `with_options` sets timeout and retries.
        query: Text to search for.
        documents: Texts, or objects with a `text`.
        model: Model name. Defaults to the client's model.
        top_n: Maximum number of results. Defaults to all documents.
        return_documents: Include the documents in the results. Local clients do by default.
        instruction: Definition of relevance, for models that read one (Qwen3-Reranker).
        truncate: Cut documents that are too long, instead of failing.
        max_tokens_per_doc: Maximum number of tokens per document; longer ones are cut. 0 is no limit.
        rank_fields: Fields to read from documents that are objects, in this order. Defaults to `text`.

    Raises:
        openai.BadRequestError: The model neither reranks nor embeds, an argument is invalid, or a document is too long.

    Example:
        >>> from localai_shim import rerank
        >>> from localai_shim.testing import scripted
        >>> with scripted() as client:  # or LocalOpenAI("Qwen/Qwen3-Reranker-0.6B")
        ...     found = rerank(client, "rain", ["The sun shone.", "Some rain fell."])
        >>> found.results[0].document
        {'text': 'Some rain fell.'}
    """
    given = {
        "model": model,
        "query": query,
        "documents": list(documents),
        "top_n": top_n,
        "return_documents": return_documents,
        "instruction": instruction,
        "max_tokens_per_doc": max_tokens_per_doc,
        "rank_fields": rank_fields and list(rank_fields),
        "truncate": truncate or None,
    }
    body = {name: value for name, value in given.items() if value is not None}
    return client.post("/rerank", cast_to=RerankResponse, body=body)

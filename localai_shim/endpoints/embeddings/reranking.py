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
        client: a local one, or one whose server has `/rerank`; `with_options` sets its timeout and retries.
        query: what is looked for.
        documents: texts, or objects with a `text`.
        model: its name; None: the client's model.
        top_n: how many results there are at most; None: one for each document.
        return_documents: results have the documents; None: as the server does, and local clients do.
        instruction: what makes a document relevant, for models that read one (Qwen3-Reranker).
        truncate: cut documents that are too long, instead of failing.
        max_tokens_per_doc: cut documents to so many tokens; 0 is no limit.
        rank_fields: the fields that are read of documents that are objects, in this order; None: their `text`.

    Raises:
        openai.BadRequestError: the model neither reranks nor embeds, an argument is wrong, or a document is too long.

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

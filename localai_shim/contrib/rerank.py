"""POST /rerank, as Cohere, Jina and vLLM have it; OpenAI has none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..endpoints.embeddings.create import encode_texts, fitting, named_prompt, prompt_tokens
from ..endpoints.fields import Fields, as_array
from ..endpoints.request_fields import new_id, read_priority
from ..endpoints.served import ServedModel
from ..endpoints.turn import Assembler, Turn
from ..errors import BadRequest
from ..prompt.messages import encodable
from ..types import EmbeddingRequest, Json, RankingRequest, Token
from ..vectors import Ranking
from .reranking import RerankResponse, RerankResult, RerankUsage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..state.store import Store

MAX_DOCUMENTS = 2048  # Jina's
_TEXT = ("text",)

Document = Json


def prepare(body: Mapping[str, object], model: ServedModel, store: Callable[[], Store]) -> Turn:
    """Validate a request body and tokenise its documents, each with the query, or by itself for models that embed.

    Raises:
        BadRequest: with the field, its value and what to do.
    """
    fields = Fields(body)
    fields.string("model")
    fields.string("user")
    query = _read_document(fields.require("query"), "query")[1]
    given = _read_documents(fields.require("documents"), _read_rank_fields(fields))
    documents, texts = zip(*given, strict=True)
    top_n = fields.integer("top_n", 0) or None  # vLLM's 0 is all of them
    returned = None if fields.boolean("return_documents") is False else documents
    instruction = _read_instruction(fields, model)
    cut = fields.boolean("truncate") or False
    most_each = fields.integer("max_tokens_per_doc", 0) or None  # as in vLLM 0 is no limit
    priority = read_priority(fields)
    fields.finish()
    make = _make_pairs if "rerank" in model.tasks else _make_texts
    request = make(Ranking(query, texts, instruction, most_each=most_each), model, priority, cut=cut)
    return Turn(RerankAssembler(model.name, request, top_n, returned), [request])


def _make_pairs(asked: Ranking, model: ServedModel, priority: int, *, cut: bool) -> EmbeddingRequest:
    """The query with each document."""
    reranking = model.reranking
    assert reranking is not None
    most = reranking.max_tokens or model.context_length
    pairs = reranking.encode(replace(asked, most=most if cut else None))
    _check_lengths(pairs, most, cut=cut)
    return RankingRequest(pairs, priority=priority, adapter=model.adapter)


def _make_texts(asked: Ranking, model: ServedModel, priority: int, *, cut: bool) -> EmbeddingRequest:
    """The query, and the documents, as `embeddings` reads texts where nothing is said of prompts."""
    embedding = model.embedding
    assert embedding is not None
    before = named_prompt(embedding)
    texts = {"query": asked.query, **{f"documents.{i}": text for i, text in enumerate(asked.documents)}}
    ids = encode_texts(texts, before, model)
    start = prompt_tokens(before, model) if before else 0
    if asked.most_each is not None:
        special, most = model.tokenizer.special_ids, asked.most_each
        ids |= {path: _shortened(ids[path], start, most, special) for path in texts if path != "query"}
    tokens = [fitting(ids[path], path, text, model, cut=cut) for path, text in texts.items()]
    return EmbeddingRequest(
        tokens, priority=priority, skip=0 if embedding.pools_prompt else start, adapter=model.adapter
    )


def _shortened(ids: list[int], start: int, most: int, special: Collection[int]) -> list[int]:
    """So many tokens of a text, with the special tokens, and the prompt, around it."""
    end = len(ids)
    while start < end and ids[start] in special:
        start += 1
    while end > start and ids[end - 1] in special:
        end -= 1
    return [*ids[: min(start + most, end)], *ids[end:]]


def _read_rank_fields(fields: Fields) -> Sequence[str]:
    """Cohere's `rank_fields`: the names of what is read of documents that are objects, in this order."""
    given = fields.get("rank_fields")
    if given is None:
        return _TEXT
    names: list[str] = []
    for i, each in enumerate(as_array("rank_fields", given, "an array of strings", empty=False)):
        if not isinstance(each, str):
            raise BadRequest.wrong_type(f"rank_fields.{i}", "a string", each)
        names.append(each)
    return names


def _read_documents(given: object, ranked: Sequence[str]) -> list[tuple[Document, str]]:
    documents = as_array("documents", given, "an array", empty=False, most=MAX_DOCUMENTS)
    return [_read_document(each, f"documents.{i}", ranked) for i, each in enumerate(documents)]


def _read_document(given: object, path: str, ranked: Sequence[str] = _TEXT) -> tuple[Document, str]:
    """A string, or an object with some of these fields -> a copy of the object, and its text: a line for each field."""
    if isinstance(given, str):
        return {"text": given}, _checked(given, path)
    if not isinstance(given, Mapping):
        raise BadRequest.wrong_type(path, "a string or an object with a 'text'", given)
    found = {f"{path}.{name}": given[name] for name in ranked if given.get(name) is not None}
    if not found:
        path = f"{path}.{ranked[0]}"
        raise BadRequest(
            f"Missing required parameter: '{path}'. Rerankers read texts, and no images or videos. 'rank_fields' "
            "names the fields to read instead of 'text'.",
            param=path,
            code="missing_required_parameter",
        )
    for name, text in found.items():
        if not isinstance(text, str):
            raise BadRequest.wrong_type(name, "a string", text)
    return dict(given), _checked("\n".join(found.values()), next(iter(found)))


def _checked(text: str, path: str) -> str:
    if not text.strip():
        raise BadRequest.empty_string(path)
    return encodable(text, path)


def _read_instruction(fields: Fields, model: ServedModel) -> str | None:
    instruction = fields.string("instruction")
    if instruction is None:
        return None
    if "rerank" not in model.tasks or model.reranking is None or not model.reranking.takes_instruction:
        raise BadRequest.unsupported("instruction", f"The model '{model.name}' reads no instruction: leave it out.")
    if not instruction.strip():
        raise BadRequest.empty_string("instruction")
    return instruction


def _check_lengths(pairs: Sequence[Sequence[int]], most: int | None, *, cut: bool) -> None:
    """Refuse pairs without tokens, and too long ones, also after documents were cut: the query alone is, then."""
    for i, pair in enumerate(pairs):
        if not pair:
            raise BadRequest.refused(f"documents.{i}", "query and document encode to zero tokens")
        if most is not None and len(pair) > most:
            param = "query" if cut else f"documents.{i}"
            how = "" if cut else ', or have documents cut: "truncate": true'
            raise BadRequest.too_many_tokens(
                param,
                f"This model reads a query and a document of at most {most} tokens together. However, '{param}' "
                f"makes them {len(pair)}. Please reduce its length{how}.",
            )


class RerankAssembler(Assembler[RerankResponse]):
    """Makes the answer of a request's scores.

    Args:
        model: what the answer says.
        request: has the scores once its token has come.
        top_n: most results; None: one for each document.
        documents: what results return; None: they do not.
    """

    def __init__(
        self, model: str, request: EmbeddingRequest, top_n: int | None, documents: Sequence[Document] | None
    ) -> None:
        super().__init__()
        self._model, self._request, self._top_n, self._documents = model, request, top_n, documents
        self._id = new_id("rerank-")
        self._scores: list[float] | None = None

    def collect(self, index: int, token: Token) -> None:
        self.finished = True

    @property
    def keeps(self) -> bool:
        return self._scores is None and self._request.task != "rerank"  # the cosines take too long for an event loop

    def save(self) -> None:
        """Compute the scores."""
        vectors = self._request.vectors
        assert vectors is not None
        ranked = self._request.task == "rerank"
        self._scores = vectors[:, 0].tolist() if ranked else cosines(vectors[0], vectors[1:])

    def result(self) -> RerankResponse:
        if self._scores is None:
            self.save()
        scores = self._scores
        assert scores is not None
        order = sorted(range(len(scores)), key=lambda i: -scores[i])[: self._top_n]
        results = [RerankResult(index=i, relevance_score=scores[i]) for i in order]
        if self._documents is not None:
            for each in results:
                each.document = self._documents[each.index]
        used = sum(map(len, self._request.texts))
        if self._request.task != "rerank":
            used += len(self._request.texts[0]) * (len(scores) - 1)  # as in vLLM the query counts with each document
        return RerankResponse(
            id=self._id,
            object="list",
            model=self._model,
            results=results,
            usage=RerankUsage(prompt_tokens=used, total_tokens=used),
            meta={"tokens": {"input_tokens": used, "output_tokens": 0}},
        )


def cosines(query: npt.NDArray[np.float32], documents: npt.NDArray[np.float32]) -> list[float]:
    """The cosine similarity of each document's vector to the query's."""
    import numpy as np  # not before it is needed: the other endpoints do without

    lengths = np.linalg.norm(documents, axis=1) * np.linalg.norm(query)
    similar: list[float] = (documents @ query / np.maximum(lengths, np.finfo(np.float32).tiny)).tolist()
    return similar

"""POST /rerank, as Cohere, Jina and vLLM have it; OpenAI has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import BadRequest
from ..prompt.messages import encodable
from ..reranking import RerankResponse, RerankResult, RerankUsage
from ..types import EmbeddingRequest, Json, Token
from .assembler import Assembler
from .fields import Fields
from .prepared import Prepared
from .request_fields import ServedModel, new_id, read_priority

if TYPE_CHECKING:
    from ..state.store import Store

MAX_DOCUMENTS = 2048  # Jina's
_INT64 = 2**63

Document = Json


def prepare(body: Mapping[str, object], model: ServedModel, store: Callable[[], Store]) -> Prepared:
    """Validate a request body and tokenise its documents, each with the query.

    Raises:
        BadRequest: with the field, its value and what to do.
    """
    reranking, fields = model.reranking, Fields(body)
    assert reranking is not None
    fields.string("model")
    fields.string("user")
    query = _read_document(fields.require("query"), "query")["text"]
    documents = _read_documents(fields.require("documents"))
    top_n = fields.integer("top_n", 1, _INT64 - 1)
    returned = documents if fields.boolean("return_documents") else None
    instruction = _read_instruction(fields, model)
    cut = fields.boolean("truncate") or False
    priority = read_priority(fields)
    fields.finish()
    most = reranking.max_tokens or model.context_length
    pairs = reranking.encode(query, [each["text"] for each in documents], instruction, most if cut else None)
    if most is not None:
        _check_lengths(pairs, most, cut=cut)
    request = EmbeddingRequest(pairs, priority=priority, ranks=True)
    return Prepared(RerankAssembler(model.name, request, top_n, returned), embedding=request)


def _read_documents(given: object) -> list[Document]:
    if not isinstance(given, list | tuple):
        raise BadRequest.wrong_type("documents", "an array", given)
    if not given:
        raise BadRequest.empty_array("documents")
    if len(given) > MAX_DOCUMENTS:
        raise BadRequest.long_array("documents", MAX_DOCUMENTS, len(given))
    return [_read_document(each, f"documents.{i}") for i, each in enumerate(given)]


def _read_document(given: object, path: str) -> Document:
    """A string, or an object with a `text` -> a copy of the object."""
    made: Document = {"text": given} if isinstance(given, str) else {}
    if isinstance(given, Mapping):
        made, path = dict(given), f"{path}.text"
        if made.get("text") is None:
            raise BadRequest(
                f"Missing required parameter: '{path}'. Rerankers read texts, and no images or videos.",
                param=path,
                code="missing_required_parameter",
            )
    text = made.get("text", given)
    if not isinstance(text, str):
        raise BadRequest.wrong_type(path, "a string" if made else "a string or an object with a 'text'", text)
    if not text.strip():
        raise BadRequest.empty_string(path)
    encodable(text, path)
    return made


def _read_instruction(fields: Fields, model: ServedModel) -> str | None:
    instruction = fields.string("instruction")
    if instruction is None:
        return None
    if model.reranking is None or not model.reranking.takes_instruction:
        raise BadRequest.unsupported("instruction", f"The model '{model.name}' reads no instruction: leave it out.")
    if not instruction.strip():
        raise BadRequest.empty_string("instruction")
    return instruction


def _check_lengths(pairs: Sequence[Sequence[int]], most: int, *, cut: bool) -> None:
    """Refuse pairs that are too long, also after documents were cut: the query alone is, then."""
    for i, pair in enumerate(pairs):
        if len(pair) > most:
            param = "query" if cut else f"documents.{i}"
            how = "" if cut else ', or have documents cut: "truncate": true'
            raise BadRequest(
                f"This model reads a query and a document of at most {most} tokens together. However, '{param}' "
                f"makes them {len(pair)}. Please reduce its length{how}.",
                param=param,
                code="context_length_exceeded",
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
        self._id = new_id("rerank")

    def collect(self, index: int, token: Token) -> None:
        self.finished = True

    def result(self) -> RerankResponse:
        assert self._request.vectors is not None
        scores: list[float] = self._request.vectors[:, 0].tolist()
        order = sorted(range(len(scores)), key=lambda i: -scores[i])[: self._top_n]
        results = [RerankResult(index=i, relevance_score=scores[i]) for i in order]
        if self._documents is not None:
            for each in results:
                each.document = self._documents[each.index]
        used = sum(map(len, self._request.texts))
        return RerankResponse(
            id=self._id,
            object="list",
            model=self._model,
            results=results,
            usage=RerankUsage(prompt_tokens=used, total_tokens=used),
            meta={"tokens": {"input_tokens": used, "output_tokens": 0}},
        )

"""POST /embeddings (https://platform.openai.com/docs/api-reference/embeddings)."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from openai.types import CreateEmbeddingResponse
from openai.types import Embedding as Vector
from openai.types.create_embedding_response import Usage

from ...errors import BadRequest, listed
from ...prompt.messages import encodable
from ...state.store import Store
from ...types import EmbeddingRequest, Token
from ...vectors import Embedding
from ..fields import Fields, as_array
from ..request_fields import read_priority
from ..served import ServedModel
from ..token_fields import token_id
from ..turn import Assembler, Turn

MAX_TEXTS = 2048  # OpenAI's
_EXPECTED = "a string, an array of strings, an array of integers, or an array of integer arrays"

TextOrTokens = str | Sequence[object]
Format = Literal["float", "base64"]


def prepare(body: Mapping[str, object], model: ServedModel, store: Callable[[], Store]) -> Turn:
    """Validate a request body and tokenise its texts.

    Raises:
        BadRequest: with the field, its value and what to do.
    """
    embedding, fields = model.embedding, Fields(body)
    assert embedding is not None
    name = fields.string("model")
    fields.string("user")
    texts = as_texts(_read_texts(fields.require("input")), name)
    before = _read_prompt(fields, embedding, texts)
    dimensions = _read_dimensions(fields, embedding)
    format: Format = "base64" if fields.choice("encoding_format", ("float", "base64")) == "base64" else "float"
    cut = fields.boolean("truncate") or False
    priority = read_priority(fields)
    fields.finish()
    ids = encode_texts(texts, before, model)
    tokens = [fitting(ids[path], path, texts[path], model, cut=cut) for path in texts]
    skip = 0 if embedding.pools_prompt or not before else prompt_tokens(before, model)
    request = EmbeddingRequest(tokens, priority=priority, skip=skip, adapter=model.adapter)
    return Turn(EmbeddingAssembler(model.name, request, dimensions, format), [request])


def _read_texts(given: object) -> dict[str, TextOrTokens]:
    """A string, strings, token ids, or lists of token ids -> path of each text -> the text."""
    if isinstance(given, str):
        return {"input": _text(given, "input")}
    items = as_array("input", given, _EXPECTED, empty=False)
    if all(isinstance(i, int) and not isinstance(i, bool) for i in items):
        return {"input": items}
    return {f"input.{i}": _text(each, f"input.{i}") for i, each in enumerate(as_array("input", items, most=MAX_TEXTS))}


def _text(given: object, path: str) -> TextOrTokens:
    if isinstance(given, str):
        if not given:
            raise BadRequest.empty_string(path)
        return encodable(given, path)
    return as_array(path, given, "a string or an array of integers", empty=False)


def _read_prompt(fields: Fields, embedding: Embedding, texts: Mapping[str, TextOrTokens]) -> str:
    """Text to put before each text: sentence-transformers' `prompt` or `prompt_name`, else the model's default."""
    prompt, name = fields.string("prompt"), fields.string("prompt_name")
    given = "prompt" if prompt is not None else "prompt_name" if name is not None else None
    if prompt is not None and name is not None:
        raise BadRequest.invalid("prompt_name", "Pass one of 'prompt' and 'prompt_name'.")
    ids = next((path for path, text in texts.items() if not isinstance(text, str)), None)
    if given is not None and ids is not None:
        raise BadRequest.invalid(given, f"'{given}' cannot be combined with token-id input ('{ids}'); pass text.")
    if name is not None and name not in embedding.prompts:
        known = f"Its prompts are {listed(sorted(embedding.prompts))}" if embedding.prompts else "It has none"
        raise BadRequest.invalid(
            "prompt_name", f"Invalid value: '{name}' is not a prompt of this model. {known}; 'prompt' takes any text."
        )
    return named_prompt(embedding, name) if prompt is None else prompt


def named_prompt(embedding: Embedding, name: str | None = None) -> str:
    """A prompt of the model's, by default the one that it puts before texts where nothing is said."""
    return embedding.prompts.get(name or embedding.default_prompt or "", "")


def _read_dimensions(fields: Fields, embedding: Embedding) -> int | None:
    dimensions = fields.integer("dimensions", 1)
    if dimensions is not None and dimensions > embedding.dimensions:
        why = f"{dimensions}. This model's vectors have {embedding.dimensions}, and can be cut to fewer"
        raise BadRequest.refused("dimensions", why, "integer_above_max_value")
    return dimensions


def encode_texts(texts: Mapping[str, TextOrTokens], before: str, model: ServedModel) -> dict[str, list[int]]:
    """Path -> token ids: the given ones, or those of a text with the tokenizer's special tokens around it."""
    tokenizer = model.tokenizer
    strings = {path: before + text for path, text in texts.items() if isinstance(text, str)}
    ids = dict(zip(strings, tokenizer.encode_all(list(strings.values())), strict=True))
    for path, text in texts.items():
        if not isinstance(text, str):
            ids[path] = [token_id(value, f"{path}[{i}]", tokenizer) for i, value in enumerate(text)]
    return ids


def fitting(ids: list[int], path: str, text: TextOrTokens, model: ServedModel, *, cut: bool) -> list[int]:
    """Token ids that the model takes: all of a text's, or as many as it may have."""
    assert model.embedding is not None
    if not ids:
        raise BadRequest.refused(path, "the text encodes to zero tokens")
    most = model.embedding.max_tokens or model.context_length
    if most is None or len(ids) <= most:
        return ids
    if not cut:
        text = f"This model embeds texts of at most {most} tokens. However, '{path}' has {len(ids)}. Please reduce its "
        raise BadRequest.too_many_tokens(path, text + 'length, or have it cut: extra_body={"truncate": True}.')
    end = len(ids)
    while end and ids[end - 1] in model.tokenizer.special_ids and len(ids) - end < most:
        end -= 1
    return [*ids[: most - (len(ids) - end)], *ids[end:]]  # what ends a text stays: some models look there


def prompt_tokens(prompt: str, model: ServedModel) -> int:
    """Number of tokens that a prompt is at the beginning of a text, as sentence-transformers counts them."""
    ids = model.tokenizer.encode(prompt)
    return len(ids) - (ids[-1] in model.tokenizer.special_ids)


class EmbeddingAssembler(Assembler[CreateEmbeddingResponse]):
    """Makes the answer of a request's vectors.

    Args:
        model: what the answer says.
        request: has the vectors once its token has come.
        dimensions: of the vectors in the answer; None: as many as they have.
        format: a list of numbers, or their bytes (float32, little-endian) in base64.
    """

    keeps = True  # `save` makes the answer, which takes too long for an event loop

    def __init__(self, model: str, request: EmbeddingRequest, dimensions: int | None, format: Format) -> None:
        super().__init__()
        self._model, self._request, self._dimensions, self._format = model, request, dimensions, format

    def collect(self, index: int, token: Token) -> None:
        self.finished = True

    def save(self) -> None:
        """Make the answer."""
        import numpy as np  # not before it is needed: the other endpoints do without

        vectors = self._request.vectors
        assert vectors is not None
        if self._dimensions is not None and self._dimensions < vectors.shape[1]:
            vectors = vectors[:, : self._dimensions]
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
        data = [Vector(embedding=[], index=i, object="embedding") for i in range(len(vectors))]
        for made, vector in zip(data, vectors, strict=True):
            if self._format == "float" or self.decoded:
                made.embedding = vector.tolist()
            else:
                made.embedding = base64.b64encode(vector.astype("<f4").tobytes()).decode()  # type: ignore[assignment]
        used = sum(map(len, self._request.texts))
        usage = Usage(prompt_tokens=used, total_tokens=used)
        self._made = CreateEmbeddingResponse(data=data, model=self._model, object="list", usage=usage)

    def result(self) -> CreateEmbeddingResponse:
        """The answer, which `save` has made."""
        return self._made


_OPENAI_MODELS = "text-embedding-"
_ENCODING = "cl100k_base"  # of all of them


def as_texts(given: Mapping[str, TextOrTokens], model: str | None) -> dict[str, TextOrTokens]:
    """Texts by their paths; token ids of OpenAI's tokenizer are decoded.

    Ids are of the model that is asked for by name: of OpenAI's, or else of the local one. Who sends OpenAI's has loaded
    tiktoken into this process; nothing is loaded here, as that may take the network.

    Raises:
        BadRequest: ids of OpenAI's that cannot be read here, or that do not exist.
    """
    if model is None or not model.startswith(_OPENAI_MODELS) or all(isinstance(text, str) for text in given.values()):
        return dict(given)
    encoding: object = getattr(sys.modules.get("tiktoken.registry"), "ENCODINGS", {}).get(_ENCODING)
    decode = getattr(encoding, "decode", None)
    return {path: text if isinstance(text, str) else _decode(text, path, model, decode) for path, text in given.items()}


def _decode(ids: Sequence[object], path: str, model: str, decode: Callable[[list[object]], str] | None) -> str:
    for i, token in enumerate(ids):
        if isinstance(token, bool) or not isinstance(token, int):
            raise BadRequest.wrong_type(f"{path}[{i}]", "an integer", token)
    if decode is None:
        raise BadRequest.refused(
            path,
            f"the token ids of '{model}' are those of OpenAI's tokenizer, {_ENCODING}, which is not loaded in this "
            "process. Send the text (LangChain: check_embedding_ctx_length=False), or ids of the local model's own "
            "tokenizer under its own name",
        )
    try:
        return decode(list(ids))
    except (KeyError, OverflowError, ValueError) as error:
        raise BadRequest.refused(path, f"these are not token ids of {_ENCODING}: {error}") from None

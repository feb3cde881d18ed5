"""Token ids of OpenAI's tokenizer, which LangChain sends instead of texts to embed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import BadRequest

_OPENAI_MODELS = "text-embedding-"
_ENCODING = "cl100k_base"  # of all of them


def as_texts(given: Mapping[str, str | Sequence[int]], model: str | None) -> dict[str, str | Sequence[int]]:
    """Texts by their paths; token ids of OpenAI's tokenizer are decoded.

    Ids are of the model that is asked for by name: of OpenAI's, or else of the local one. Who sends OpenAI's has loaded
    tiktoken into this process; nothing is loaded here, as that may take the network.

    Raises:
        BadRequest: ids of OpenAI's that cannot be read here, or that do not exist.
    """
    if model is None or not model.startswith(_OPENAI_MODELS) or all(isinstance(text, str) for text in given.values()):
        return dict(given)
    encoding: object = getattr(sys.modules.get("tiktoken.registry"), "ENCODINGS", {}).get(_ENCODING)
    return {
        path: text if isinstance(text, str) else _decode(text, path, model, encoding) for path, text in given.items()
    }


def _decode(ids: Sequence[object], path: str, model: str, encoding: Any) -> str:
    for i, token in enumerate(ids):
        if isinstance(token, bool) or not isinstance(token, int):
            raise BadRequest.wrong_type(f"{path}[{i}]", "an integer", token)
    if encoding is None:
        raise BadRequest.refused(
            path,
            f"the token ids of '{model}' are those of OpenAI's tokenizer, {_ENCODING}, which is not loaded in this "
            "process. Send the text (LangChain: check_embedding_ctx_length=False), or ids of the local model's own "
            "tokenizer under its own name",
        )
    try:
        return str(encoding.decode(list(ids)))
    except (KeyError, OverflowError, ValueError) as error:
        raise BadRequest.refused(path, f"these are not token ids of {_ENCODING}: {error}") from None

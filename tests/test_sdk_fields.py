"""Every field of every dictionary that the SDK's types let a request hold is known: honored, accepted, or refused.

A field that a newer SDK adds deep inside a request, such as `tools[].async`, fails here as an unknown parameter.
"""

from __future__ import annotations

import collections.abc
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

import openai
import pytest
from openai.types import (
    batch_create_params,
    completion_create_params,
    embedding_create_params,
    vector_store_create_params,
    vector_store_search_params,
    vector_store_update_params,
)
from openai.types.chat import completion_create_params as chat_params
from openai.types.conversations import conversation_create_params
from openai.types.responses import input_token_count_params, response_compact_params, response_create_params
from openai.types.vector_stores import file_batch_create_params, file_create_params
from typing_extensions import is_typeddict

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine

ENDPOINTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "/chat/completions": (
        chat_params.CompletionCreateParamsBase,
        {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    ),
    "/responses": (response_create_params.ResponseCreateParamsBase, {"model": "m", "input": "Hi"}),
    "/responses/compact": (response_compact_params.ResponseCompactParams, {"model": "m", "input": "Hi"}),
    "/responses/input_tokens": (input_token_count_params.InputTokenCountParams, {"model": "m", "input": "Hi"}),
    "/completions": (completion_create_params.CompletionCreateParamsBase, {"model": "m", "prompt": "Hi"}),
    "/embeddings": (embedding_create_params.EmbeddingCreateParams, {"model": "m", "input": "Hi"}),
    "/batches": (batch_create_params.BatchCreateParams, {}),
    "/conversations": (conversation_create_params.ConversationCreateParams, {}),
    "/vector_stores": (vector_store_create_params.VectorStoreCreateParams, {}),
    "/vector_stores/vs_1": (vector_store_update_params.VectorStoreUpdateParams, {}),
    "/vector_stores/vs_1/search": (vector_store_search_params.VectorStoreSearchParams, {"query": "Hi"}),
    "/vector_stores/vs_1/files": (file_create_params.FileCreateParams, {"file_id": "file-1"}),
    "/vector_stores/vs_1/file_batches": (file_batch_create_params.FileBatchCreateParams, {}),
}
NAMES = {"arguments": "{}", "image_url": "data:image/png;base64,AAAA", "url": "data:image/png;base64,AAAA"}
Field = tuple[str, str]
"""The name of a TypedDict, and of one of its fields."""


def stripped(annotation: Any) -> Any:
    while get_origin(annotation) in (Annotated, Required, NotRequired):
        annotation = get_args(annotation)[0]
    return annotation


def alternatives(annotation: Any) -> Iterator[Any]:
    annotation = stripped(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        for each in get_args(annotation):
            yield from alternatives(each)
    elif annotation is not type(None):
        yield annotation


def item_type(annotation: Any) -> Any:
    """Type of the items of an array; None: it is none."""
    origin = get_origin(annotation)
    is_array = origin in (list, collections.abc.Iterable, collections.abc.Sequence) or "Sequence" in str(origin)
    return get_args(annotation)[0] if is_array else None


def is_required(annotation: Any) -> bool:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return get_origin(annotation) is Required


def fields_of(typed: Any) -> dict[str, Any]:
    return get_type_hints(typed, include_extras=True)


def sample(annotation: Any, name: str) -> Any:
    """A value of this type, with what is required only."""
    annotation = next(alternatives(annotation))
    if get_origin(annotation) is Literal:
        return get_args(annotation)[0]
    if is_typeddict(annotation):
        return {key: sample(value, key) for key, value in sorted(fields_of(annotation).items()) if is_required(value)}
    if (item := item_type(annotation)) is not None:
        return [sample(item, name)]
    if get_origin(annotation) is dict or annotation in (object, Any):
        return {"type": "object", "properties": {}} if name in ("parameters", "schema") else {"5": "x"}
    return {str: NAMES.get(name, "x"), bool: True, int: 1, float: 0.5}.get(annotation, "x")


def values(annotation: Any, name: str, seen: set[Field]) -> Iterator[tuple[Field, Any]]:
    """Values of this type that show each field of each dictionary in it once."""
    for each in alternatives(annotation):
        if (item := item_type(each)) is not None:
            yield from ((field, [value]) for field, value in values(item, name, seen))
        elif is_typeddict(each):
            least = sample(each, name)
            for key, inner in fields_of(each).items():
                field = each.__name__, key
                if field in seen:
                    continue
                seen.add(field)
                yield field, {**least, key: sample(inner, key)}
                for deeper, value in values(inner, key, seen):
                    yield deeper, {**least, key: value}


@pytest.mark.parametrize("path", ENDPOINTS)
def test_no_field_of_a_request_is_unknown(path: str) -> None:
    typed, least = ENDPOINTS[path]
    unknown: list[str] = []
    asked = 0
    with ScriptedEngine(lambda request, prompt, before: "Hi") as engine, LocalOpenAI(engine=engine) as client:
        seen: set[Field] = set()
        for name, annotation in fields_of(typed).items():
            bodies = [((typed.__name__, name), sample(annotation, name)), *values(annotation, name, seen)]
            for field, value in bodies:
                asked += 1
                try:
                    client.post(path, cast_to=object, body={**least, name: value})
                except (openai.BadRequestError, openai.NotFoundError) as error:
                    if error.code == "unknown_parameter":
                        unknown.append(f"{'.'.join(field)}: {error.param}")
    assert not unknown
    assert asked >= len(fields_of(typed))

"""Half of a surrogate pair is no text and cannot be sent: a 400 that names the field, before the model runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.conftest import MESSAGES, refused
from tests.endpoints.text import ask

HALF, ESCAPED = "a\ud800", "a\\ud800"
METADATA: list[tuple[dict[str, Any], str]] = [
    ({"metadata": {"topic": HALF}}, "metadata.topic"),
    ({"metadata": {HALF: "tests"}}, "metadata"),
]
SHARED: list[tuple[dict[str, Any], str]] = [
    *(({name: HALF}, name) for name in ("model", "user", "safety_identifier", "prompt_cache_key", "cache_salt")),
    ({"stop": HALF}, "stop[0]"),
    ({"stop": ["a", HALF]}, "stop[1]"),
]
CHAT: list[tuple[dict[str, Any], str]] = [
    *METADATA,
    *SHARED,
    ({"messages": [{"role": "user", "content": "Hello", "name": HALF}]}, "messages[0].name"),
    ({"messages": [{"role": "user", "content": HALF}]}, "messages[0].content"),
]
RESPONSES: list[tuple[dict[str, Any], str]] = [
    *METADATA,
    *SHARED,
    *(({name: HALF}, name) for name in ("instructions", "previous_response_id", "conversation")),
    ({"conversation": {"id": HALF}}, "conversation.id"),
    ({"reasoning": {"mode": HALF}}, "reasoning.mode"),
    ({"background_options": {"continuation_id": HALF}}, "background_options.continuation_id"),
    ({"input": [{"role": "user", "content": HALF}]}, "input[0].content"),
]


SCHEMA = {"type": "object", "properties": {HALF: {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
# In a key: what is wrong with it is said of the field that has it, with the character escaped.
KEYS: list[tuple[dict[str, Any], str, str]] = [
    ({HALF: 1}, ESCAPED, "unknown_parameter"),
    ({"logit_bias": {HALF: 1}}, "logit_bias", "invalid_value"),
    ({"chat_template_kwargs": {HALF: 1}}, f"chat_template_kwargs.{ESCAPED}", "unknown_parameter"),
    ({"response_format": {HALF: 1, "type": "text"}}, f"response_format.{ESCAPED}", "unknown_parameter"),
    ({"structured_outputs": {HALF: 1, "choice": ["a"]}}, f"structured_outputs.{ESCAPED}", "unknown_parameter"),
    ({"tools": [{**TOOL, HALF: 1}]}, f"tools[0].{ESCAPED}", "unknown_parameter"),
]
SCHEMAS: list[tuple[dict[str, Any], str]] = [
    ({"tools": [TOOL]}, "tools[0].function.parameters"),
    ({"response_format": FORMAT}, "response_format.json_schema.schema"),
    ({"guided_json": SCHEMA}, "guided_json"),
]


@pytest.mark.parametrize(("field", "param", "code"), KEYS, ids=ascii)
def test_a_key_with_one_is_named_with_the_character_escaped(
    client: LocalOpenAI, field: dict[str, Any], param: str, code: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="m", messages=MESSAGES, extra_body=field)
    assert caught.value.param == param
    assert caught.value.code in (code, None, "invalid_value") and ESCAPED[1:] in caught.value.message
    assert caught.value.response.json()["error"]["param"] == param


@pytest.mark.parametrize(("field", "param"), SCHEMAS, ids=ascii)
def test_a_schema_with_one_in_a_key_is_refused_by_its_field(
    client: LocalOpenAI, field: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError, match="ud800") as caught:
        client.chat.completions.create(model="m", messages=MESSAGES, extra_body=field)
    assert caught.value.param == param


@pytest.mark.parametrize("value", [HALF, {HALF: 1}, [[HALF]]], ids=ascii)
def test_a_template_variable_with_one_anywhere_is_refused_by_its_name(client: LocalOpenAI, value: object) -> None:
    with refused("chat_template_kwargs.enable_thinking", "invalid_value", "lone surrogate"):
        client.chat.completions.create(
            model="m", messages=MESSAGES, extra_body={"chat_template_kwargs": {"enable_thinking": value}}
        )


@pytest.mark.parametrize("path", ["/responses", "/completions", "/embeddings", "/rerank", "/conversations"])
def test_every_endpoint_names_an_unknown_field_with_one(client: LocalOpenAI, path: str) -> None:
    given = {"input": "a", "prompt": "a", "query": "a", "documents": ["a"], "model": "m"}
    reads = {"/responses": ["input"], "/completions": ["prompt"], "/embeddings": ["input"]}
    reads["/rerank"] = ["query", "documents"]
    body = {name: given[name] for name in [*reads.get(path, []), *(["model"] if path in reads else [])]}
    with pytest.raises(openai.BadRequestError) as caught:
        client.post(path, body={**body, HALF: 1}, cast_to=object)
    assert caught.value.param == ESCAPED


@pytest.fixture(scope="module")
def client() -> Iterator[LocalOpenAI]:
    """A model that has nothing to say: it is never asked."""
    with ScriptedEngine([]) as engine:
        yield LocalOpenAI(engine=engine)


REFUSED = {
    "chat": (CHAT, lambda client, field: ask(client, "chat", **field)),
    "responses": (RESPONSES, lambda client, field: ask(client, "responses", **field)),
    "completions": (SHARED, lambda client, field: ask(client, "completions", **field)),
    "conversations": (METADATA, lambda client, metadata: client.conversations.create(**metadata)),
}


@pytest.mark.parametrize("endpoint", REFUSED)
def test_a_field_with_one_is_refused(client: LocalOpenAI, endpoint: str, subtests: pytest.Subtests) -> None:
    fields, call = REFUSED[endpoint]
    for field, param in fields:
        with subtests.test(ascii(field)), refused(param, "invalid_value", "lone surrogate"):
            call(client, field)

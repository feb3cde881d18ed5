"""Half of a surrogate pair is no text and cannot be sent: a 400 that names the field, before the model runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.conftest import MESSAGES, refused

HALF = "a\ud800"
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


@pytest.fixture(scope="module")
def client() -> Iterator[LocalOpenAI]:
    """A model that has nothing to say: it is never asked."""
    with ScriptedEngine([]) as engine:
        yield LocalOpenAI(engine=engine)


@pytest.mark.parametrize(("field", "param"), CHAT, ids=ascii)
def test_chat_refuses_it(client: LocalOpenAI, field: dict[str, Any], param: str) -> None:
    with refused(param, "invalid_value", "lone surrogate"):
        client.chat.completions.create(model="m", messages=MESSAGES, extra_body=field)


@pytest.mark.parametrize(("field", "param"), RESPONSES, ids=ascii)
def test_responses_refuse_it(client: LocalOpenAI, field: dict[str, Any], param: str) -> None:
    with refused(param, "invalid_value", "lone surrogate"):
        client.responses.create(model="m", input="Hello", extra_body=field)


@pytest.mark.parametrize(("field", "param"), SHARED, ids=ascii)
def test_completions_refuse_it(client: LocalOpenAI, field: dict[str, Any], param: str) -> None:
    with refused(param, "invalid_value", "lone surrogate"):
        client.completions.create(model="m", prompt="Hello", extra_body=field)


@pytest.mark.parametrize(("metadata", "param"), METADATA, ids=ascii)
def test_conversations_refuse_it(client: LocalOpenAI, metadata: dict[str, Any], param: str) -> None:
    with refused(param, "invalid_value", "lone surrogate"):
        client.conversations.create(**metadata)

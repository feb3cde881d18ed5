"""Items of responses become what the same conversation of chat.completions becomes for a chat template."""

from __future__ import annotations

from typing import Any

import pytest

from localai_shim.errors import BadRequest
from localai_shim.prompt.items import item_messages
from localai_shim.prompt.messages import template_messages


def text(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


CALL: dict[str, Any] = {"type": "function_call", "call_id": "a", "name": "add", "namespace": "math", "arguments": ""}
ITEMS: list[dict[str, Any]] = [
    text("developer", "Rules."),
    text("user", "Hello"),
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
    text("assistant", "Well."),
    {**CALL, "arguments": '{"x": [1]}'},
    {"type": "custom_tool_call", "call_id": "b", "name": "shell", "input": "ls"},
    {**CALL, "call_id": "c", "arguments": '{"x": '},
    {"type": "custom_tool_call_output", "call_id": "b", "output": "files"},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "broken"}]},
    {"type": "function_call_output", "call_id": "a", "output": "3"},
    {**CALL, "call_id": "d"},
    {"type": "function_call_output", "call_id": "d", "output": "0"},
    text("assistant", "Three."),
]


def called(id: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "math__add", "arguments": arguments}}


def result(id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


CALLS = [
    called("a", '{"x": [1]}'),
    {"id": "b", "type": "custom", "custom": {"name": "shell", "input": "ls"}},
    called("c", '{"x": '),
]
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "developer", "content": "Rules."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Well.", "reasoning_content": "Hm.", "tool_calls": CALLS},
    *(result("a", "3"), result("b", "files"), result("c", "broken")),
    {"role": "assistant", "content": "", "tool_calls": [called("d", "")]},
    result("d", "0"),
    {"role": "assistant", "content": "Three."},
]


@pytest.mark.parametrize("knows_developer", [False, True])
def test_items_are_read_as_the_messages_of_a_chat(knows_developer: bool) -> None:
    made = item_messages(ITEMS, "Be brief.", lambda sealed: None, knows_developer=knows_developer)
    assert made == template_messages(CHAT, knows_developer=knows_developer)


def test_items_that_leave_nothing_to_read_are_refused() -> None:
    foreign = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAB"}
    with pytest.raises(BadRequest, match="nothing in it to answer") as caught:
        item_messages([foreign], None, lambda sealed: None)
    assert (caught.value.param, caught.value.code) == ("input", "empty_array")

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
OUTPUT: dict[str, Any] = {"type": "function_call_output", "call_id": "a", "output": "3"}
REASONING: dict[str, Any] = {
    "type": "reasoning",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Hm."}],
}
ITEMS: list[dict[str, Any]] = [
    text("developer", "Rules."),
    text("user", "Hello"),
    REASONING,
    text("assistant", "Well."),
    {**CALL, "arguments": '{"x": [1]}'},
    {"type": "custom_tool_call", "call_id": "b", "name": "shell", "input": "ls"},
    {**CALL, "call_id": "c", "arguments": '{"x": '},
    {"type": "custom_tool_call_output", "call_id": "b", "output": "files"},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "broken"}]},
    OUTPUT,
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
    with pytest.raises(BadRequest, match="it contains no message to respond to") as caught:
        item_messages([foreign], None, lambda sealed: None)
    assert (caught.value.param, caught.value.code) == ("input", "empty_array")


@pytest.mark.parametrize(
    ("items", "turns"),
    [
        pytest.param(
            [text("assistant", "Let me look."), text("assistant", "It is 5.")],
            [{"content": "Let me look."}, {"content": "It is 5."}],
            id="two messages",
        ),
        pytest.param(
            [text("assistant", ""), text("assistant", "It is 5.")],
            [{"content": ""}, {"content": "It is 5."}],
            id="the first is empty",
        ),
        pytest.param(
            [text("assistant", "One."), REASONING, text("assistant", "Two.")],
            [{"content": "One."}, {"content": "Two.", "reasoning_content": "Hm."}],
            id="thoughts between them",
        ),
        pytest.param(
            [text("assistant", ""), REASONING, text("assistant", "Two.")],
            [{"content": ""}, {"content": "Two.", "reasoning_content": "Hm."}],
            id="thoughts after an empty one",
        ),
        pytest.param(
            [REASONING, text("assistant", "One."), text("assistant", "Two.")],
            [{"content": "One.", "reasoning_content": "Hm."}, {"content": "Two."}],
            id="thoughts before both",
        ),
    ],
)
def test_messages_of_the_assistant_in_a_row_are_turns_as_in_a_chat(
    items: list[dict[str, Any]], turns: list[dict[str, Any]]
) -> None:
    chat = [{"role": "user", "content": "Hello"}, *({"role": "assistant", **turn} for turn in turns)]
    assert item_messages([text("user", "Hello"), *items], None, lambda sealed: None) == template_messages(chat)


def test_text_behind_a_call_stays_with_the_call_whose_result_comes_next() -> None:
    items = [text("assistant", "One."), CALL, text("assistant", "Two."), OUTPUT, text("assistant", "Three.")]
    made = item_messages(items, None, lambda sealed: None)
    assert [(message["role"], message["content"]) for message in made] == [
        ("assistant", "One.\n\nTwo."),
        ("tool", "3"),
        ("assistant", "Three."),
    ]
    assert len(made[0]["tool_calls"]) == 1


def test_text_behind_a_message_begins_the_turn_of_the_call_after_it() -> None:
    items = [text("assistant", "One."), text("assistant", "Two."), CALL, OUTPUT]
    made = item_messages(items, None, lambda sealed: None)
    assert [(message["role"], message["content"], "tool_calls" in message) for message in made] == [
        ("assistant", "One.", False),
        ("assistant", "Two.", True),
        ("tool", "3", False),
    ]

"""Requests that mean the same match, others do not, and the difference is shown."""

from __future__ import annotations

from typing import Any

import pytest

from localai_shim.testing.cassettes.matching import differences, meaning, nearest

USER = {"role": "user", "content": "Hi"}
CHAT: dict[str, Any] = {"model": "m", "messages": [USER]}
RESPONSE: dict[str, Any] = {"model": "m", "input": "Hi"}
TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def call(id: str, arguments: str = '{"a": 1, "id": "x"}') -> list[Any]:
    made = {"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [USER, {"role": "assistant", "tool_calls": [made]}, {"role": "tool", "tool_call_id": id, "content": "1"}]


SAME: dict[str, tuple[Any, Any]] = {
    "key order": ({"model": "m", "messages": [USER]}, {"messages": [{"content": "Hi", "role": "user"}], "model": "m"}),
    "null": (CHAT, {**CHAT, "temperature": None, "tools": None}),
    "defaults": (CHAT, {**CHAT, "temperature": 1.0, "n": 1, "top_p": 1, "response_format": {"type": "text"}}),
    "delivery": (CHAT, {**CHAT, "stream": True, "stream_options": {"include_usage": True}, "store": True, "user": "u"}),
    "parts": (CHAT, {**CHAT, "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}),
    "choice": ({**CHAT, "tools": [TOOL]}, {**CHAT, "tools": [TOOL], "tool_choice": "auto"}),
    "limit": ({**CHAT, "max_tokens": 5}, {**CHAT, "max_completion_tokens": 5}),
    "strict": (
        {**CHAT, "tools": [TOOL]},
        {**CHAT, "tools": [{**TOOL, "function": {**TOOL["function"], "strict": False}}]},
    ),
    "ids": ({**CHAT, "messages": call("call_1")}, {**CHAT, "messages": call("call_99")}),
    "arguments": ({**CHAT, "messages": call("a")}, {**CHAT, "messages": call("a", '{"id":"x","a":1}')}),
}
SAME_RESPONSES: dict[str, tuple[Any, Any]] = {
    "item": (RESPONSE, {**RESPONSE, "input": [{"type": "message", "status": "completed", "id": "msg_1", **USER}]}),
    "text": (RESPONSE, {**RESPONSE, "text": {"format": {"type": "text"}, "verbosity": "medium"}}),
    "call ids": (
        {**RESPONSE, "input": [{"type": "function_call_output", "call_id": "a", "output": "1"}]},
        {**RESPONSE, "input": [{"type": "function_call_output", "call_id": "b", "output": "1", "id": "fc_1"}]},
    ),
}
OTHERS: dict[str, tuple[Any, str]] = {
    "model": ({**CHAT, "model": "o"}, "model: recorded 'm', now 'o'"),
    "text": ({**CHAT, "messages": [{**USER, "content": "Ho"}]}, "messages[0].content: recorded 'Hi', now 'Ho'"),
    "more": ({**CHAT, "messages": [USER, USER]}, "messages[1].role: is new: 'user'"),
    "temperature": ({**CHAT, "temperature": 0}, "temperature: is new: 0"),
    "seed": ({**CHAT, "seed": 1}, "seed: is new: 1"),
    "tools": ({**CHAT, "tools": [TOOL]}, "tools[0].function.name: is new: 'f'"),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_requests_that_mean_the_same_match(one: Any, other: Any) -> None:
    assert meaning("chat.completions", one) == meaning("chat.completions", other)
    assert not differences(meaning("chat.completions", one), meaning("chat.completions", other))


@pytest.mark.parametrize(("one", "other"), SAME_RESPONSES.values(), ids=SAME_RESPONSES)
def test_requests_of_responses_that_mean_the_same_match(one: Any, other: Any) -> None:
    assert meaning("responses", one) == meaning("responses", other)


@pytest.mark.parametrize(("other", "shown"), OTHERS.values(), ids=OTHERS)
def test_requests_that_differ_do_not_match_and_it_is_said_where(other: Any, shown: str) -> None:
    assert shown in differences(meaning("chat.completions", CHAT), meaning("chat.completions", other))


def test_what_refers_to_another_call_means_something_else() -> None:
    crossed = call("call_1")
    crossed[-1]["tool_call_id"] = "call_2"
    one, other = ({**CHAT, "messages": each} for each in (call("call_1"), crossed))
    assert meaning("chat.completions", one) != meaning("chat.completions", other)


def test_arguments_are_the_callers_ids_and_all() -> None:
    one, other = ({**CHAT, "messages": call("a", arguments)} for arguments in ('{"id": "1"}', '{"id": "2"}'))
    assert differences(meaning("chat.completions", one), meaning("chat.completions", other)) == [
        "messages[1].tool_calls[0].function.arguments.id: recorded '1', now '2'"
    ]


def test_the_nearest_is_the_one_with_the_fewest_differences() -> None:
    made = [meaning("chat.completions", each) for each in ({**CHAT, "model": "o", "seed": 1}, {**CHAT, "seed": 1})]
    assert nearest(made, meaning("chat.completions", CHAT)) == 1
    assert nearest([], made[0]) is None


def test_of_long_texts_the_place_that_differs_is_shown() -> None:
    text = "word " * 500
    one, other = ({**CHAT, "messages": [{**USER, "content": text + end}]} for end in ("yes", "no"))
    [line] = differences(meaning("chat.completions", one), meaning("chat.completions", other))
    assert len(line) < 200 and "yes'" in line and "no'" in line


@pytest.mark.parametrize(("length", "cut"), [(60, False), (61, True)])
def test_texts_of_up_to_60_characters_are_shown_whole(length: int, cut: bool) -> None:
    start = "x" * (length - 3)
    one, other = ({**CHAT, "messages": [{**USER, "content": start + end}]} for end in ("yes", "no!"))
    [line] = differences(meaning("chat.completions", one), meaning("chat.completions", other))
    shown = f"messages[0].content: recorded '{start}yes', now '{start}no!'"
    assert (line == shown) is not cut
    assert ("…" in line) is cut

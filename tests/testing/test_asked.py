"""What a scripted client remembers of what it was asked, and what tests may claim about it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localai_shim.testing import IncompleteScript, ScriptedOpenAI, UnexpectedRequest, timed, tool_call
from tests.testing.asking import CHAT_TOOLS, chat, said


def test_requests_are_remembered_as_they_were_sent_whatever_becomes_of_the_objects(client: ScriptedOpenAI) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    chat(client, messages=messages)
    messages[0]["content"] = "changed"
    messages.clear()
    assert client.last_call.messages == [{"role": "user", "content": "Hi"}]


def test_there_is_no_last_call_before_the_first(client: ScriptedOpenAI) -> None:
    with pytest.raises(AssertionError, match="there was no request"):
        _ = client.last_call
    client.assert_not_called()


def test_a_snapshot_is_plain_and_the_same_in_each_run() -> None:
    def run() -> list[Any]:
        with ScriptedOpenAI() as client:
            client.script([tool_call("get_weather", city="Paris"), tool_call("get_weather", city="Rome")], "ok")
            message = chat(client, tools=CHAT_TOOLS, temperature=0).choices[0].message
            results = [{"role": "tool", "tool_call_id": c.id, "content": "18"} for c in message.tool_calls]
            chat(client, messages=[{"role": "user", "content": "Hi"}, message, *results], tools=CHAT_TOOLS)
            return [call.snapshot() for call in client.calls]

    first, second = run()
    assert run() == [first, second]
    assert first == {
        "api": "chat.completions",
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "Hi"}],
        "temperature": 0,
        "tools": CHAT_TOOLS,
    }
    assert [m.get("tool_call_id") for m in second["messages"][2:]] == ["call_1", "call_2"]
    assert json.loads(json.dumps(second)) == second


def test_assertions_about_requests_show_what_there_was(client: ScriptedOpenAI) -> None:
    chat(client, "Paris")
    client.assert_called()
    client.assert_called(times=1, user="Paris")
    client.assert_not_called(user="Rome")
    with pytest.raises(AssertionError) as caught:
        client.assert_called(user="Rome")
    assert str(caught.value).splitlines() == [
        "expected at least one request matching user='Rome', found 0 of 1:",
        "  chat.completions(model='gpt-4o', user: 'Paris') -- user: 'Rome' is not in 'Paris'",
    ]
    with pytest.raises(AssertionError, match=r"expected 2 requests, found 1 of 1"):
        client.assert_called(times=2)


def test_assertions_about_tools_show_the_nearest_call(client: ScriptedOpenAI) -> None:
    client.script([tool_call("get_weather", city="Rome", unit="C"), tool_call("get_weather", "broken")])
    chat(client, tools=CHAT_TOOLS)
    client.assert_tool_called("get_weather")
    client.assert_tool_called("get_weather", city="Rome")
    with pytest.raises(AssertionError) as caught:
        client.assert_tool_called("get_weather", city="Paris", day=1)
    assert str(caught.value).splitlines() == [
        "no answer called get_weather(city='Paris', day=1); the calls were:",
        "  get_weather(city='Rome', unit='C') -- city: expected 'Paris', got 'Rome', day: expected 1, got nothing",
        "  get_weather('broken') -- city: expected 'Paris', got nothing, day: expected 1, got nothing",
    ]
    with pytest.raises(AssertionError, match="the results were:\n  none"):
        client.assert_tool_result("18")


def test_a_script_that_is_not_complete_says_what_is_left(client: ScriptedOpenAI) -> None:
    client.script("one", "two")
    client.when(user="Paris").reply("rain").times(2)
    said(client)
    with pytest.raises(IncompleteScript) as caught:
        client.assert_complete()
    assert str(caught.value).splitlines() == [
        "when(user='Paris') answered 0 requests, and waits for 2 more",
        "1 of 2 replies were not played: 'two'",
    ]


def test_an_unexpected_request_is_not_forgotten_where_the_code_swallows_it(client: ScriptedOpenAI) -> None:
    client.script("one")
    said(client)
    with pytest.raises(UnexpectedRequest):
        chat(client)
    with pytest.raises(IncompleteScript, match="UnexpectedRequest: no reply is scripted for chat"):
        client.assert_complete()


def test_a_token_budget_covers_a_block_or_the_rest_of_the_test(client: ScriptedOpenAI) -> None:
    client.script(*["one two three"] * 3)
    said(client)
    with client.token_budget(max_completion=4) as budget:
        said(client)
    assert budget.spent.completion_tokens == 4 == client.last_call.completion_tokens, "the end of the turn is one, too"
    with (
        pytest.raises(
            AssertionError, match=r"exceeded: 4 of max_completion=3\n  chat.completions.*4 completion tokens"
        ),
        client.token_budget(max_completion=3),
    ):
        said(client)
    client.token_budget(max_requests=0)
    with pytest.raises(TypeError, match="a budget limits something"):
        client.token_budget()
    client.when().reply("x").always()
    said(client)
    with pytest.raises(IncompleteScript, match="1 of max_requests=0"):
        client.assert_complete()
    assert client.usage.requests == 4 and client.usage.total_tokens == client.usage.prompt_tokens + 4 * 3 + 2


def test_answers_that_take_time_are_timed(client: ScriptedOpenAI) -> None:
    client.script(timed("one two three", first_token=2.0, tokens_per_second=4))
    assert said(client) == "one two three"
    assert client.clock.now == pytest.approx(2.0 + 3 / 4)

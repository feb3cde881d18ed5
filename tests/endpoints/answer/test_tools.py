"""Tools in chat.completions: calls, whole and streamed, and everything that is not quite one."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import openai
import pydantic
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import ScriptedEngine, ScriptedTokenizer
from tests.conftest import MESSAGES, revalidate
from tests.endpoints.functions import CALL, PARIS, PING, SHELL, TEXT, TOOLS, WEATHER, call, function
from tests.endpoints.scripting import answer, arguments, ask, calls, forbidden, ids, invalid, message, reasoning

# -- what a call is ---------------------------------------------------------------------------------------------------


def test_an_answer_that_is_only_a_call_has_no_content() -> None:
    [choice] = answer(CALL, tools=TOOLS).choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    [made] = choice.message.tool_calls
    assert (made.type, made.function.name, json.loads(made.function.arguments)) == ("function", "get_weather", PARIS)
    assert re.fullmatch(r"call_[0-9a-zA-Z]{24}", made.id)
    assert not invalid(choice.message)


def test_an_answer_without_a_call_is_one_as_if_there_were_no_tools() -> None:
    [choice] = answer("No need <b>to</b> {call}.", tools=TOOLS).choices
    assert (choice.finish_reason, choice.message.content) == ("stop", "No need <b>to</b> {call}.")
    assert choice.message.tool_calls is None


def test_text_thought_and_calls_come_apart() -> None:
    text = f"<think>\nHm.\n</think>\n\nLet me look.\n\n{CALL}\n{call('ping', {})}"
    [choice] = answer(text, tools=TOOLS).choices
    made = choice.message
    assert (made.content, reasoning(made), choice.finish_reason) == ("Let me look.", "Hm.", "tool_calls")
    assert arguments(made) == [("get_weather", PARIS), ("ping", {})]


HARD = {"path": 'C:\\new "one"', "content": "</tool_call> <tool_call> żółć 🙂\n\t{[,]}"}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_arguments_are_what_the_model_wrote_however_its_tokens_fall(size: int) -> None:
    text = f"So.{call('write_file', HARD)}{CALL}"
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    raw = text.encode()
    for reply in (pieces, [raw[i : i + size] for i in range(0, len(raw), size)]):
        made = message(reply, tools=TOOLS)
        assert (made.content, arguments(made)) == ("So.", [("write_file", HARD), ("get_weather", PARIS)])


def test_arguments_stream_as_they_are_written() -> None:
    with ScriptedEngine([CALL]) as engine:
        chunks = list(ask(LocalOpenAI(engine=engine), tools=TOOLS, stream=True))
    deltas = [made for chunk in chunks for made in chunk.choices[0].delta.tool_calls or []]
    assert (deltas[0].function.name, deltas[0].type, deltas[0].index) == ("get_weather", "function", 0)
    assert [delta.function.arguments for delta in deltas if delta.function.arguments] == [
        '{"city":',
        ' "Paris",',
        ' "days":',
        " 2}",
    ]
    assert all(delta.function.name is None and delta.id is None for delta in deltas[1:])
    assert chunks[0].choices[0].delta.content is None and chunks[0].choices[0].delta.role == "assistant"


def test_ids_are_unique_over_calls_choices_and_requests() -> None:
    twice = CALL + CALL
    seen: list[str] = []
    with ScriptedEngine([twice] * 12) as engine:
        client = LocalOpenAI(engine=engine)
        for _ in range(2):
            seen += ids(ask(client, n=3, tools=TOOLS))
            chunks = ask(client, n=3, tools=TOOLS, stream=True)
            told = [made.id for c in chunks for choice in c.choices for made in choice.delta.tool_calls or []]
            seen += [name for name in told if name is not None]
    assert len(seen) == len(set(seen)) == 24


def test_choices_call_each_on_their_own() -> None:
    made = answer("Just text.", CALL, call("ping", {}) + CALL, "<think>x</think>No.", n=4, tools=TOOLS)
    assert [[name for name, _ in calls(choice.message)] for choice in made.choices] == [
        [],
        ["get_weather"],
        ["ping", "get_weather"],
        [],
    ]
    assert [choice.finish_reason for choice in made.choices] == ["stop", "tool_calls", "tool_calls", "stop"]


def test_a_call_that_is_cut_ends_with_length_wherever_that_is() -> None:
    text = f"Well. {CALL}"
    tokenizer = ScriptedTokenizer()
    total = len(tokenizer.split(text))
    whole = '{"city": "Paris", "days": 2}'
    for limit in range(1, total):
        [choice] = answer(text, tools=TOOLS, max_tokens=limit).choices
        assert choice.finish_reason == "length"
        assert choice.message.content.strip() == "Well."
        for name, written in calls(choice.message):
            assert name == "get_weather" and whole.startswith(written)
    [choice] = answer(text, tools=TOOLS, max_tokens=total).choices
    assert arguments(choice.message) == [("get_weather", PARIS)] and choice.finish_reason == "length"


# -- what only looks like one -----------------------------------------------------------------------------------------

BROKEN = [
    "<tool_call>\n{not json}\n</tool_call>",
    '<tool_call>\n{"arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": 7}\n</tool_call>',
]
AS_THEY_STAND = [
    ('<tool_call>\n{"name": "get_weather", "arguments": {"city": Paris}}\n</tool_call>', '{"city": Paris}'),
    ('<tool_call>\n{"name": "get_weather", "arguments": [1, 2]}\n</tool_call>', "[1, 2]"),
    ('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par', '{"city": "Par'),
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_call_that_cannot_be_read_is_kept_beside_the_content(text: str) -> None:
    made = message(f"Look:{text}", tools=TOOLS)
    assert made.content == "Look:"
    [kept] = invalid(made)
    assert kept["text"] == text and kept["index"] == 0 and kept["error"]


@pytest.mark.parametrize("text", BROKEN)
def test_an_answer_that_is_nothing_else_has_it_as_its_content(text: str) -> None:
    """Before it was empty, and agents ended there: frameworks do not look at `invalid_tool_calls`."""
    [choice] = answer(f"<think>Hm.</think>{text}", tools=TOOLS).choices
    assert (choice.message.content, choice.finish_reason) == (text, "stop")
    assert [kept["text"] for kept in invalid(choice.message)] == [text]


@pytest.mark.parametrize(("text", "written"), AS_THEY_STAND)
def test_a_call_whose_function_can_be_read_is_delivered_with_its_arguments_as_they_stand(
    text: str, written: str
) -> None:
    [choice] = answer(text, tools=TOOLS).choices
    assert calls(choice.message) == [("get_weather", written)]
    assert (choice.finish_reason, choice.message.content, invalid(choice.message)) == ("tool_calls", None, [])


def test_what_cannot_be_read_does_not_hide_what_can() -> None:
    made = message(f"{BROKEN[0]}\n{CALL}\n{BROKEN[2]}", tools=TOOLS)
    assert arguments(made) == [("get_weather", PARIS)]
    assert [(kept["index"], kept["text"]) for kept in invalid(made)] == [(0, BROKEN[0]), (1, BROKEN[2])]
    assert made.content is None


@pytest.mark.parametrize("more", [{}, {"tools": TOOLS, "tool_choice": "none"}], ids=["no tools", "tool_choice none"])
def test_a_call_that_nobody_asked_for_is_no_call(more: dict[str, Any]) -> None:
    [choice] = answer(f"Hm. {CALL}", **more).choices
    assert choice.message.tool_calls is None and choice.finish_reason == "stop"
    [kept] = invalid(choice.message)
    assert (kept["text"], kept["error"]) == (CALL, "no tools were offered")
    assert choice.message.content.strip() == "Hm."


def test_prose_about_calls_is_content() -> None:
    made = message('You write <tool_call> and then a name, like {"name": "ping"}.', tools=TOOLS)
    assert made.content == 'You write and then a name, like {"name": "ping"}.'
    assert [kept["text"] for kept in invalid(made)] == ["<tool_call>"]
    plain = 'It is {"name": "ping", "arguments": {}} or ping().'
    assert message(plain, tools=TOOLS).content == plain


def test_markers_never_reach_the_content_whatever_is_said_in_whatever_tokens() -> None:
    rng = random.Random(7)
    parts = ["Well ", "so.", "\n\n", " ", "<think>", "</think>", "<tool_call>", "</tool_call>", CALL, *BROKEN, "{", '"']
    for _ in range(40):
        text = "".join(rng.choices(parts, k=rng.randint(1, 7)))
        cuts = [0, *sorted(rng.choices(range(len(text) + 1), k=rng.randint(0, 12))), len(text)]
        pieces = [text[a:b] for a, b in itertools.pairwise(cuts) if a < b] or [""]
        finish = {"max_tokens": rng.randint(1, len(pieces))} if rng.random() < 0.3 else {}
        made = message(pieces, tools=TOOLS, **finish)
        shown = "".join(kept["text"] for kept in invalid(made))  # the content, where there would be none
        assert made.content == shown or not re.search("</?(think|tool_call)>", made.content or ""), pieces
        assert not re.search("</?think>", reasoning(made) or ""), pieces  # a call that is only mentioned there stays


# -- stop strings and logprobs ----------------------------------------------------------------------------------------


def test_stop_strings_count_in_the_content_only() -> None:
    text = f"<think>STOP</think>One. {call('write_file', {'path': 'STOP', 'content': 'a STOP b'})} Two STOP three."
    [choice] = answer(text, tools=TOOLS, stop="STOP").choices
    made = choice.message
    assert (made.content, reasoning(made), choice.finish_reason) == ("One.Two ", "STOP", "tool_calls")
    assert arguments(made) == [("write_file", {"path": "STOP", "content": "a STOP b"})]


def test_a_stop_string_before_a_call_keeps_it_from_being_made() -> None:
    [choice] = answer(f"One STOP {CALL}", tools=TOOLS, stop="STOP").choices
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == ("One ", None, "stop")


def test_logprobs_are_those_of_the_content() -> None:
    [choice] = answer(f"<think>Hm</think>Two words {CALL}", tools=TOOLS, logprobs=True, top_logprobs=2).choices
    assert [entry.token for entry in choice.logprobs.content] == ["Two", " words"]
    [only] = answer(CALL, tools=TOOLS, logprobs=True).choices
    assert only.logprobs.content == []


# -- the SDK's helpers ------------------------------------------------------------------------------------------------


class Forecast(pydantic.BaseModel):
    """The weather to come."""

    city: str
    days: int


FORECAST = openai.pydantic_function_tool(Forecast)
SAID = 'Let me see.\n<tool_call>\n{"name": "Forecast", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>'


def check_helper_events(events: list[Any], final: Any) -> None:
    deltas = [event for event in events if event.type == "tool_calls.function.arguments.delta"]
    [done] = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert len(deltas) > 2
    assert "".join(delta.arguments_delta for delta in deltas) == done.arguments == json.dumps(PARIS)
    assert (done.name, done.index, done.parsed_arguments) == ("Forecast", 0, Forecast(city="Paris", days=2))
    [made] = final.choices[0].message.tool_calls
    assert made.function.parsed_arguments == Forecast(city="Paris", days=2)
    assert final.choices[0].finish_reason == "tool_calls" and final.choices[0].message.content == "Let me see."


def test_the_sdk_s_stream_helper_gives_events_and_models() -> None:
    with ScriptedEngine([SAID]) as engine:
        client = LocalOpenAI(engine=engine)
        with client.chat.completions.stream(model="any", messages=MESSAGES, tools=[FORECAST]) as stream:
            check_helper_events(list(stream), stream.get_final_completion())


@pytest.mark.anyio
async def test_the_sdk_s_async_stream_helper_gives_events_and_models() -> None:
    with ScriptedEngine([SAID, SAID]) as engine:
        async with AsyncLocalOpenAI(engine=engine) as client:
            async with client.chat.completions.stream(model="any", messages=MESSAGES, tools=[FORECAST]) as stream:
                events = [event async for event in stream]
                check_helper_events(events, await stream.get_final_completion())
            parsed = await client.chat.completions.parse(model="any", messages=MESSAGES, tools=[FORECAST])
    assert parsed.choices[0].message.tool_calls[0].function.parsed_arguments == Forecast(city="Paris", days=2)


def test_the_sdk_s_parse_gives_models() -> None:
    with ScriptedEngine([SAID], obey_constraints=True) as engine:
        parsed = LocalOpenAI(engine=engine).chat.completions.parse(model="any", messages=MESSAGES, tools=[FORECAST])
    assert parsed.choices[0].message.tool_calls[0].function.parsed_arguments == Forecast(city="Paris", days=2)


def test_a_real_model_fills_a_pydantic_tool(builtin: LocalOpenAI) -> None:
    class GetWeather(pydantic.BaseModel):
        """Get the weather in a city."""

        city: str

    tool = openai.pydantic_function_tool(GetWeather, name="get_weather")
    asked: Any = [{"role": "user", "content": "What is the weather in Oslo?"}]
    with builtin.chat.completions.stream(model="any", messages=asked, tools=[tool], temperature=0) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
    assert [event.parsed_arguments for event in done] == [GetWeather(city="Oslo")]


@pytest.mark.anyio
async def test_the_async_client_answers_alike() -> None:
    text = f"<think>Hm</think>Well.\n{CALL}\n{BROKEN[0]}"
    expected = message(text, tools=TOOLS)
    with ScriptedEngine([text, text]) as engine:
        async with AsyncLocalOpenAI(engine=engine) as client:
            whole = await ask(client, tools=TOOLS)
            chunks = [chunk async for chunk in await ask(client, tools=TOOLS, stream=True)]
    revalidate(whole)
    made = whole.choices[0].message
    assert (made.content, arguments(made), invalid(made)) == (expected.content, arguments(expected), invalid(expected))
    told = [part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or []]
    assert "".join(part.function.arguments for part in told) == json.dumps(PARIS)


# -- conversations ----------------------------------------------------------------------------------------------------


def test_tools_are_shown_to_the_model_whatever_the_choice() -> None:
    with ScriptedEngine(["x"] * 3) as engine:
        client = LocalOpenAI(engine=engine)
        ask(client, tools=TOOLS)
        ask(client, tools=TOOLS, tool_choice="none")
        ask(client, functions=[WEATHER["function"]])
    auto, none, legacy = engine.prompts
    assert json.dumps(WEATHER) in auto and json.dumps(PING) in auto
    assert none == auto
    assert json.dumps(WEATHER) in legacy


def test_calls_and_their_results_are_handed_back_to_the_template() -> None:
    with ScriptedEngine([f"One moment.\n{CALL}", "Done."]) as engine:
        client = LocalOpenAI(engine=engine)
        first = ask(client, tools=TOOLS).choices[0].message
        result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "sunny"}
        ask(client, tools=TOOLS, messages=[*MESSAGES, first, result])
    [_, prompt] = engine.prompts
    assert f"<|im_start|>assistant\nOne moment.\n{CALL}<|im_end|>" in prompt
    assert "<tool_response>\nsunny\n</tool_response>" in prompt


def test_legacy_calls_and_their_results_are_handed_back_to_the_template() -> None:
    legacy = [{"role": "assistant", "content": None, "function_call": {"name": "ping", "arguments": "{}"}}]
    legacy.append({"role": "function", "name": "ping", "content": "pong"})
    with ScriptedEngine(["Done."]) as engine:
        ask(LocalOpenAI(engine=engine), functions=[PING["function"]], messages=[*MESSAGES, *legacy])
    assert call("ping", {}) in engine.prompts[0]
    assert "<tool_response>\npong\n</tool_response>" in engine.prompts[0]


def test_a_custom_call_and_its_result_are_handed_back_to_the_template() -> None:
    with ScriptedEngine([call("shell", {"input": "ls -l"}), "Done."]) as engine:
        client = LocalOpenAI(engine=engine)
        first = ask(client, tools=[SHELL]).choices[0].message
        result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "a.txt"}
        ask(client, tools=[SHELL], messages=[*MESSAGES, first, result])
    assert call("shell", {"input": "ls -l"}) in engine.prompts[1]


def test_a_real_model_calls_reads_the_result_and_answers(builtin: LocalOpenAI) -> None:
    tool = function("get_weather", city=TEXT)
    asked: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
    first = ask(builtin, messages=asked, tools=[tool], temperature=0).choices[0]
    assert (first.finish_reason, first.message.content) == ("tool_calls", None)
    assert arguments(first.message) == [("get_weather", {"city": "Paris"})]
    result = {"role": "tool", "tool_call_id": first.message.tool_calls[0].id, "content": "sunny, 20 degrees"}
    last = ask(builtin, messages=[*asked, first.message, result], tools=[tool], temperature=0).choices[0]
    assert last.finish_reason == "stop"
    assert "sunny" in last.message.content.lower() and "20" in last.message.content


# -- the deprecated form ----------------------------------------------------------------------------------------------

FUNCTIONS = [PING["function"], WEATHER["function"]]


def test_functions_are_answered_with_a_function_call() -> None:
    [choice] = answer(f"Well.\n{CALL}", functions=FUNCTIONS).choices
    assert choice.finish_reason == "function_call" and choice.message.tool_calls is None
    assert choice.message.function_call.name == "get_weather"
    assert json.loads(choice.message.function_call.arguments) == PARIS
    assert choice.message.content == "Well."


def test_functions_are_called_one_at_a_time() -> None:
    [choice] = answer(CALL, functions=FUNCTIONS, obey=True).choices
    assert choice.message.function_call.name == "get_weather"
    forbidden(CALL + call("ping", {}), "<tool_call>", functions=FUNCTIONS)


@pytest.mark.parametrize("choice", ["auto", {"name": "ping"}], ids=str)
def test_function_call_chooses_as_tool_choice_does(choice: Any) -> None:
    with ScriptedEngine([call("ping", {})], obey_constraints=True) as engine:
        made = ask(LocalOpenAI(engine=engine), functions=FUNCTIONS, function_call=choice).choices[0]
    assert made.finish_reason == "function_call"
    if choice == {"name": "ping"}:
        forbidden(CALL, "get_weather", functions=FUNCTIONS, function_call=choice)

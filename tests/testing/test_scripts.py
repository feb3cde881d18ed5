"""What a scripted client answers."""

from __future__ import annotations

import json
import re
from typing import Any

import anyio
import anyio.lowlevel
import openai
import pydantic
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import (
    AsyncScriptedOpenAI,
    IncompleteScript,
    Reply,
    Request,
    ScriptedOpenAI,
    UnexpectedRequest,
    content_filter,
    reasoning,
    refusal,
    tool_call,
    truncated,
)
from tests.conftest import revalidate
from tests.testing.asking import CHAT_TOOLS, FLAT_TOOLS, chat, contents, said

# -- replies in order ---------------------------------------------------------------------------------------------


def test_the_clients_are_the_sdk_s_own_and_ours(client: ScriptedOpenAI) -> None:
    assert isinstance(client, LocalOpenAI) and isinstance(client, openai.OpenAI)
    made = AsyncScriptedOpenAI()
    assert isinstance(made, AsyncLocalOpenAI) and isinstance(made, openai.AsyncOpenAI)


def test_replies_are_played_in_order_through_every_api(client: ScriptedOpenAI) -> None:
    client.script("one", "two").script("three", "four")
    assert said(client) == "one"
    assert client.responses.create(model="m", input="Hi").output_text == "two"
    assert client.completions.create(model="m", prompt="Hi").choices[0].text == "three"
    assert contents(chat(client, stream=True)) == ["four"]
    assert [call.api for call in client.calls] == ["chat.completions", "responses", "completions", "chat.completions"]
    client.assert_complete()


def test_copies_of_a_client_share_its_script(client: ScriptedOpenAI) -> None:
    client.script("one", "two")
    assert said(client.with_options(max_retries=0)) == "one"
    assert said(ScriptedOpenAI(engine=client.stage)) == "two"
    assert len(client.calls) == 2


def test_each_choice_takes_a_reply(client: ScriptedOpenAI) -> None:
    client.script("one", "two", lambda request: f"choice {request.choice}")
    assert [choice.message.content for choice in chat(client, n=3).choices] == ["one", "two", "choice 2"]
    assert len(client.calls) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_limits_and_stop_strings_are_honoured_and_usage_adds_up(client: ScriptedOpenAI, stream: bool) -> None:
    client.script("one two three", "one two three")
    if stream:
        options: Any = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(chat(client, max_tokens=2, **options))
        assert contents(chunks) == ["one", " two"] and chunks[-2].choices[0].finish_reason == "length"
        usage = chunks[-1].usage
    else:
        made = chat(client, max_tokens=2)
        assert made.choices[0].message.content == "one two" and made.choices[0].finish_reason == "length"
        usage = made.usage
    assert usage.completion_tokens == 2 and usage.total_tokens == usage.prompt_tokens + 2
    assert (client.last_call.prompt_tokens, client.last_call.completion_tokens) == (usage.prompt_tokens, 2)
    assert said(client, stop="two") == "one "


def test_a_tool_call_is_an_answer_in_both_apis(client: ScriptedOpenAI) -> None:
    client.script(*[tool_call("get_weather", city="Paris")] * 3)
    choice = chat(client, tools=CHAT_TOOLS).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    function = choice.message.tool_calls[0].function
    assert (function.name, json.loads(function.arguments)) == ("get_weather", {"city": "Paris"})
    (item,) = client.responses.create(model="m", input="Hi", tools=FLAT_TOOLS).output
    assert item.type == "function_call" and json.loads(item.arguments) == {"city": "Paris"}
    deltas = [
        c.choices[0].delta.tool_calls[0]
        for c in chat(client, tools=CHAT_TOOLS, stream=True)
        if c.choices[0].delta.tool_calls
    ]
    assert deltas[0].function.name == "get_weather" and len(deltas) > 1
    client.assert_tool_called("get_weather", city="Paris")


def test_one_answer_may_have_reasoning_text_and_several_calls(client: ScriptedOpenAI) -> None:
    client.script(
        [
            reasoning("Two cities."),
            "Let me see.",
            tool_call("get_weather", city="Paris"),
            tool_call("get_weather", {"city": "Rome"}),
        ]
    )
    message = chat(client, tools=CHAT_TOOLS).choices[0].message
    assert message.reasoning_content == "Two cities." and message.content.strip() == "Let me see."
    assert [json.loads(call.function.arguments)["city"] for call in message.tool_calls] == ["Paris", "Rome"]


@pytest.mark.parametrize(
    "arguments", ['{"city": "Par', "not JSON", '["Paris"]', '{"town": 1}', '{"a": 1}}', '"x"', "{} {}"]
)
def test_malformed_arguments_come_as_they_were_written(client: ScriptedOpenAI, arguments: str) -> None:
    client.script(tool_call("get_weather", arguments), tool_call("get_weather", arguments))
    assert chat(client, tools=CHAT_TOOLS).choices[0].message.tool_calls[0].function.arguments == arguments
    (item,) = client.responses.create(model="m", input="Hi", tools=FLAT_TOOLS).output
    assert item.type == "function_call" and item.arguments == arguments
    client.script(tool_call("get_weather", arguments))
    calls = [c.choices[0].delta.tool_calls for c in chat(client, tools=CHAT_TOOLS, stream=True)]
    assert "".join(call[0].function.arguments for call in calls if call) == arguments


CRM: dict[str, Any] = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [
        {"type": "function", "name": "get_customer", "parameters": {"type": "object", "properties": {"id": {}}}},
        {"type": "custom", "name": "run"},
    ],
}


@pytest.mark.parametrize("name", ["get_customer", "crm.get_customer", "crm__get_customer"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_in_a_namespace_is_called_by_its_own_name_or_all_of_it(
    client: ScriptedOpenAI, name: str, stream: bool
) -> None:
    client.when(tool=name).reply(tool_call(name, id="7"))
    made: Any = client.responses.create(model="m", input="Hi", tools=[CRM], stream=stream)  # type: ignore[list-item]
    (item,) = ([*made][-1].response if stream else made).output
    assert (item.namespace, item.name, json.loads(item.arguments)) == ("crm", "get_customer", {"id": "7"})
    for each in ("get_customer", "crm.get_customer", "crm__get_customer"):
        client.assert_tool_called(each, id="7")
    assert client.last_call.tool_names == ["crm.get_customer", "crm.run"]


def test_a_custom_tool_in_a_namespace_is_called_with_a_text(client: ScriptedOpenAI) -> None:
    client.script(tool_call("crm.run", "print(1)"))
    (item,) = client.responses.create(model="m", input="Hi", tools=[CRM]).output  # type: ignore[list-item]
    assert item.type == "custom_tool_call" and (item.namespace, item.name, item.input) == ("crm", "run", "print(1)")


def test_a_namespace_itself_is_no_tool(client: ScriptedOpenAI) -> None:
    client.script(tool_call("crm"))
    with pytest.raises(UnexpectedRequest, match=r"offers only crm\.get_customer, crm\.run"):
        client.responses.create(model="m", input="Hi", tools=[CRM])  # type: ignore[list-item]


def test_of_tools_of_one_name_the_whole_name_chooses(client: ScriptedOpenAI) -> None:
    tools: Any = [CRM, {**CRM, "name": "shop"}, {"type": "function", "name": "get_customer", "parameters": None}]
    client.script(tool_call("shop.get_customer"), tool_call("get_customer"))
    made = [client.responses.create(model="m", input="Hi", tools=tools).output[0] for _ in range(2)]
    assert [(item.namespace, item.name) for item in made if item.type == "function_call"] == [
        ("shop", "get_customer"),
        (None, "get_customer"),
    ]


def test_openai_s_token_ids_are_accepted_in_logit_bias(client: ScriptedOpenAI) -> None:
    """Graphiti's reranker asks for one of two of them."""
    client.script("True", "True")
    bias: Any = {"6432": 1, "7983": 1}
    made = chat(client, logit_bias=bias, max_tokens=1, logprobs=True, top_logprobs=2).choices[0]
    assert made.message.content == made.logprobs.content[0].top_logprobs[0].token == "True"
    assert client.completions.create(model="m", prompt="Hi", logit_bias=bias).choices[0].text == "True"
    for wrong in ({"x": 1}, {"6432": 101}):
        with pytest.raises(openai.BadRequestError, match="logit_bias"):
            chat(client, logit_bias=wrong)


def test_a_custom_tool_is_called_with_a_text(client: ScriptedOpenAI) -> None:
    client.script(tool_call("run", 'print("hi")'))
    made = chat(client, tools=[{"type": "custom", "custom": {"name": "run"}}])
    assert made.choices[0].message.tool_calls[0].custom.input == 'print("hi")'


def test_a_call_of_a_tool_that_is_not_offered_is_a_mistake_of_the_script_unless_it_says_so(
    client: ScriptedOpenAI,
) -> None:
    client.script(tool_call("get_wether"), tool_call("invented", offered=False))
    with pytest.raises(UnexpectedRequest, match=r"calls 'get_wether', but .* offers only get_weather"):
        chat(client, tools=CHAT_TOOLS)
    assert chat(client, tools=CHAT_TOOLS).choices[0].message.tool_calls[0].function.name == "invented"


class City(pydantic.BaseModel):
    name: str
    people: int


def test_models_and_dicts_are_played_as_json_and_parsed(client: ScriptedOpenAI) -> None:
    client.script(City(name="Paris", people=2), {"name": "Rome", "people": 3}, City(name="Oslo", people=1))
    for expected in ("Paris", "Rome"):
        made = client.chat.completions.parse(
            model="m", messages=[{"role": "user", "content": "Hi"}], response_format=City
        )
        assert made.choices[0].message.parsed.name == expected
    assert client.responses.parse(model="m", input="Hi", text_format=City).output_parsed == City(name="Oslo", people=1)


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_no_content(client: ScriptedOpenAI, stream: bool) -> None:
    client.script(refusal("I will not."), refusal("I will not."))
    if stream:
        chunks = [chunk.choices[0].delta for chunk in chat(client, stream=True)]
        assert "".join(delta.refusal or "" for delta in chunks) == "I will not."
        assert not any(delta.content for delta in chunks)
        events = list(client.responses.create(model="m", input="Hi", stream=True))
        assert "".join(e.delta for e in events if e.type == "response.refusal.delta") == "I will not."
        assert not [e.type for e in events if "output_text" in e.type]
        response = events[-1].response
    else:
        message = chat(client).choices[0].message
        assert (message.refusal, message.content) == ("I will not.", None)
        response = client.responses.create(model="m", input="Hi")
        revalidate(response)
    part = response.output[0].content[0]
    assert (part.type, part.refusal, response.output_text) == ("refusal", "I will not.", "")
    stored = client.responses.retrieve(response.id)
    assert stored.output[0].content[0].type == "refusal"


def test_the_sdk_s_stream_helpers_accept_refusals(client: ScriptedOpenAI) -> None:
    client.script(refusal("No."), refusal("No."))
    with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "Hi"}]) as stream:
        assert stream.get_final_completion().choices[0].message.refusal == "No."
    with client.responses.stream(model="m", input="Hi") as events:
        assert events.get_final_response().output[0].content[0].refusal == "No."


def test_a_content_filter_cuts_an_answer(client: ScriptedOpenAI) -> None:
    client.script(content_filter("Well, "), content_filter(), content_filter("Well, "))
    choice = chat(client).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("content_filter", "Well, ")
    assert [c.choices[0].finish_reason for c in chat(client, stream=True)][-1] == "content_filter"
    response = client.responses.create(model="m", input="Hi")
    assert response.status == "incomplete" and response.incomplete_details.reason == "content_filter"


def test_an_answer_may_be_truncated(client: ScriptedOpenAI) -> None:
    client.script(truncated("one two"))
    assert chat(client).choices[0].finish_reason == "length"


def test_low_level_replies_and_pieces_are_replies_too(client: ScriptedOpenAI) -> None:
    client.script(Reply("abc", finish_reason="length"), ["a", "bc"])
    assert chat(client).choices[0].finish_reason == "length"
    assert contents(chat(client, stream=True)) == ["a", "bc"]


@pytest.mark.parametrize("wrong", [3, None, [None], object(), City])
def test_what_is_no_reply_is_refused_and_says_what_is(client: ScriptedOpenAI, wrong: Any) -> None:
    client.script(wrong)
    with pytest.raises(TypeError, match="is not an answer: script texts, tool_call"):
        chat(client)


# -- functions ----------------------------------------------------------------------------------------------------


def test_a_function_sees_the_request_and_decides(client: ScriptedOpenAI) -> None:
    seen: list[Request] = []

    def decide(request: Request) -> str:
        seen.append(request)
        return request.user.upper()

    client.when().reply(decide).always()
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    ]
    assert said(client, messages=messages, temperature=0.5, tools=CHAT_TOOLS, tool_choice="auto") == "HI"
    (request,) = seen
    assert (request.api, request.model, request.system, request.user) == (
        "chat.completions",
        "gpt-4o",
        "Be brief.",
        "hi",
    )
    assert request.messages == messages and request.tools == CHAT_TOOLS and request.tool_names == ["get_weather"]
    assert request.tool_choice == "auto" and request.parameters == {"temperature": 0.5, "tool_choice": "auto"}
    assert "Be brief." in request.prompt and request.prompt.endswith("<|im_start|>assistant\n")
    assert not request.stream and request.response_format is None
    client.responses.create(
        model="m", input=[{"role": "user", "content": "yo"}], instructions="Shout.", stream=True
    ).close()
    assert (seen[1].api, seen[1].system, seen[1].user, seen[1].stream) == ("responses", "Shout.", "yo", True)


def test_what_a_function_raises_comes_to_the_caller_and_is_not_forgotten(client: ScriptedOpenAI) -> None:
    def fails(request: Request) -> str:
        raise ZeroDivisionError("oh")

    client.script(fails)
    with pytest.raises(ZeroDivisionError, match="oh"):
        chat(client)
    with pytest.raises(IncompleteScript, match="ZeroDivisionError: oh"):
        client.assert_complete()


def test_an_async_function_answers_a_sync_client_also_inside_a_running_loop(client: ScriptedOpenAI) -> None:
    async def decide(request: Request) -> str:
        await anyio.lowlevel.checkpoint()
        return "awaited"

    client.when().reply(decide).always()
    assert said(client) == "awaited"

    async def main() -> None:
        assert said(client) == "awaited"

    anyio.run(main)


@pytest.mark.anyio
async def test_an_async_function_runs_on_its_caller_s_event_loop_and_holds_nobody_up() -> None:
    """More wait than are ever prepared at once, for something that the last of them does."""
    arrived, last = [0], anyio.Event()

    async def decide(request: Request) -> str:
        arrived[0] += 1
        if arrived[0] == 5:
            last.set()
        await last.wait()
        return request.user

    async with AsyncScriptedOpenAI() as client, anyio.create_task_group() as tasks:
        client.when().reply(decide).always()
        answers: list[str] = []

        async def one(text: str) -> None:
            answers.append((await chat(client, text)).choices[0].message.content)

        for i in range(5):
            tasks.start_soon(one, f"{i}")
    assert sorted(answers) == list("01234")


@pytest.mark.anyio
async def test_a_task_that_is_cancelled_while_a_function_decides_leaves_nothing_behind() -> None:
    asked = anyio.Event()

    async def never(request: Request) -> str:
        asked.set()
        await anyio.sleep_forever()
        return ""

    async with AsyncScriptedOpenAI() as client:
        client.script(never, "next")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chat, client)
            await asked.wait()
            tasks.cancel_scope.cancel()
        assert (await chat(client)).choices[0].message.content == "next"


# -- rules ----------------------------------------------------------------------------------------------------------


def test_rules_go_before_the_script_and_the_first_that_matches_answers(client: ScriptedOpenAI) -> None:
    client.when(user="Paris").reply("rain")
    client.when(user=re.compile(r"^Ro\w+$")).reply("sun", "wind")
    client.script("something else")
    assert [said(client, text) for text in ("Rome", "Oslo", "in Paris?", "Rome")] == [
        "sun",
        "something else",
        "rain",
        "wind",
    ]
    client.assert_complete()


@pytest.mark.parametrize(
    ("criteria", "matching", "other"),
    [
        ({"system": "brief"}, {"messages": [{"role": "developer", "content": "Be brief"}]}, {}),
        ({"tool": "get_weather"}, {"tools": CHAT_TOOLS}, {}),
        ({"model": "gpt-4o"}, {}, {"model": "gpt-4o-mini"}),
        ({"model": re.compile("mini")}, {"model": "gpt-4o-mini"}, {}),
        ({"predicate": lambda request: request.parameters.get("temperature") == 0}, {"temperature": 0}, {}),
        ({"user": "Hi", "tool": "get_weather"}, {"tools": CHAT_TOOLS}, {"text": "Yo", "tools": CHAT_TOOLS}),
    ],
)
def test_each_criterion_tells_requests_apart(client: ScriptedOpenAI, criteria: Any, matching: Any, other: Any) -> None:
    client.when(**criteria).reply("matched").always()
    assert said(client, **matching) == "matched"
    with pytest.raises(UnexpectedRequest):
        chat(client, **other)


def test_a_schema_is_told_by_name_class_and_itself(client: ScriptedOpenAI) -> None:
    client.when(schema=City).reply(City(name="Paris", people=1)).times(2)
    client.when(schema="Other").reply("{}")
    messages: Any = [{"role": "user", "content": "Hi"}]
    assert client.chat.completions.parse(model="m", messages=messages, response_format=City).choices[0].message.parsed
    assert client.responses.parse(model="m", input="Hi", text_format=City).output_parsed
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    format = {"type": "json_schema", "json_schema": {"name": "Other", "schema": schema}}
    assert said(client, response_format=format) == "{}"
    client.when(schema=schema).reply("itself")
    assert said(client, response_format=format) == "itself"


def test_a_tool_s_result_is_told_in_both_apis(client: ScriptedOpenAI) -> None:
    client.script(tool_call("get_weather", city="Paris"), tool_call("get_weather", city="Paris"))
    client.when(tool_result="18 degrees").reply("It is warm.").times(2)
    call = chat(client, tools=CHAT_TOOLS).choices[0].message
    result = {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "18 degrees"}
    assert said(client, messages=[{"role": "user", "content": "Hi"}, call, result], tools=CHAT_TOOLS) == "It is warm."
    first = client.responses.create(model="m", input="Hi", tools=FLAT_TOOLS)
    output = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "18 degrees"}
    second = client.responses.create(model="m", previous_response_id=first.id, input=[output], tools=FLAT_TOOLS)
    assert second.output_text == "It is warm."
    assert client.last_call.tool_results == ["18 degrees"]
    client.assert_tool_result("18 degrees")
    client.assert_complete()


def test_a_tool_s_result_is_told_where_more_was_said_behind_it(client: ScriptedOpenAI) -> None:
    """DSPy's agents end each request with instructions."""
    client.script(tool_call("get_weather", city="Paris"), "Warm.", "Yes.")
    asked = {"role": "user", "content": "Hi"}
    call = chat(client, tools=CHAT_TOOLS).choices[0].message
    result = {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "18 degrees"}
    messages = [asked, call, result, {"role": "system", "content": "Go on."}, {"role": "user", "content": "Be brief."}]
    assert said(client, messages=messages, tools=CHAT_TOOLS) == "Warm."
    assert client.last_call.tool_results == ["18 degrees"]
    said(client, messages=[*messages, {"role": "assistant", "content": "Warm."}, asked], tools=CHAT_TOOLS)
    assert client.last_call.tool_results == []  # the model has spoken since


def test_times_and_always_repeat_the_last_reply(client: ScriptedOpenAI) -> None:
    twice = client.when(user="twice").reply("a", "b").times(3)
    client.when(user="ever").reply("c").always()
    assert [said(client, text) for text in ("twice", "ever", "twice", "twice", "ever")] == ["a", "c", "b", "b", "c"]
    with pytest.raises(UnexpectedRequest, match="all of its 3 replies were played"):
        chat(client, "twice")
    with pytest.raises(ValueError, match="cannot be played in 1 times"):
        twice.times(1)


def test_a_wrong_criterion_is_refused(client: ScriptedOpenAI) -> None:
    with pytest.raises(TypeError, match="'usr' is not a criterion; the criteria are api, model, predicate"):
        client.when(usr="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'user' is a string or a compiled"):
        client.when(user=3)  # type: ignore[arg-type]
    client.when(user="Hi")
    with pytest.raises(UnexpectedRequest, match=r"when\(user='Hi'\) matches, but has no reply"):
        chat(client)


def test_an_unexpected_request_says_why_nothing_matched(client: ScriptedOpenAI) -> None:
    client.script("one")
    client.when(user="Paris").reply("rain").always()
    said(client)
    with pytest.raises(UnexpectedRequest) as caught:
        chat(client, "Rome", tools=CHAT_TOOLS)
    assert str(caught.value).splitlines() == [
        "no reply is scripted for chat.completions(model='gpt-4o', user: 'Rome', tools: get_weather)",
        "  all 1 replies of script(...) were played",
        "  when(user='Paris'): user: 'Paris' is not in 'Rome'",
    ]


# -- the prompt's own tokens --------------------------------------------------------------------------------------


def test_logprobs_of_the_prompt_are_made_up_as_those_of_the_answer_are(client: ScriptedOpenAI) -> None:
    client.script(*["one two"] * 4)
    [choice] = client.completions.create(model="m", prompt="Hi", echo=True, logprobs=2).choices
    scored: Any = choice.logprobs
    assert (choice.text, scored.tokens) == ("Hione two", ["H", "i", "one", " two", "<|im_end|>"])
    assert scored.token_logprobs[0] is scored.top_logprobs[0] is None
    assert scored.token_logprobs[1] == scored.token_logprobs[2] < 0
    assert list(scored.top_logprobs[1]) == ["i", "a"]
    [choice] = client.completions.create(
        model="m", prompt="Hi", max_tokens=0, echo=True, extra_body={"prompt_logprobs": 1}
    ).choices
    first, second = choice.prompt_logprobs  # type: ignore[attr-defined]
    assert first is None and second[str(ord("i"))]["rank"] == 1
    *_, last = client.completions.create(model="m", prompt="Hi", echo=True, logprobs=0, stream=True)
    assert last.choices[0].finish_reason == "stop"
    made: Any = chat(client, n=1, extra_body={"prompt_logprobs": 0})
    assert len(made.prompt_logprobs) == made.usage.prompt_tokens
    revalidate(made)

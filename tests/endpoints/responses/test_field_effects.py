"""Fields of responses.create: what each does to the prompt, the answer and the response."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from localai_shim import LocalOpenAI
from localai_shim.endpoints.items.content import unseal
from localai_shim.testing import ScriptedEngine
from tests.conftest import refused
from tests.endpoints.responses.legal import check_response, check_stream
from tests.floats import nearly, plain

Play = Callable[..., tuple[LocalOpenAI, ScriptedEngine]]

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Any = {"type": "function", "name": "weather", "description": "Tells the weather.", "parameters": CITY}
PING: Any = {"type": "function", "name": "ping"}
SHELL: Any = {"type": "custom", "name": "shell", "description": "Runs a command."}
THOUGHT = "<think>\nHm, two.\n</think>\n\nIt is 2."


def called(name: str, **arguments: Any) -> str:
    """A call as Hermes and Qwen write it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def ask(client: LocalOpenAI, **more: Any) -> Any:
    """A response, which is a legal one."""
    made = client.responses.create(**{"model": "m", "input": "Hello", **more})
    if isinstance(made, Response):
        check_response(made)
    return made


def check_it(stream: Any) -> list[Any]:
    """The events of a stream, which is a legal one."""
    events = list(stream)
    check_stream(events)
    return events


def forbidden(client: LocalOpenAI, **more: Any) -> None:
    """The grammar of the request does not let the model say what it would."""
    with pytest.raises(openai.InternalServerError, match="grammar does not allow"):
        ask(client, **more)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


@pytest.fixture
def play() -> Iterator[Play]:
    """Makes clients of an engine that plays replies."""
    engines: list[ScriptedEngine] = []

    def start(*replies: Any, **options: Any) -> tuple[LocalOpenAI, ScriptedEngine]:
        engines.append(ScriptedEngine([*replies], **options))
        return LocalOpenAI(engine=engines[-1]), engines[-1]

    yield start
    for engine in engines:
        engine.close()


# -- what is echoed -------------------------------------------------------------------------------------------------

ECHOED: dict[str, Any] = {
    "instructions": "Be brief.",
    "max_output_tokens": 9,
    "max_tool_calls": 3,
    "metadata": {"topic": "tests"},
    "parallel_tool_calls": False,
    "prompt_cache_key": "key",
    "prompt_cache_retention": "24h",
    "safety_identifier": "me",
    "store": False,
    "temperature": 0.5,
    "top_logprobs": 2,
    "top_p": 0.25,
    "truncation": "auto",
    "user": "me",
}


def test_a_response_says_what_was_asked(play: Play) -> None:
    client, _ = play("Hi.", "Hi.")
    made = ask(client, **ECHOED, reasoning={"effort": "low", "summary": "auto"}, tools=[WEATHER, SHELL])
    assert {name: getattr(made, name) for name in ECHOED} == ECHOED
    assert made.reasoning is not None
    assert (made.reasoning.effort, made.reasoning.summary) == ("low", "auto")
    assert [tool.to_dict() for tool in made.tools] == [{**WEATHER, "strict": True}, SHELL]
    assert (made.id[:5], made.object, made.model, made.background) == ("resp_", "response", "scripted", False)
    assert made.service_tier == "default" and made.previous_response_id is None and made.conversation is None
    [*_, last] = check_it(client.responses.create(model="m", input="Hello", stream=True, **ECHOED))
    assert {name: getattr(last.response, name) for name in ECHOED} == ECHOED


def test_what_is_not_asked_has_openais_defaults(play: Play) -> None:
    client, _ = play("Hi.")
    made = ask(client)
    assert made.text.format.type == "text" and made.text.verbosity == "medium"
    assert (made.tool_choice, made.tools, made.parallel_tool_calls, made.store) == ("auto", [], True, True)
    assert (made.truncation, made.metadata, made.temperature, made.top_p) == ("disabled", {}, 1, 1)
    assert (made.instructions, made.max_output_tokens, made.top_logprobs, made.user) == (None, None, 0, None)


@pytest.mark.parametrize("retention", ["in_memory", "in-memory"])
def test_both_spellings_of_a_retention_are_known(play: Play, retention: str) -> None:
    client, _ = play("Hi.")
    assert ask(client, prompt_cache_retention=retention).prompt_cache_retention == "in_memory"


# -- the answer's length and its tokens -----------------------------------------------------------------------------


def test_a_cut_answer_is_incomplete(client: LocalOpenAI) -> None:
    made = ask(client, max_output_tokens=5, temperature=0)
    assert (made.status, made.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (made.output[-1].status, made.usage.output_tokens, made.completed_at) == ("incomplete", 5, None)
    events = check_it(ask(client, max_output_tokens=5, temperature=0, stream=True))
    assert events[-1].type == "response.incomplete"


def test_max_output_tokens_counts_the_reasoning(play: Play) -> None:
    client, _ = play(THOUGHT)
    made = ask(client, max_output_tokens=3)
    assert [(item.type, item.status) for item in made.output] == [("reasoning", "incomplete")]
    assert made.usage.output_tokens == 3 and made.usage.output_tokens_details.reasoning_tokens == 3
    assert made.output_text == ""


@pytest.mark.parametrize("top", [0, 3])
def test_logprobs_are_those_of_chat_completions(client: LocalOpenAI, top: int) -> None:
    include: Any = ["message.output_text.logprobs"]
    made = ask(client, temperature=0, max_output_tokens=6, include=include, top_logprobs=top)
    chat = client.chat.completions.create(
        model="m", messages=[user("Hello")], temperature=0, max_tokens=6, logprobs=True, top_logprobs=top
    )
    [part] = made.output[0].content
    assert chat.choices[0].logprobs is not None and chat.choices[0].logprobs.content is not None
    expected = [entry.to_dict() for entry in chat.choices[0].logprobs.content]
    assert plain(part.logprobs) == nearly(expected)
    assert [len(entry.top_logprobs) for entry in part.logprobs] == [top] * 6
    events = ask(client, temperature=0, max_output_tokens=6, include=include, top_logprobs=top, stream=True)
    told = [one for event in check_it(events) if event.type == "response.output_text.delta" for one in event.logprobs]
    assert [[one.token, one.logprob] for one in told] == nearly([[each["token"], each["logprob"]] for each in expected])


def test_logprobs_come_where_they_are_asked_for(client: LocalOpenAI) -> None:
    assert ask(client, max_output_tokens=3).output[0].content[0].logprobs == []
    assert len(ask(client, max_output_tokens=3, top_logprobs=1).output[0].content[0].logprobs) == 3


# -- formats --------------------------------------------------------------------------------------------------------


def test_a_schema_is_followed(builtin: LocalOpenAI) -> None:
    properties = {"name": {"enum": ["Ann", "Bob"]}, "age": {"enum": [1, 2]}}
    required = {"required": ["name", "age"], "additionalProperties": False}
    schema = {"type": "object", "properties": properties, **required}
    format = {"type": "json_schema", "name": "person", "schema": schema, "strict": True, "description": "Somebody."}
    made = ask(builtin, input="Ann is one year old.", text={"format": format}, max_output_tokens=40)
    assert made.status == "completed" and set(json.loads(made.output_text)) == {"name", "age"}
    assert made.text.format.to_dict() == format


def test_a_json_object_is_one(builtin: LocalOpenAI) -> None:
    made = ask(
        builtin,
        input="Give me JSON with the name Ann and the age 30.",
        text={"format": {"type": "json_object"}},
        temperature=0,
    )
    assert isinstance(json.loads(made.output_text), dict) and made.text.format.type == "json_object"


# -- tools ----------------------------------------------------------------------------------------------------------


def test_a_call_is_an_item(play: Play) -> None:
    client, engine = play(called("weather", city="Paris"), called("weather", city="Paris"))
    made = ask(client, tools=[WEATHER, SHELL])
    [item] = made.output
    assert (item.type, item.name, json.loads(item.arguments)) == ("function_call", "weather", {"city": "Paris"})
    assert item.status == made.status == "completed" and item.id.startswith("fc_") and item.call_id.startswith("call_")
    assert '"name": "weather"' in engine.prompts[0] and '"name": "shell"' in engine.prompts[0]
    events = check_it(ask(client, tools=[WEATHER], stream=True))
    assert events[-1].response.output[0].arguments == item.arguments


def test_a_custom_call_has_its_input(play: Play) -> None:
    client, _ = play(called("shell", input="ls -l"), called("shell", input="ls -l"))
    [item] = ask(client, tools=[SHELL]).output
    assert (item.type, item.name, item.input) == ("custom_tool_call", "shell", "ls -l")
    check_it(ask(client, tools=[SHELL], stream=True))


@pytest.mark.parametrize(("syntax", "definition"), [("regex", "[0-9]{3}"), ("lark", "start: /[0-9]/ /[0-9]/ /[0-9]/")])
def test_a_custom_tool_has_a_grammar(builtin: LocalOpenAI, syntax: str, definition: str) -> None:
    dial = {"type": "custom", "name": "dial", "format": {"type": "grammar", "syntax": syntax, "definition": definition}}
    [item] = ask(builtin, tools=[dial], tool_choice={"type": "custom", "name": "dial"}).output
    assert (item.type, item.name) == ("custom_tool_call", "dial")
    assert item.input.isdecimal() and len(item.input) == 3


FORCING: list[Any] = [
    "required",
    {"type": "function", "name": "ping"},
    {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "ping"}]},
]


@pytest.mark.parametrize("choice", FORCING, ids=str)
def test_a_forced_call_is_made(play: Play, choice: Any) -> None:
    options = {"tools": [PING, SHELL], "tool_choice": choice}
    client, _ = play(called("ping"), "Hello.", called("shell", input="ls"), obey_constraints=True)
    made = ask(client, **options)
    assert [item.type for item in made.output] == ["function_call"]
    said = made.tool_choice if isinstance(made.tool_choice, str) else made.tool_choice.to_dict()
    assert said == choice
    forbidden(client, **options)
    if choice != "required":
        forbidden(client, **options)


def test_tools_beside_the_allowed_ones_are_shown_and_not_called(play: Play) -> None:
    client, engine = play("Hello.", called("ping"), called("shell", input="ls"), obey_constraints=True)
    only: Any = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "ping"}]}
    options = {"tools": [PING, SHELL], "tool_choice": only}
    assert ask(client, **options).output_text == "Hello."
    assert ask(client, **options).output[0].name == "ping"
    forbidden(client, **options)
    assert all('"name": "shell"' in prompt for prompt in engine.prompts)


def test_tools_are_shown_where_none_may_be_called(play: Play) -> None:
    client, engine = play("Hello.", "Hello.")
    made = ask(client, tools=[PING], tool_choice="none")
    ask(client, tools=[PING])
    assert engine.prompts[0] == engine.prompts[1] and made.tool_choice == "none" and made.tools[0].name == "ping"


def test_parallel_calls_are_one_where_they_are_not_wanted(play: Play) -> None:
    both = called("ping") + "\n" + called("weather", city="Rome")
    client, _ = play(both, called("ping"), both, obey_constraints=True)
    assert [item.name for item in ask(client, tools=[PING, WEATHER]).output] == ["ping", "weather"]
    assert len(ask(client, tools=[PING, WEATHER], parallel_tool_calls=False).output) == 1
    forbidden(client, tools=[PING, WEATHER], parallel_tool_calls=False)


def test_a_function_is_strict_where_it_does_not_say(play: Play) -> None:
    wrong = called("weather", town="Paris")
    client, _ = play(wrong, wrong, obey_constraints=True)
    forbidden(client, tools=[WEATHER])
    made = ask(client, tools=[{**WEATHER, "strict": False}])
    assert json.loads(made.output[0].arguments) == {"town": "Paris"} and made.tools[0].strict is False


def test_a_schema_that_no_grammar_can_hold_makes_a_function_loose(play: Play) -> None:
    odd = {**WEATHER, "parameters": {"type": "object", "properties": {"city": {"type": "town"}}}}
    client, _ = play(called("weather", city=1))
    made = ask(client, tools=[odd, PING])
    assert [tool.strict for tool in made.tools] == [False, False] and made.output[0].name == "weather"


def test_what_cannot_be_read_as_a_call_is_kept_apart(play: Play) -> None:
    client, _ = play("Well. <tool_call>\n{nonsense\n</tool_call>")
    made = ask(client, tools=[{**PING, "strict": False}])
    [invalid] = made.invalid_tool_calls
    assert "{nonsense" in invalid["text"] and invalid["error"] and made.output_text.strip() == "Well."


def test_an_answer_that_cannot_be_read_is_a_message_rather_than_nothing(play: Play) -> None:
    text = "<tool_call>\n{nonsense\n</tool_call>"
    client, _ = play(text, text)
    tools = [{**PING, "strict": False}]
    events = list(ask(client, tools=tools, stream=True))
    assert ask(client, tools=tools).output_text == events[-1].response.output_text == text
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == text


def test_a_broken_call_is_an_item_with_its_arguments_as_they_stand(play: Play) -> None:
    text = '<tool_call>\n{"name": "ping", "arguments": {"a": x}}\n</tool_call>'
    client, _ = play(text, text)
    tools = [{**PING, "strict": False}]
    for made in (ask(client, tools=tools), list(ask(client, tools=tools, stream=True))[-1].response):
        [item] = made.output
        assert (item.type, item.name, item.arguments, item.status) == ("function_call", "ping", '{"a": x}', "completed")
        assert not getattr(made, "invalid_tool_calls", None)


# -- reasoning ------------------------------------------------------------------------------------------------------


def test_reasoning_is_text_or_its_own_summary(play: Play) -> None:
    client, _ = play(*[THOUGHT] * 4)
    plain = ask(client).output[0]
    assert (plain.summary, [part.text for part in plain.content]) == ([], ["Hm, two."])
    told = ask(client, reasoning={"summary": "auto"}).output[0]
    assert (told.content, [part.text for part in told.summary]) == (None, ["Hm, two."])
    for reasoning in (None, {"summary": "detailed"}):
        check_it(ask(client, reasoning=reasoning, stream=True))


@pytest.mark.parametrize("effort", ["none", "minimal"])
def test_no_effort_is_no_reasoning(play: Play, effort: str) -> None:
    client, engine = play("2.", THOUGHT)
    ask(client, reasoning={"effort": effort})
    ask(client, reasoning={"effort": "high"})
    assert [prompt.endswith("<think>\n\n</think>\n\n") for prompt in engine.prompts] == [True, False]


@pytest.mark.parametrize("reasoning", [None, {"summary": "auto"}], ids=["text", "summary"])
def test_encrypted_reasoning_takes_the_place_of_what_is_stored(play: Play, reasoning: Any) -> None:
    client, engine = play(*[THOUGHT, "Yes."] * 2)
    first = ask(client, store=False, include=["reasoning.encrypted_content"], reasoning=reasoning)
    items = [item.to_dict() for item in first.output]
    assert items[0]["encrypted_content"] and "Hm" not in items[0]["encrypted_content"]
    items[0] = {name: items[0][name] for name in ("id", "type", "encrypted_content")} | {"summary": []}
    ask(client, store=False, input=[user("Hello"), *items, user("Sure?")])
    stored = ask(client)
    ask(client, input="Sure?", previous_response_id=stored.id)
    assert engine.prompts[1] == engine.prompts[3] and "Hm, two." in engine.prompts[1]
    assert "encrypted_content" not in stored.output[0].to_dict()


def test_reasoning_that_somebody_else_encrypted_is_left_out(play: Play) -> None:
    client, engine = play("Yes.", "Yes.")
    foreign = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABo"}
    ask(client, input=[user("Hello"), foreign, {"role": "assistant", "content": "Hi."}, user("Sure?")])
    ask(client, input=[user("Hello"), {"role": "assistant", "content": "Hi."}, user("Sure?")])
    assert engine.prompts[0] == engine.prompts[1]


# -- context --------------------------------------------------------------------------------------------------------


def test_instructions_are_not_inherited(play: Play) -> None:
    client, engine = play(*["Hi."] * 3)
    first = ask(client, instructions="Talk like a pirate.")
    ask(client, previous_response_id=first.id)
    last = ask(client, previous_response_id=first.id, instructions="Talk like a poet.")
    assert ["pirate" in prompt for prompt in engine.prompts] == [True, False, False]
    assert engine.prompts[2].startswith("<|im_start|>system\nTalk like a poet.<|im_end|>")
    assert last.instructions == "Talk like a poet." and last.previous_response_id == first.id


def test_a_referenced_item_is_as_if_it_were_sent(play: Play) -> None:
    client, engine = play(*["Blue."] * 3)
    first = ask(client, input="Which colour?")
    said = first.output[0]
    again = [user("Which colour?"), {"type": "item_reference", "id": said.id}, user("Why?")]
    ask(client, input=again)
    ask(client, input=[user("Which colour?"), said.to_dict(), user("Why?")])
    assert engine.prompts[1] == engine.prompts[2] and "Blue." in engine.prompts[1]


def test_the_oldest_turns_go_where_they_may(play: Play) -> None:
    turns = [
        user("First " * 20),
        {"type": "function_call", "call_id": "call_1", "name": "ping", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "pong"},
        {"role": "assistant", "content": "One."},
        user("Second"),
        {"role": "assistant", "content": "Two."},
        user("Third"),
    ]
    rules = [{"role": "system", "content": "Rules."}, *turns]
    client, engine = play("Three.", "Three.", context_length=240)
    made = ask(client, input=rules, truncation="auto", max_output_tokens=20)
    ask(client, input=[rules[0], *rules[5:]], max_output_tokens=20)
    assert engine.prompts[0] == engine.prompts[1]
    assert "Rules." in engine.prompts[0] and "Second" in engine.prompts[0] and "pong" not in engine.prompts[0]
    assert [item.type for item in client.responses.input_items.list(made.id, order="asc")][:2] == ["message", "message"]
    assert len(client.responses.input_items.list(made.id).data) == len(rules), "what was sent is kept whole"
    with refused("input", "context_length_exceeded", "maximum context length is 240 tokens"):
        ask(client, input=rules)


def test_room_is_made_for_the_answer(model_path: Path) -> None:
    items = [user("word " * 12), {"role": "assistant", "content": "Yes."}, user("Go on")]
    with LocalOpenAI(model_path, context_length=96) as narrow:
        count = narrow.responses.input_tokens.count(model="m", input=items).input_tokens
        assert 48 < count < 96
        cut = ask(narrow, input=items, truncation="auto", max_output_tokens=64)
        whole = ask(narrow, input=items, max_output_tokens=64)
    assert cut.usage.input_tokens < count == whole.usage.input_tokens
    assert whole.usage.total_tokens <= 96 and cut.usage.input_tokens + 64 <= 96


def test_a_compaction_stands_for_what_was_said(play: Play) -> None:
    client, engine = play("They spoke of Rome.", "Yes.")
    made = client.responses.compact(
        model="m", input=[user("Where is Rome?"), {"role": "assistant", "content": "Italy."}]
    )
    [item] = made.output
    assert (made.object, item.type) == ("response.compaction", "compaction")
    ask(client, input=[item.to_dict(), user("And Paris?")])
    assert "They spoke of Rome." in engine.prompts[1] and "Italy." not in engine.prompts[1]
    with refused("tools", "unsupported_parameter", "A summary calls no tools"):
        client.responses.compact(model="m", input="Hello", extra_body={"tools": [PING]})


def test_a_compaction_follows_a_format(builtin: LocalOpenAI) -> None:
    options = ["Nothing was said.", "Hello was said."]
    made: Any = builtin.responses.compact(model="m", input="Hello", extra_body={"guided_choice": options})
    assert unseal(made.output[0].encrypted_content) in options

"""Equal input through chat.completions and responses: equal prompts, equal tokens, equal counts."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.endpoints.responses.legal import check_response, check_stream
from tests.samples import only

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {"name": "get_weather", "description": "Tells the weather in a city.", "parameters": CITY}
SHELL = {"name": "shell", "description": "Runs a command."}
ARGUMENTS = '{"city": "Paris"}'

# name -> messages of chat.completions, and the same as input items
HISTORIES: dict[str, tuple[Any, Any]] = {
    "a string": ([{"role": "user", "content": "Hello there"}], "Hello there"),
    "turns": (
        [
            {"role": "system", "content": "Answer in one sentence."},
            {"role": "user", "content": "What is the capital of France?"},
            {"role": "assistant", "content": "The capital of France is Paris."},
            {"role": "user", "content": [{"type": "text", "text": "And of "}, {"type": "text", "text": "Italy?"}]},
        ],
        [
            {"role": "system", "content": "Answer in one sentence."},
            {"type": "message", "role": "user", "content": "What is the capital of France?"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "The capital of France is Paris."}]},
            {
                "role": "user",
                "content": [{"type": "input_text", "text": "And of "}, {"type": "input_text", "text": "Italy?"}],
            },
        ],
    ),
    "a call": (
        [
            {"role": "user", "content": "What is the weather in Paris?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": ARGUMENTS},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "18 degrees and sunny"},
        ],
        [
            {"role": "user", "content": "What is the weather in Paris?"},
            {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": ARGUMENTS},
            {"type": "function_call_output", "call_id": "call_1", "output": "18 degrees and sunny"},
        ],
    ),
    "words, thoughts and two calls": (
        [
            {"role": "developer", "content": "Use the tools."},
            {"role": "user", "content": "List the files, and tell the weather."},
            {
                "role": "assistant",
                "content": "One moment.",
                "reasoning_content": "Two calls.",
                "tool_calls": [
                    {"id": "call_1", "type": "custom", "custom": {"name": "shell", "input": "ls"}},
                    {
                        "id": "call_2",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": ARGUMENTS},
                    },
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "a.txt"},
            {"role": "tool", "tool_call_id": "call_2", "content": "18 degrees"},
            {"role": "assistant", "content": None, "refusal": "I will not say more."},
            {"role": "user", "content": "Why?"},
        ],
        [
            {"role": "developer", "content": "Use the tools."},
            {"role": "user", "content": "List the files, and tell the weather."},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Two calls."}]},
            {"role": "assistant", "content": "One moment."},
            {"type": "custom_tool_call", "call_id": "call_1", "name": "shell", "input": "ls"},
            {"type": "function_call", "call_id": "call_2", "name": "get_weather", "arguments": ARGUMENTS},
            {
                "type": "function_call_output",
                "call_id": "call_2",
                "output": [{"type": "input_text", "text": "18 degrees"}],
            },
            {"type": "custom_tool_call_output", "call_id": "call_1", "output": "a.txt"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not say more."}]},
            {"role": "user", "content": "Why?"},
        ],
    ),
}

# name -> arguments of chat.completions.create, and the same for responses.create
ARGUMENTS_ALIKE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "greedy": ({"temperature": 0, "max_tokens": 24}, {"temperature": 0, "max_output_tokens": 24}),
    "seeded": (
        {"temperature": 1.2, "top_p": 0.9, "seed": 5, "max_tokens": 24},
        {"temperature": 1.2, "top_p": 0.9, "max_output_tokens": 24, "extra_body": {"seed": 5}},
    ),
    "loose tools": (
        {"temperature": 0, "tools": [{"type": "function", "function": WEATHER}], "max_tokens": 40},
        {"temperature": 0, "tools": [{"type": "function", "strict": False, **WEATHER}], "max_output_tokens": 40},
    ),
    "strict tools": (
        {"temperature": 0, "tools": [{"type": "function", "function": {**WEATHER, "strict": True}}], "max_tokens": 40},
        {"temperature": 0, "tools": [{"type": "function", **WEATHER}], "max_output_tokens": 40},
    ),
    "a forced call": (
        {
            "seed": 3,
            "tools": [{"type": "function", "function": WEATHER}, {"type": "custom", "custom": SHELL}],
            "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
            "max_tokens": 40,
        },
        {
            "extra_body": {"seed": 3},
            "tools": [{"type": "function", "strict": False, **WEATHER}, {"type": "custom", **SHELL}],
            "tool_choice": {"type": "function", "name": "get_weather"},
            "max_output_tokens": 40,
        },
    ),
    "a schema": (
        {
            "seed": 3,
            "response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}},
            "max_tokens": 40,
        },
        {
            "extra_body": {"seed": 3},
            "text": {"format": {"type": "json_schema", "name": "city", "schema": CITY}},
            "max_output_tokens": 40,
        },
    ),
}
EXTRAS: dict[str, dict[str, Any]] = {
    "top_k": {"top_k": 2},
    "min_p": {"min_p": 0.2},
    "repetition_penalty": {"repetition_penalty": 1.3},
    "penalties": {"presence_penalty": 1.5, "frequency_penalty": 0.5},
    "logit_bias": {"logit_bias": {"75": 20, "76": 20}},
    "stop": {"stop": ["e", "o"]},
    "min_tokens": {"min_tokens": 6, "stop": "a"},
    "ignore_eos": {"ignore_eos": True},
    "priority": {"priority": 3, "cache_salt": "mine"},
    "guided_choice": {"guided_choice": ["yes", "no"]},
    "guided_regex": {"guided_regex": "[a-c]{4}"},
    "guided_json": {"guided_json": {"enum": [1, 2]}},
    "guided_grammar": {"guided_grammar": 'start: "x" "y"'},
    "chat_template_kwargs": {"chat_template_kwargs": {"enable_thinking": False}},
    "thinking": {"enable_thinking": True, "thinking_budget": 4},
    "reasoning_effort": {"reasoning_effort": "none"},
}


def of_chat(completion: Any) -> dict[str, Any]:
    """What a completion says, in terms that both APIs have."""
    message, usage = completion.choices[0].message, completion.usage
    return {
        "text": message.content or "",
        "reasoning": getattr(message, "reasoning_content", None) or "",
        "calls": [
            (call.function.name, call.function.arguments)
            if call.type == "function"
            else (call.custom.name, call.custom.input)
            for call in message.tool_calls or []
        ],
        "cut": completion.choices[0].finish_reason == "length",
        "usage": (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens),
        "thought": usage.completion_tokens_details.reasoning_tokens,
    }


def of_response(response: Any) -> dict[str, Any]:
    """What a response says, in the same terms."""
    check_response(response)
    usage = response.usage
    return {
        "text": response.output_text,
        "reasoning": "".join(
            part.text for item in response.output if item.type == "reasoning" for part in item.content
        ),
        "calls": [
            (item.name, item.arguments if item.type == "function_call" else item.input)
            for item in response.output
            if item.type.endswith("_call")
        ],
        "cut": response.status == "incomplete",
        "usage": (usage.input_tokens, usage.output_tokens, usage.total_tokens),
        "thought": usage.output_tokens_details.reasoning_tokens,
    }


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("tools", ["no tools", "loose tools", "a forced call"])
def test_prompts_and_requests_are_equal(history: str, tools: str) -> None:
    messages, items = HISTORIES[history]
    chat, responses = ARGUMENTS_ALIKE.get(tools, ({"seed": 1}, {"extra_body": {"seed": 1}}))
    chat = {"seed": 1, **chat}
    responses = {"extra_body": {"seed": chat["seed"]}, **responses}
    with ScriptedEngine(["Hi.", "Hi."]) as engine:
        client = LocalOpenAI(engine=engine)
        client.chat.completions.create(**{"model": "m", "messages": messages, **chat})
        client.responses.create(**{"model": "m", "input": items, **responses})
    first, second = engine.requests
    assert engine.prompts[0] == engine.prompts[1]
    assert first.prompt.boundaries == second.prompt.boundaries and first.max_tokens == second.max_tokens
    assert replace(first.sampling, top_logprobs=None) == replace(second.sampling, top_logprobs=None)
    assert (first.constraint is None) == (second.constraint is None)


def test_instructions_are_a_system_message() -> None:
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    with ScriptedEngine(["Hi.", "Hi."]) as engine:
        client = LocalOpenAI(engine=engine)
        client.chat.completions.create(model="m", messages=messages)
        client.responses.create(model="m", instructions="Be brief.", input="Hello")
    assert engine.prompts[0] == engine.prompts[1]


EACH_ONCE = [
    ("greedy", "a call"),
    ("seeded", "turns"),
    ("loose tools", "turns"),
    ("strict tools", "a call"),
    ("a forced call", "turns"),
    ("a schema", "a call"),
]
"""All arguments, and both histories."""


@pytest.mark.parametrize(
    ("arguments", "history"), only(EACH_ONCE, itertools.product(ARGUMENTS_ALIKE, ["turns", "a call"]))
)
def test_tokens_are_equal(builtin: LocalOpenAI, history: str, arguments: str) -> None:
    messages, items = HISTORIES[history]
    chat, responses = ARGUMENTS_ALIKE[arguments]
    expected = of_chat(builtin.chat.completions.create(**{"model": "m", "messages": messages, **chat}))
    assert of_response(builtin.responses.create(**{"model": "m", "input": items, **responses})) == expected
    if arguments == "a forced call":
        assert [name for name, _ in expected["calls"]] == ["get_weather"]
    events: Any = list(builtin.responses.create(**{"model": "m", "input": items, "stream": True, **responses}))
    check_stream(events)
    assert of_response(events[-1].response) == expected
    of_prompt = {key: value for key, value in responses.items() if key in ("tools", "text", "tool_choice")}
    counted = builtin.responses.input_tokens.count(model="m", input=items, **of_prompt)
    assert counted.input_tokens == expected["usage"][0]


@pytest.mark.parametrize("name", EXTRAS)
def test_fields_of_extra_body_do_the_same(builtin: LocalOpenAI, name: str) -> None:
    messages, items = HISTORIES["a string"]
    extra = {"seed": 7, **EXTRAS[name]}
    chat = builtin.chat.completions.create(model="m", messages=messages, max_tokens=12, extra_body=extra)
    made = builtin.responses.create(model="m", input=items, max_output_tokens=12, extra_body=extra)
    assert of_response(made) == of_chat(chat)


@pytest.mark.parametrize("effort", ["none", "high"])
def test_effort_does_the_same(builtin: LocalOpenAI, effort: Any) -> None:
    messages, items = HISTORIES["a string"]
    chat = builtin.chat.completions.create(
        model="m",
        messages=messages,
        temperature=0,
        max_tokens=24,
        reasoning_effort=effort,
    )
    made = builtin.responses.create(
        model="m", input=items, temperature=0, max_output_tokens=24, reasoning={"effort": effort}
    )
    assert of_response(made) == of_chat(chat)
    assert (of_chat(chat)["thought"] > 0) == (effort == "high")


def test_a_chain_says_what_the_whole_history_says(builtin: LocalOpenAI) -> None:
    """What a chain has stored reads as the messages that chat.completions is sent."""
    messages: list[Any] = []
    previous = None
    for question in ("What is the capital of France?", "What is the capital of Italy?", "And of Spain?"):
        messages.append({"role": "user", "content": question})
        chat = builtin.chat.completions.create(model="m", messages=messages, temperature=0, max_tokens=24)
        made = builtin.responses.create(
            model="m", input=question, temperature=0, max_output_tokens=24, previous_response_id=previous
        )
        assert of_response(made) == of_chat(chat)
        messages.append({"role": "assistant", "content": chat.choices[0].message.content})
        previous = made.id


@pytest.mark.anyio
async def test_the_async_client_says_the_same(async_client: AsyncLocalOpenAI, client: LocalOpenAI) -> None:
    messages, items = HISTORIES["turns"]
    chat, responses = ARGUMENTS_ALIKE["seeded"]
    expected = of_chat(client.chat.completions.create(**{"model": "m", "messages": messages, **chat}))
    made = await async_client.responses.create(**{"model": "m", "input": items, **responses})
    assert of_response(made) == expected
    events = [
        event
        async for event in await async_client.responses.create(
            **{"model": "m", "input": items, "stream": True, **responses}
        )
    ]
    check_stream(events)
    assert of_response(events[-1].response) == expected

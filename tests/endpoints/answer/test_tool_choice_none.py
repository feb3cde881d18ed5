"""`tool_choice="none"`: the model is shown the tools and may call none.

Before, the tools were taken out of the prompt, which then was another one than the other turns' of the same agent: what
they had left in the prefix cache was lost.
"""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine, ScriptedTokenizer
from tests.endpoints.functions import PING, TEXT, TOOLS, WEATHER, call, function
from tests.endpoints.scripting import ask

FUNCTIONS = [tool["function"] for tool in TOOLS]
ASK: Any = function("get_weather", city=TEXT)
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
FLAT = {"type": "function", **ASK["function"]}
SILENT: Any = {"thinking_budget": 0}  # a model that may not call would rather think
NONE: list[dict[str, Any]] = [
    {"tools": TOOLS, "tool_choice": "none"},
    {"functions": FUNCTIONS, "function_call": "none"},
    {"tools": TOOLS, "tool_choice": "none", "parallel_tool_calls": False},
    {"tools": TOOLS, "tool_choice": "none", "response_format": {"type": "json_object"}},
    {"tools": TOOLS, "tool_choice": "none", "extra_body": {"guided_regex": "[a-z. ]+"}},
]


# -- a model that wants to call -------------------------------------------------------------------------------------


def test_the_prompt_is_that_of_auto_and_stays_in_the_prefix_cache(builtin: LocalOpenAI) -> None:
    """In a fresh salt, so that no other test has been there."""

    def turn(choice: str) -> Any:
        return builtin.chat.completions.create(
            model="any",
            messages=QUESTION,
            tools=[ASK],
            tool_choice=choice,  # type: ignore[arg-type]
            temperature=0,
            extra_body={"cache_salt": "none", **SILENT},
        )

    first, none, again = [turn(choice) for choice in ("auto", "none", "auto")]
    assert [bool(made.choices[0].message.tool_calls) for made in (first, none, again)] == [True, False, True]
    assert none.choices[0].message.content and none.choices[0].finish_reason == "stop"
    cached = [made.usage.prompt_tokens_details.cached_tokens for made in (first, none, again)]
    prompt = first.usage.prompt_tokens
    assert none.usage.prompt_tokens == again.usage.prompt_tokens == prompt
    assert cached[0] == 0 and cached[1] == cached[2] >= prompt - 1


def test_responses_do_as_chat_does(builtin: LocalOpenAI) -> None:
    def turn(choice: Any) -> Any:
        return builtin.responses.create(
            model="any",
            input=QUESTION,
            tools=[FLAT],  # type: ignore[list-item]
            tool_choice=choice,
            temperature=0,
            store=False,
            extra_body={"cache_salt": "none in responses", **SILENT},
        )

    first, none, again = turn("auto"), turn("none"), turn("auto")
    assert [made.output[0].type for made in (first, none, again)] == ["function_call", "message", "function_call"]
    assert none.output_text
    assert none.usage.input_tokens_details.cached_tokens == again.usage.input_tokens_details.cached_tokens > 0
    assert none.usage.input_tokens == first.usage.input_tokens


def test_content_streams_and_no_neighbour_notices(builtin: LocalOpenAI) -> None:
    def alone(choice: str) -> str:
        chunks = builtin.chat.completions.create(
            model="any",
            messages=QUESTION,
            tools=[ASK],
            tool_choice=choice,
            temperature=0,
            stream=True,
            extra_body=SILENT,  # type: ignore[call-overload]
        )
        deltas = [chunk.choices[0].delta for chunk in chunks]
        if choice == "none":
            assert sum(bool(delta.content) for delta in deltas) > 1
            assert not any(delta.tool_calls for delta in deltas)
        return json.dumps([[d.content, [c.function.arguments for c in d.tool_calls or []]] for d in deltas])

    apart = [alone(choice) for choice in ("auto", "none")]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(alone, ["auto", "none"] * 2))
    assert together == apart * 2


def test_reasoning_and_sampling_do_not_lead_to_a_call(builtin: LocalOpenAI) -> None:
    made = builtin.chat.completions.create(
        model="any",
        messages=QUESTION,
        tools=[ASK],
        tool_choice="none",
        n=4,
        temperature=1.5,
        max_tokens=30,
        extra_body={"enable_thinking": True, "thinking_budget": 10},
    )
    for choice in made.choices:
        assert choice.message.tool_calls is None
        assert not getattr(choice.message, "invalid_tool_calls", None)


# -- what forbids it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", NONE, ids=["tools", "functions", "one at a time", "json", "regex"])
def test_a_call_is_not_allowed_to_begin(more: dict[str, Any]) -> None:
    begins = '{"a": 1' if "response_format" in more else "so"
    with ScriptedEngine([call("ping", {}), begins + call("ping", {})], obey_constraints=True) as engine:
        client = LocalOpenAI(engine=engine)
        for _ in range(2):
            with pytest.raises(openai.InternalServerError, match=r"does not allow: \W+<tool_call>"):
                ask(client, **more)


def test_a_token_that_begins_calls_is_ruled_out_without_a_guide() -> None:
    """A constraint would make the engine wait for each token of the whole batch."""
    with ScriptedEngine(["Hi."]) as engine:
        ask(LocalOpenAI(engine=engine), tools=TOOLS, tool_choice="none", logit_bias={"65": 3})
        [request] = engine.requests
        assert request.constraint is None
        assert request.sampling.logit_bias == {65: 3, engine.tokenizer.encode("<tool_call>")[0]: -math.inf}


@pytest.mark.parametrize("fine", ["Hi.", "<think>Hm.</think>Hi.", 'You write {"name": "ping"}.'])
def test_everything_else_may_be_said(fine: str) -> None:
    with ScriptedEngine([fine], obey_constraints=True) as engine:
        made = ask(LocalOpenAI(engine=engine), tools=TOOLS, tool_choice="none").choices[0].message
        assert made.content == fine.rpartition("</think>")[2] and made.tool_calls is None


SPELT = ScriptedTokenizer(tool_format="minicpm5", tool_markers=("<fn", "</fn>"))
"""A format whose marker is text to this tokenizer."""


def test_a_marker_that_is_text_is_ruled_out_by_a_grammar() -> None:
    said = '<function name="ping"></function>'
    with ScriptedEngine(["A <function of x.", f"So {said}"], tokenizer=SPELT, obey_constraints=True) as engine:
        client = LocalOpenAI(engine=engine)
        assert ask(client, tools=TOOLS, tool_choice="none").choices[0].message.content == "A <function of x."
        with pytest.raises(openai.InternalServerError, match="grammar does not allow"):
            ask(client, tools=TOOLS, tool_choice="none")


def harmony() -> ScriptedTokenizer:
    markers = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|return|>", "<|constrain|>")
    return ScriptedTokenizer(think=None, tool_format="harmony", tool_markers=("<|call|>", ""), markers=markers)


def test_gpt_oss_may_think_and_answer_and_not_address_a_function() -> None:
    thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    final = f"{thought}<|channel|>final<|message|>Hi."
    addressed = f"{thought}<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{{}}"
    with ScriptedEngine([final, addressed], tokenizer=harmony(), obey_constraints=True) as engine:
        client = LocalOpenAI(engine=engine)
        made = ask(client, tools=TOOLS, tool_choice="none").choices[0].message
        assert (made.content, made.reasoning_content) == ("Hi.", "Hm.")
        with pytest.raises(openai.InternalServerError, match="grammar does not allow"):
            ask(client, tools=TOOLS, tool_choice="none")


def test_a_marker_of_several_tokens_may_not_be_completed() -> None:
    """Of a model whose answers and calls begin with the same token, such as Kimi K3."""
    tokenizer = ScriptedTokenizer(
        think=None, tool_format="kimi_k3", tool_markers=("<|open|>", ""), markers=("<|sep|>", "<|close|>")
    )
    replies = ["<|open|>response<|sep|>Hi.<|close|>response<|sep|>", ["<|open|>", *"tools", "<|sep|>"]]
    with ScriptedEngine(replies, tokenizer=tokenizer, obey_constraints=True) as engine:
        client = LocalOpenAI(engine=engine)
        assert ask(client, tools=[PING], tool_choice="none").choices[0].message.content == "Hi."
        with pytest.raises(openai.InternalServerError, match="does not allow: 't' after"):
            ask(client, tools=[PING], tool_choice="none")


def test_all_that_begins_calls_is_ruled_out() -> None:
    """Markers that are tokens without a constraint, others by a grammar."""
    tokens = ScriptedTokenizer(
        tool_format="gigachat31", tool_markers=("<|function_call|>", ""), markers=["<|role_sep|>"]
    )
    granite = ScriptedTokenizer(tool_format="granite3", tool_markers=("<|tool_call|>", ""), markers=["<tool_call>"])
    with ScriptedEngine(["Hi."], tokenizer=granite) as engine:
        ask(LocalOpenAI(engine=engine), tools=TOOLS, tool_choice="none")
        [request] = engine.requests
        ruled_out = [engine.tokenizer.encode(marker)[0] for marker in ("<|tool_call|>", "<tool_call>")]
        assert request.constraint is None and request.sampling.logit_bias == dict.fromkeys(ruled_out, -math.inf)
    for said in ("<|function_call|>", "function call<|role_sep|>"):
        replies = ["My function call is over.", f"So {said}\n"]
        with ScriptedEngine(replies, tokenizer=tokens, obey_constraints=True) as engine:
            client = LocalOpenAI(engine=engine)
            assert ask(client, tools=TOOLS, tool_choice="none").choices[0].message.content == replies[0]
            with pytest.raises(openai.InternalServerError, match="does not allow"):
                ask(client, tools=TOOLS, tool_choice="none")


@pytest.mark.parametrize("name", ["llama3_json", "pythonic"])
def test_without_markers_nothing_is_ruled_out_and_nothing_is_read_as_a_call(name: str) -> None:
    said = '{"name": "ping", "parameters": {}}' if name == "llama3_json" else "[ping()]"
    tokenizer = ScriptedTokenizer(tool_format=name, tool_markers=("", ""))
    with ScriptedEngine([said], tokenizer=tokenizer) as engine:
        made = ask(LocalOpenAI(engine=engine), tools=TOOLS, tool_choice="none").choices[0].message
        assert (made.content, made.tool_calls) == (said, None)
        assert engine.requests[0].constraint is None and not engine.requests[0].sampling.logit_bias


def test_a_template_without_a_place_for_tools_gets_none() -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with ScriptedEngine(["Hi."], tokenizer=ScriptedTokenizer(chat_template=template)) as engine:
        made = ask(LocalOpenAI(engine=engine), tools=[WEATHER], tool_choice="none")
        assert made.choices[0].message.content == "Hi."

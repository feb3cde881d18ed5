"""Budgets of thought, and grammars behind it, with models that really sample."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedTokenizer
from tests.endpoints.answer.thoughts import PLAIN, QUESTION, THINKS, body
from tests.endpoints.functions import TEXT, function
from tests.endpoints.scripting import arguments, ask, marked_model, message, reasoning

UNHURRIED: dict[str, Any] = {"messages": QUESTION, "temperature": 0, "max_tokens": 100}


@pytest.fixture(scope="module")
def free(builtin: LocalOpenAI) -> Any:
    """The answer without a budget."""
    return ask(builtin, **UNHURRIED, **body(**THINKS))


@pytest.mark.parametrize("budget", [0, 1, 3, 8])
def test_a_real_model_answers_when_its_budget_is_spent(builtin: LocalOpenAI, free: Any, budget: int) -> None:
    limited = ask(builtin, **UNHURRIED, **body(**THINKS, thinking_budget=budget))
    thought = reasoning(free.choices[0].message)
    assert thought is not None
    assert thought.startswith(reasoning(limited.choices[0].message) or "")
    assert free.choices[0].message.content == "The capital of France is Paris."
    assert limited.choices[0].message.content.endswith("The capital of France is Paris.")
    assert limited.usage.completion_tokens_details.reasoning_tokens == budget + 2  # and the markers
    assert free.usage.completion_tokens_details.reasoning_tokens > 10


@pytest.mark.parametrize("budget", [None, 0, 1, 8])
def test_a_real_model_follows_a_grammar_behind_its_thought(builtin: LocalOpenAI, budget: int | None) -> None:
    schema = {"type": "object", "properties": {"capital": {"enum": ["Paris", "Rome"]}}, "required": ["capital"]}
    format = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    more = THINKS if budget is None else {**THINKS, "thinking_budget": budget}
    made = ask(builtin, messages=QUESTION, temperature=0, max_tokens=60, response_format=format, **body(**more))
    [choice] = made.choices
    assert choice.finish_reason == "stop"
    assert json.loads(choice.message.content)["capital"] in ("Paris", "Rome")
    tokens = made.usage.completion_tokens_details.reasoning_tokens
    assert tokens > 10 if budget is None else tokens == budget + 2


def test_a_thought_comes_before_a_call(builtin: LocalOpenAI) -> None:
    tool = function("get_weather", city=TEXT)
    asked: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
    for choice in ("auto", "required"):
        made = ask(builtin, messages=asked, tools=[tool], tool_choice=choice, temperature=0, **body(**THINKS)).choices[
            0
        ]
        assert (made.finish_reason, made.message.content) == ("tool_calls", None)
        assert reasoning(made.message) == "I need a tool for this."
        assert arguments(made.message) == [("get_weather", {"city": "Paris"})]


MARKERS = ("<think>", "</think>")
TEMPLATE = PLAIN.replace("[assistant]", "[assistant]<think>")


@pytest.fixture(scope="module")
def random_model() -> Any:
    """A model without sense whose template opens a block."""
    with LocalOpenAI(marked_model(TEMPLATE, *MARKERS)) as client:
        yield client


@pytest.mark.parametrize("budget", [0, 1, 7])
def test_budgets_hold_for_every_choice_of_a_model_that_never_stops_thinking(
    random_model: LocalOpenAI, budget: int
) -> None:
    made = ask(random_model, n=12, seed=4, max_tokens=40, **body(thinking_budget=budget, ignore_eos=True))
    assert made.usage.completion_tokens_details.reasoning_tokens == 12 * (budget + 1)
    assert all(choice.message.content and choice.finish_reason == "length" for choice in made.choices)
    assert len({choice.message.content for choice in made.choices}) == 12


@pytest.mark.parametrize("budget", [0, 5])
def test_behind_a_budget_comes_what_the_grammar_asks_for(random_model: LocalOpenAI, budget: int) -> None:
    more = body(thinking_budget=budget, guided_regex="[a-z]{3} [0-9]{2}")
    made = ask(random_model, n=12, seed=4, max_tokens=40, **more)
    assert made.usage.completion_tokens_details.reasoning_tokens == 12 * (budget + 1)
    for choice in made.choices:
        word, number = choice.message.content.split(" ")
        assert len(word) == 3 and word.isalpha() and number.isdigit() and choice.finish_reason == "stop"


def test_a_block_that_is_opened_again_is_closed_when_what_is_left_of_the_budget_is_spent() -> None:
    more: dict[str, Any] = {"tokenizer": ScriptedTokenizer(chat_template=PLAIN), "obey": True}
    again = ["<think>", "a", "</think>", "So.", "<think>", "b", "</think>", "Yes."]
    made = message(again, **more, **body(thinking_budget=2))
    assert (made.content, reasoning(made)) == ("So.Yes.", "ab")
    with pytest.raises(openai.InternalServerError, match=r"'<think>' after .*So"):
        message(again, **more, **body(thinking_budget=1))
    with pytest.raises(openai.InternalServerError, match="'a' after '<think>'"):
        message(again, **more, reasoning_effort="none")

"""The first requests of newcomers: training does not contain these 300 items, and the bundled models answer them."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from localai_shim.builtin import CHECKPOINT, VISION
from tests.builtin.digest import when_changed
from tests.builtin.tries import drawn, faults, hashes, items, tried
from tests.samples import exhaustive
from training.dialogues import sample_any
from training.excluded import excluded, is_excluded, keys
from training.registry import Split

KINDS, EACH = 30, 10
GREEDY, SAMPLED = 0.95, 0.90


def test_there_are_three_hundred_items_of_thirty_kinds() -> None:
    assert {kind: len(given) for kind, given in items().items()} == dict.fromkeys(items(), EACH)
    assert len(items()) == KINDS


def test_what_training_leaves_out_are_these_items() -> None:
    assert sorted(excluded()) == hashes()


@pytest.mark.parametrize("seed", range(4))
def test_training_does_not_contain_them(seed: int) -> None:
    rng = Random(f"first tries {seed}")
    for _ in range(2_000):
        _, dialogue = sample_any(rng, Split.TRAIN)
        assert not is_excluded(dialogue.messages)


def test_an_item_is_found_in_whatever_case_and_marks() -> None:
    told = [{"role": "user", "content": "Which of my two uncles sold the old boat?"}]
    again = [{"role": "user", "content": "which of my TWO uncles sold the old boat"}]
    other = [{"role": "user", "content": "Which of my three uncles sold the old boat?"}]
    assert set(keys(told)) == set(keys(again)) and not set(keys(told)) & set(keys(other))


ANSWER: dict[str, Any] = {"text": "It is 15 degrees in Paris.", "calls": [], "ended": "stop"}
CALL = {"name": "get_weather", "arguments": {"city": "Paris"}}


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ({"contains": ["15", "paris"], "any": ["rome", ["15", "degrees"]], "lacks": ["Rome"], "no_calls": True}, []),
        ({"contains": ["15", "Rome"]}, ["contains"]),
        ({"any": ["Rome", ["15", "Oslo"]]}, ["any"]),
        ({"lacks": ["paris"]}, ["lacks"]),
        ({"equals": "It is 15 degrees in Paris"}, ["equals"]),
        ({"max_words": 3, "min_words": 9}, ["max_words", "min_words"]),
        ({"upper": True, "lower": True}, ["upper", "lower"]),
        ({"starts": "it is", "ends": "paris!"}, []),
        ({"starts": "is", "ends": "Rome"}, ["starts", "ends"]),
        ({"calls": [CALL]}, ["calls"]),
        ({"json": {"city": "Paris"}}, ["json"]),
    ],
)
def test_a_rule_passes_good_answers_and_fails_bad_ones(rule: dict[str, Any], broken: list[str]) -> None:
    assert faults({"check": rule}, ANSWER) == broken


def test_calls_are_compared_in_any_order_and_an_answer_must_end() -> None:
    other = {"name": "get_weather", "arguments": {"city": "Rome"}}
    item = {"check": {"calls": [CALL, other]}}
    assert faults(item, {"text": "", "calls": [other, CALL], "ended": "tool_calls"}) == []
    assert faults(item, {"text": "", "calls": [CALL], "ended": "tool_calls"}) == ["calls"]
    assert faults({"check": {}}, {"text": "a", "calls": [], "ended": "length"}) == ["ended"]
    assert faults({"check": {"any": ["sorry"], "any_or_call": True}}, {"text": "", "calls": [CALL], "ended": "x"}) == [
        "ended"
    ]


def test_a_structured_answer_follows_its_schema_with_short_strings() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    item = {"check": {"json": {"name": "Rex"}}, "response_format": {"json_schema": {"schema": schema}}}
    made = {"calls": [], "ended": "stop"}
    assert faults(item, {**made, "text": '{"name": "Rex"}'}) == []
    assert faults(item, {**made, "text": '{"name": ""}'}) == ["json", "strings"]
    assert faults(item, {**made, "text": '{"age": 3}'}) == ["json", "schema"]
    assert faults(item, {**made, "text": f'{{"name": "{"a" * 121}"}}'}) == ["json", "strings"]


def test_pictures_are_drawn_as_they_are_described() -> None:
    made = drawn({"background": "white", "shapes": [["red", "circle", 0.25, 0.5, 0.1]], "text": ["EXIT", "black"]})
    assert made.getpixel((80, 160)) == (255, 0, 0) and made.getpixel((5, 5)) == (255, 255, 255)


def share_of_right(**sampling: Any) -> tuple[float, dict[str, list[str]]]:
    wrong = asyncio.run(tried(str(CHECKPOINT), str(VISION), list(items()), **sampling))
    return 1 - sum(map(len, wrong.values())) / (KINDS * EACH), wrong


@when_changed("checkpoint")
@pytest.mark.timeout(600)
def test_the_bundled_models_survive_them_greedily() -> None:
    share, wrong = share_of_right(temperature=0)
    assert round(share, 3) >= GREEDY, wrong


@exhaustive
@pytest.mark.timeout(600)
def test_the_bundled_models_survive_them_with_sampling() -> None:
    share, wrong = share_of_right(temperature=0.8, seed=1)
    assert round(share, 3) >= SAMPLED, wrong

"""What was read of a request's fields serves the next request that has the same ones."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from localai_shim import LocalOpenAI
from localai_shim.endpoints.field_cache import MAX_ENTRIES, MAX_KEY_BYTES, FieldCache
from localai_shim.errors import BadRequest
from tests.conftest import MESSAGES


def nested(depth: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


DEEP = nested(10_000)


class Counting:
    """Reads a body as itself, and counts how often."""

    def __init__(self) -> None:
        self.cache, self.count = FieldCache(), 0

    def read(self, body: Mapping[str, object]) -> Mapping[str, object]:
        self.count += 1
        return body

    def get(self, **body: object) -> Mapping[str, object]:
        return self.cache.get(body, "messages", self.read)


def test_equal_fields_are_read_once_whatever_the_messages() -> None:
    reader = Counting()
    first = reader.get(messages=["a"], n=1, tools=[{"x": (1, 2)}])
    assert reader.get(messages=["b"], n=1, tools=[{"x": (1, 2)}]) is first
    assert (reader.count, dict(first)) == (1, {"n": 1, "tools": [{"x": (1, 2)}]})


@pytest.mark.parametrize("other", [True, 1.0, "1", [1], (1,), None, {"1": 1}, {1: 1}])
def test_values_of_other_types_are_read_by_themselves(other: object) -> None:
    reader = Counting()
    for value in (1, [True], {"1": True}):
        reader.get(n=value)
    assert repr(reader.get(n=other)["n"]) == repr(other)
    assert reader.count == 4


def test_what_is_kept_is_a_copy() -> None:
    reader, tools = Counting(), [{"name": "before"}]
    first = reader.get(tools=tools)
    tools[0]["name"] = "after"
    assert reader.get(tools=[{"name": "before"}]) is first
    assert first == {"tools": [{"name": "before"}]}


@pytest.mark.parametrize("value", [np.float64(0.5), np.zeros(3), math.nan, object(), DEEP, "x" * MAX_KEY_BYTES])
def test_what_is_no_plain_json_is_read_each_time_as_it_is(value: object) -> None:
    reader = Counting()
    assert all(reader.get(value=value)["value"] is value for _ in range(2))
    assert reader.count == 2


@pytest.mark.parametrize("depth", [100, 500, 1_200, 1_900])
def test_nested_values_are_read_whole_where_python_s_limits_allow_to_keep_them_and_where_they_do_not(
    depth: int,
) -> None:
    reader = Counting()
    for value in (reader.get(value=nested(depth))["value"] for _ in range(2)):
        levels: Any = value
        for _ in range(depth):
            [levels] = levels
        assert levels == []


def test_few_are_kept() -> None:
    reader = Counting()
    for number in range(3 * MAX_ENTRIES):
        reader.get(n=number)
    assert len(reader.cache._known) <= MAX_ENTRIES


def test_nothing_is_kept_of_what_is_refused() -> None:
    cache, count = FieldCache(), 0

    def refuse(body: Mapping[str, object]) -> None:
        nonlocal count
        count += 1
        raise BadRequest("no")

    for _ in range(2):
        with pytest.raises(BadRequest):
            cache.get({"n": 1}, "messages", refuse)
    assert count == 2


# -- of clients -----------------------------------------------------------------------------------------------------


def test_requests_without_a_seed_differ_and_those_with_one_do_not(client: LocalOpenAI) -> None:
    def ask(**more: Any) -> str:
        made = client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=16, temperature=2, **more)
        return made.choices[0].message.content or ""

    assert len({ask() for _ in range(3)}) > 1
    assert len({ask(seed=7) for _ in range(3)}) == 1


def test_an_answer_may_be_changed_by_its_caller(client: LocalOpenAI) -> None:
    def ask() -> Any:
        return client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=1, metadata={"a": "b"})

    ask().metadata["a"] = "changed"
    assert ask().metadata == {"a": "b"}


def test_a_schema_that_its_caller_changes_is_read_again(client: LocalOpenAI) -> None:
    schema: dict[str, Any] = {"type": "string", "enum": ["yes"]}
    format: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    before = copy.deepcopy(format)

    def ask(format: Any) -> str | None:
        made = client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=20, response_format=format)
        return made.choices[0].message.content

    assert ask(format) == '"yes"'
    schema["enum"][0] = "no"
    assert ask(format) == '"no"'
    assert ask(before) == '"yes"'

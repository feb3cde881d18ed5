"""What was read of a request's fields serves the next request that has the same ones."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.endpoints.fields import MAX_ENTRIES, MAX_KEY_BYTES, FieldCache
from localai_shim.errors import BadRequest
from localai_shim.testing import ScriptedEngine
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
        return self.cache.get(body, ("messages",), self.read)


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


def test_the_least_recently_used_go_first() -> None:
    reader = Counting()
    for number in range(3 * MAX_ENTRIES):
        reader.get(n=number)
        reader.get(n=-1)
    assert (reader.count, reader.cache._known.used) == (3 * MAX_ENTRIES + 1, MAX_ENTRIES)
    for number in range(2 * MAX_ENTRIES + 1, 3 * MAX_ENTRIES):
        reader.get(n=number)
    assert reader.count == 3 * MAX_ENTRIES + 1
    reader.get(n=0)
    assert reader.count == 3 * MAX_ENTRIES + 2


def test_threads_share_a_cache() -> None:
    reader, wrong = Counting(), []

    def work(first: int) -> None:
        for i in range(2_000):
            number = (first * 31 + i * 7) % (2 * MAX_ENTRIES)
            if reader.get(n=number) != {"n": number}:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and reader.cache._known.used == MAX_ENTRIES


def test_nothing_is_kept_of_what_is_refused() -> None:
    cache, count = FieldCache(), 0

    def refuse(body: Mapping[str, object]) -> None:
        nonlocal count
        count += 1
        raise BadRequest("no")

    for _ in range(2):
        with pytest.raises(BadRequest):
            cache.get({"n": 1}, ("messages",), refuse)
    assert count == 2


# -- of clients -----------------------------------------------------------------------------------------------------


def test_requests_without_a_seed_differ_and_those_with_one_do_not(client: LocalOpenAI) -> None:
    def ask(**more: Any) -> str:
        made = client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=16, temperature=2, **more)
        return made.choices[0].message.content or ""

    assert len({ask() for _ in range(3)}) > 1
    assert len({ask(seed=7) for _ in range(3)}) == 1


OWN: dict[str, tuple[Any, Any, str]] = {
    "seed": (1, 2, "x"),
    "user": ("ada", "bob", 5),
    "safety_identifier": ("ada", "bob", 5),
    "prompt_cache_key": ("ada", "bob", 5),
    "cache_salt": ("ada", "bob", ""),
    "prediction": ({"type": "content", "content": "a"}, {"type": "content", "content": "b"}, "x"),
    "metadata": ({"a": "b"}, {"c": "d"}, {"a": 5}),
}
"""Fields that differ from request to request: two values, and a wrong one."""
ENDPOINTS: dict[str, Callable[[LocalOpenAI, dict[str, Any]], Any]] = {
    "chat": lambda client, more: client.chat.completions.create(
        model="m", messages=MESSAGES, max_tokens=1, extra_body=more
    ),
    "responses": lambda client, more: client.responses.create(
        model="m", input="Hello", max_output_tokens=1, extra_body=more
    ),
    "completions": lambda client, more: client.completions.create(
        model="m", prompt="Hello", max_tokens=1, extra_body=more
    ),
}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("name", OWN)
def test_a_field_that_differs_from_request_to_request_is_no_reason_to_read_the_others_again(
    client: LocalOpenAI, monkeypatch: pytest.MonkeyPatch, endpoint: str, name: str
) -> None:
    ask, (first, second, wrong) = ENDPOINTS[endpoint], OWN[name]
    kept = []
    get = FieldCache.get

    def watched(cache: FieldCache, body: Any, differ: Any, read: Any) -> Any:
        kept.append(get(cache, body, differ, read))
        return kept[-1]

    monkeypatch.setattr(FieldCache, "get", watched)
    if (endpoint, name) == ("completions", "metadata"):
        for value in (first, second):
            with pytest.raises(openai.BadRequestError, match="Unknown parameter: 'metadata'"):
                ask(client, {name: value})
        return
    answers = [ask(client, {name: value}) for value in (first, second, first)]
    assert len(kept) == 3 and kept[0] is kept[1] is kept[2]
    if name == "metadata" or (endpoint == "responses" and name not in ("seed", "cache_salt", "prediction")):
        assert [getattr(answer, name) for answer in answers] == [first, second, first]
    for _ in range(2):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, {name: wrong})
        assert str(caught.value.param).startswith(name)
    assert name not in ask(client, {}).to_dict() or not getattr(ask(client, {}), name)


def test_seeds_salts_and_predictions_stay_with_their_requests() -> None:
    with ScriptedEngine(lambda request, prompt, before: "Hi") as engine:
        client = LocalOpenAI(engine=engine)
        for own in ({"seed": 1, "cache_salt": "a"}, {"seed": 2}, {"prediction": OWN["prediction"][0]}, {"seed": 1}):
            for ask in ENDPOINTS.values():
                ask(client, own)
    seeds = [request.sampling.seed for request in engine.requests]
    assert seeds[:3] == seeds[9:] == [1, 1, 1] and seeds[3:6] == [2, 2, 2] and len(set(seeds[6:9])) == 3
    assert [request.prompt.salt for request in engine.requests] == ["a"] * 3 + [None] * 9
    assert [request.prediction is not None for request in engine.requests] == [False] * 6 + [True] * 3 + [False] * 3


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

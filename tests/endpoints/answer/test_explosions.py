"""Schemas and grammars that would take minutes or gigabytes: a 400, for little CPU time, and before the model runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.grammar.compile import MAX_GRAMMAR_CHARACTERS
from localai_shim.grammar.schema_checks import MAX_OPTIONAL_PROPERTIES, MAX_SCHEMA_PARTS
from localai_shim.testing import Reply, ScriptedEngine
from tests.conftest import refused
from tests.endpoints.answer.schemas import as_format, integer, string
from tests.endpoints.scripting import ask

MOST_CPU_SECONDS = 1.0
"""Of this process; most of them take a tenth of it."""


def listed(count: int, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(count)}, **more}


def repeated(pattern: str, times: int) -> str:
    for _ in range(times):
        pattern = f"({pattern}){{100}}"
    return pattern


def doubled(count: int, join: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(count):
        schema = join(schema)
    return schema


def chained(count: int) -> dict[str, Any]:
    """Definitions that each ask for the next one, and the last for the first."""
    parts = {f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{(i + 1) % count}"}} for i in range(count)}
    return {"$defs": {name: {**part, "minItems": 1} for name, part in parts.items()}, "$ref": "#/$defs/d0"}


ITSELF = {"$ref": "#"}
# name -> schema, a piece of the reason
SCHEMAS: dict[str, tuple[dict[str, Any], str]] = {
    "a required property of its own kind": (
        {"type": "object", "properties": {"a": ITSELF}, "required": ["a"]},
        "no value of it ever ends",
    ),
    "the same behind a free text": (
        {"type": "object", "properties": {"x": string(), "a": ITSELF}, "required": ["x", "a"]},
        "no value of it ever ends",
    ),
    "an item of its own kind": ({"type": "array", "items": ITSELF, "minItems": 1}, "no value of it ever ends"),
    "only options of its own kind": (
        {"anyOf": [{"type": "array", "items": ITSELF, "minItems": 1}, {"allOf": [ITSELF]}]},
        "no value of it ever ends",
    ),
    "a circle of 1,000": (chained(1000), "no value of it ever ends"),
    "2,000 optional properties": (listed(2000), f"{MAX_OPTIONAL_PROPERTIES} properties of one object"),
    "20,000 properties": (listed(20_000, required=[f"p{i}" for i in range(20_000)]), "5,000 parts"),
    "100^3 repeats": (string(pattern=repeated("a", 3)), "too large"),
    "100^5 repeats": (string(pattern=repeated("a", 5)), "too large"),
    "the same inside an object": (
        {"type": "object", "properties": {"a": string(pattern=repeated("a", 5))}, "required": ["a"]},
        "too large",
    ),
    "options that double 14 times": (
        doubled(14, lambda s: {"anyOf": [s, {"type": "array", "items": s}]}),
        "5,000 parts",
    ),
    "all of options": (
        {"allOf": [{"anyOf": [listed(i % 3 + 1), listed(i % 5 + 2)]} for i in range(40)]},
        "too large",
    ),
    "an enum of megabytes": ({"enum": [f"value {i}" for i in range(100_000)]}, "characters of constants"),
    "3,000 options": (
        {"anyOf": [{"type": "object", "properties": {"k": {"const": i}}, "required": ["k"]} for i in range(2999)]},
        "too large",
    ),
    "600 patterns": (
        {"type": "object", "properties": {f"p{i}": string(format="date-time") for i in range(600)}},
        f"{MAX_SCHEMA_PARTS:,} parts",
    ),
    "multiples of many numbers": (
        {"type": "object", "properties": {f"p{i}": {**integer(), "multipleOf": 19_000 + i} for i in range(50)}},
        "'multipleOf'",
    ),
    "nested 300 times": (doubled(300, lambda s: {"type": "array", "items": s}), ""),
    "nested 20,000 times": (doubled(20_000, lambda s: {"type": "array", "items": s}), ""),
}

LARK = {
    "guided_regex": [repeated("a", 5), "a" * (MAX_GRAMMAR_CHARACTERS + 1)],
    "guided_grammar": [
        "start: " + " ".join(["/a*/"] * 3000),
        "start: " + " | ".join(f"r{i}" for i in range(5000)) + "".join(f'\nr{i}: "{i}"' for i in range(5000)),
    ],
}


@pytest.fixture(scope="module")
def client() -> Iterator[LocalOpenAI]:
    """A model that would fail: it has nothing to say."""
    with ScriptedEngine([]) as engine:
        yield LocalOpenAI(engine=engine)


@contextmanager
def cheaply() -> Iterator[None]:
    began = time.process_time()
    yield
    assert time.process_time() - began < MOST_CPU_SECONDS


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("schema", "why"), SCHEMAS.values(), ids=SCHEMAS)
def test_a_schema_that_explodes_is_refused(client: LocalOpenAI, schema: Any, why: str, strict: bool) -> None:
    with cheaply(), refused_for(why):
        ask(client, response_format=as_format(schema, strict=strict))


@contextmanager
def refused_for(why: str) -> Iterator[None]:
    with pytest.raises(openai.BadRequestError, match=why or None):
        yield


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", [name for name in SCHEMAS if name not in ("nested 20,000 times",)])
def test_a_tool_whose_schema_explodes_is_refused(client: LocalOpenAI, name: str, strict: bool) -> None:
    schema, _ = SCHEMAS[name]
    parameters = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    if "$defs" in schema or "#" in str(schema)[:200]:
        parameters = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters, "strict": strict}}
    with cheaply(), refused_for(""):
        ask(client, tools=[tool], tool_choice="required")


@pytest.mark.parametrize(("field", "text"), [(field, text) for field in LARK for text in LARK[field]], ids=range(4))
def test_a_grammar_that_explodes_is_refused(client: LocalOpenAI, field: str, text: str) -> None:
    with cheaply(), refused(field, "invalid_value", f"Invalid '{field}'"):
        ask(client, extra_body={field: text})


@pytest.mark.parametrize(
    "schema",
    [
        listed(MAX_OPTIONAL_PROPERTIES),
        listed(2000, required=[f"p{i}" for i in range(2000)]),
        string(pattern=repeated("a", 2)),
        string(maxLength=10**6),
        {"type": "array", "items": integer(), "maxItems": 10**6},
        {"enum": [f"value {i}" for i in range(10_000)]},
        {"$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"},
        {"anyOf": [{"type": "array", "items": ITSELF, "minItems": 1}, {"type": "integer"}]},
        {"type": "integer", "multipleOf": 1000},
    ],
    ids=range(9),
)
def test_what_is_large_and_does_not_explode_is_followed(schema: dict[str, Any]) -> None:
    with cheaply(), ScriptedEngine(["{}"]) as engine:
        ask(LocalOpenAI(engine=engine), response_format=as_format(schema), max_tokens=1)


def test_a_grammar_that_grows_while_it_is_followed_fails_its_own_request() -> None:
    """What no first step shows: rows of the parser that grow with the text."""
    ways = "|".join(" ".join(way) for way in itertools.product("AB", repeat=11))
    grows = {"guided_grammar": f'start: "x" "y" any\nany: {ways}\nA: "a"\nB: "b"'}
    with ScriptedEngine([Reply(["x", "y", *"ab" * 5, "a"]), "Hi."], obey_constraints=True) as engine:
        client = LocalOpenAI(engine=engine)
        with cheaply(), refused(None, None, "became too complex"):
            ask(client, extra_body=grows)
        assert ask(client).choices[0].message.content == "Hi."

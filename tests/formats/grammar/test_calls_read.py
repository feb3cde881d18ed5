"""Grammars of calls against what nobody here wrote: jsonschema, upstream's parsers, and schemas that nobody chose."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localai_shim.formats.syntaxes.keyed import MarkedArguments
from localai_shim.formats.syntaxes.tagged import Parameters
from localai_shim.formats.table import FORMATS as ROWS
from localai_shim.grammar.tool import Tool
from tests import upstream
from tests.formats.grammar.calls import DEEP, FORMATS, compiled, endings_of, read, valid, written
from tests.grammar.drafts import closed, draft, drafts, says
from tests.samples import only

SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

# -- What is read of whatever is written ------------------------------------------------------------------------------


@pytest.mark.parametrize("count", only([2], [2, 40]))
@pytest.mark.parametrize("special", [True, False], ids=["tokens", "letters"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_valid_call_is_read_in_whatever_is_written(format: str, special: bool, count: int) -> None:
    tools = [Tool("get_weather", DEEP)]
    grammar, vocabulary = compiled(format, tools, special=special)
    for text in drafts(grammar, vocabulary, count, limit=1500, endings=endings_of(format)):
        [(name, arguments)] = read(format, text, tools)
        assert name == "get_weather"
        valid(arguments, DEEP)
        assert set(arguments) <= set(DEEP["properties"])


@pytest.mark.parametrize("format", FORMATS)
@settings(SLOW, max_examples=3)
@given(data=st.data())
def test_calls_follow_schemas_that_nobody_chose(format: str, data: st.DataObject) -> None:
    schema = data.draw(parameters())
    tools = [Tool("f", schema, strict=True)]
    grammar, vocabulary = compiled(format, tools, special=data.draw(st.booleans()))
    text = draft(grammar, vocabulary, data.draw(st.integers(0, 2**32 - 1)), limit=1500, endings=endings_of(format))
    if text is not None:
        [(name, arguments)] = read(format, text, tools)
        assert name == "f"
        valid(arguments, schema)


@pytest.mark.parametrize("format", FORMATS)
@settings(SLOW, max_examples=4)
@given(data=st.data())
def test_whatever_is_valid_can_be_written_and_is_read(format: str, data: st.DataObject) -> None:
    schema = data.draw(parameters())
    arguments = data.draw(values(schema, texts(format)))
    valid(arguments, schema)
    tools = [Tool("f", schema, strict=True)]
    text = written(format, [("f", arguments)])
    grammar, vocabulary = compiled(format, tools, special=False)
    assert says(grammar, vocabulary, text), text
    assert read(format, text, tools) == [("f", arguments)]


# -- Schemas and values that nobody chose -----------------------------------------------------------------------------


@st.composite
def scalars(pick: st.DrawFn) -> dict[str, Any]:
    low, more = pick(st.integers(-99, 99)), pick(st.integers(1, 99))
    options: list[dict[str, Any]] = [
        {"type": "string"},
        {"type": "string", "minLength": abs(low) % 3, "maxLength": abs(low) % 3 + more % 9},
        {"type": "string", "pattern": "^[a-z]{1,3}$"},
        {"type": "integer", "minimum": low, "maximum": low + more},
        {"type": "number", "minimum": low, "maximum": low + more},
        {"type": "boolean"},
        {"type": ["integer", "null"]},
        {"type": ["string", "null"], "maxLength": 6},
        {"type": ["string", "integer"]},
        {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "integer", "minimum": 0, "maximum": more}]},
        {"enum": ["red", "dark blue", 7, None, False]},
        {"const": "as it is"},
    ]
    return pick(st.sampled_from(options))


@st.composite
def containers(pick: st.DrawFn, inner: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    match pick(st.sampled_from(["object", "array", "optional"])):
        case "object":
            members = pick(st.dictionaries(st.sampled_from(["x", "y_2", "z"]), inner, min_size=1, max_size=2))
            return closed(members, *(name for name in members if pick(st.booleans())))
        case "array":
            low = pick(st.integers(0, 1))
            return {"type": "array", "items": pick(inner), "minItems": low, "maxItems": low + pick(st.integers(0, 2))}
        case _:
            return {"anyOf": [{"type": "array", "items": pick(inner), "maxItems": 2}, {"type": "null"}]}


def parameters() -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of arguments that a format can write."""
    member = st.recursive(scalars(), containers, max_leaves=4)
    return st.dictionaries(st.sampled_from(["a", "b_2", "c"]), member, min_size=1).flatmap(
        lambda members: st.sets(st.sampled_from(sorted(members))).map(lambda absent: closed(members, *absent))
    )


def texts(format: str) -> st.SearchStrategy[str]:
    """Texts that a format can write as they are, among values of any type."""
    kind = ROWS[format].arguments
    held = "<>]|" if isinstance(kind, Parameters | MarkedArguments) else ""
    letters = st.characters(
        codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters=held, include_characters="\n\t"
    )
    text = st.text(letters, max_size=8)
    return text.filter(lambda text: text.strip()[:1] not in "[{-0123456789" or not text.strip())


def values(schema: dict[str, Any], text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Values that satisfy a schema. Where a string may stand beside other types it is none that spells one of them."""
    match schema:
        case {"enum": constants}:
            return st.sampled_from(constants)
        case {"const": constant}:
            return st.just(constant)
        case {"anyOf": options}:
            return st.one_of([values(option, text) for option in options])
        case {"type": list() as types}:
            return st.one_of([values({**schema, "type": type}, text) for type in types])
        case {"pattern": _}:
            return st.text("abc", min_size=1, max_size=3)
        case {"type": "string"}:
            low, high = schema.get("minLength", 0), schema.get("maxLength", 99)
            return (
                text.filter(lambda text: low <= len(text) <= high)
                if high > 1
                else st.text("ab", min_size=low, max_size=high)
            )
        case {"type": "integer"}:
            return st.integers(schema.get("minimum", -999), schema.get("maximum", 999))
        case {"type": "number"}:
            low, high = schema["minimum"], schema["maximum"]
            return st.decimals(low, high, places=2).map(float) | st.integers(low, high)
        case {"type": "array"}:
            return st.lists(
                values(schema["items"], text), min_size=schema.get("minItems", 0), max_size=schema["maxItems"]
            )
        case {"type": "object", "properties": properties, "required": required}:
            whole = st.tuples(*(values(member, text) for member in properties.values()))
            absent = st.sets(st.sampled_from([*properties, None]))
            return st.tuples(whole, absent).map(
                lambda drawn: {
                    name: value
                    for name, value in zip(properties, drawn[0], strict=True)
                    if name in required or name not in drawn[1]
                }
            )
        case {"type": "boolean"}:
            return st.booleans()
        case _:
            return st.none()


# -- Upstream's parsers -----------------------------------------------------------------------------------------------

TYPED = closed(
    {
        "a": {"type": "string"},
        "n": {"type": "integer"},
        "f": {"type": "boolean"},
        "l": {"type": "array", "items": {"type": "string"}},
        "o": closed({"x": {"type": "string"}, "y": {"type": "number"}}),
    },
    *"flo",
)
BRACELESS = closed({"a": {"type": "string", "pattern": "^[^}]*$"}, "n": {"type": "integer"}}, "n")
"""Upstream reads FunctionGemma's arguments up to the first brace."""


@pytest.mark.parametrize("count", only([4], [4, 60]))
@pytest.mark.parametrize("format", upstream.PARSERS)
def test_upstreams_parser_reads_the_same(format: str, count: int) -> None:
    """But for whitespace around strings without quotes, which some of its parsers drop."""
    tools = [Tool("get_weather", BRACELESS if format == "functiongemma" else TYPED)]
    grammar, vocabulary = compiled(format, tools, special=False)
    for text in drafts(grammar, vocabulary, count, limit=1500, endings=endings_of(format)):
        start = text.index("<atem:") if format == "muse" else 0
        theirs = upstream.calls(format, text[start:], [tool.template() for tool in tools])
        assert _stripped(theirs) == _stripped(read(format, text, tools)), text


def _stripped(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list | tuple):
        return [_stripped(item) for item in value]
    return {key: _stripped(item) for key, item in value.items()} if isinstance(value, dict) else value

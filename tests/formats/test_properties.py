"""Properties of every call format: what is written is read, in any cut; nothing that comes makes a reader fail."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localai_shim.formats.description import CallFormat, write_calls
from localai_shim.formats.markup import Markup, Thought
from localai_shim.formats.syntaxes.keyed import MarkedArguments
from localai_shim.formats.syntaxes.tagged import Parameters
from localai_shim.formats.table import FORMATS
from localai_shim.formats.values import OfferedTools
from localai_shim.output.answer import AnswerParser
from tests.formats.channels import CHANNELS
from tests.output.reading import Answer, Detokenizer, tokens

_WHOLE = [format for format in FORMATS.values() if format.name not in CHANNELS]
_SCALARS = st.integers(-(2**40), 2**40) | st.booleans() | st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: x or 0.5)


def _text(format: CallFormat) -> st.SearchStrategy[str]:
    """Texts that a format can write as a value: no markup of its own; formats without quotes keep no edges of space."""
    plain = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=12)
    if isinstance(format.arguments, Parameters):
        return plain.filter(lambda text: not set("<]\x0b") & set(text) and text == text.strip())
    if isinstance(format.arguments, MarkedArguments):
        return plain.filter(lambda text: not set('<|"') & set(text))
    return plain


def _tool(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "", "parameters": schema}}


_SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "number": {"type": "number"},
        "flag": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "string"}},
        "tree": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "boolean"}}},
    },
}
TOOLS = OfferedTools([_tool("first", _SCHEMA), _tool("second_one", _SCHEMA)])


@st.composite
def _calls(draw: st.DrawFn, format: CallFormat) -> list[tuple[str, dict[str, Any]]]:
    text = _text(format)
    filled = text.filter(bool)
    values: dict[str, st.SearchStrategy[Any]] = {
        "text": text,
        "number": _SCALARS.filter(_is_number),
        "flag": st.booleans(),
    }
    values["list"] = st.lists(filled, min_size=1, max_size=3)
    values["tree"] = st.fixed_dictionaries({"a": filled, "b": st.booleans()})
    arguments = st.fixed_dictionaries({}, optional=values)
    return draw(st.lists(st.tuples(st.sampled_from(["first", "second_one"]), arguments), min_size=1, max_size=3))


def _is_number(value: object) -> bool:
    return not isinstance(value, bool)


def cut(text: str, places: Sequence[int]) -> list[str]:
    at = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(at)]


def answer(
    format: CallFormat, pieces: Sequence[str], *, think: tuple[str, str] | None = ("<think>", "</think>")
) -> Answer:
    parser = AnswerParser(
        Detokenizer(pieces), Markup(None if think is None else Thought("think", *think), format), tools=TOOLS
    )
    out = Answer()
    for token in tokens(pieces, "stop"):
        out.add(parser.feed(token))
    return out


@pytest.mark.parametrize("format", _WHOLE, ids=lambda format: format.name)
@settings(derandomize=True, max_examples=15, deadline=None)
@given(data=st.data())
def test_calls_that_are_written_are_read_in_any_cut(format: CallFormat, data: st.DataObject) -> None:
    calls = data.draw(_calls(format))
    text = write_calls(format, calls)
    pieces = cut(text, data.draw(st.lists(st.integers(0, 10_000), max_size=12)))
    for given_pieces in ([text], list(text), pieces):
        found = answer(format, given_pieces)
        assert [(name, json.loads(arguments)) for name, arguments in found.calls] == calls, given_pieces
        assert found.content.strip() == "" and not found.invalid


@pytest.mark.parametrize("format", _WHOLE, ids=lambda format: format.name)
@settings(derandomize=True, max_examples=25, deadline=None)
@given(data=st.data())
def test_whatever_comes_is_read_alike_in_any_cut(format: CallFormat, data: st.DataObject) -> None:
    """Fragments of calls in any order, cut anywhere: streamed is whole, and every call has a name that was written."""
    whole = write_calls(format, [("first", {"text": "a b", "flag": True}), ("second_one", {})])
    marks = [
        *format.starts,
        *format.ends,
        *format.heads,
        "<think>",
        "</think>",
        "\n",
        "word ",
        '{"a": 1}',
        "[",
        "]",
        "}",
    ]
    fragments = st.sampled_from(marks) | st.integers(0, len(whole)).flatmap(
        lambda at: st.integers(at, len(whole)).map(lambda end: whole[at:end])
    )
    text = "".join(data.draw(st.lists(fragments, max_size=8)))
    first = answer(format, [text] if text else [])
    for pieces in (list(text), cut(text, data.draw(st.lists(st.integers(0, 10_000), max_size=12)))):
        other = answer(format, pieces)
        assert (other.content, other.reasoning, other.calls) == (first.content, first.reasoning, first.calls)
    assert all(name and name in text for name, _ in first.calls)

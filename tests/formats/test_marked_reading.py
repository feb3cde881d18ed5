"""Arguments with bare keys and strings between marks, as the Gemma models write them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localai_shim.formats.source import Reading, Source, UnreadableError
from localai_shim.formats.syntaxes.keyed import MAX_DEPTH, MarkedArguments
from tests.formats.reading import arguments, run

_NESTS, _FLAT = MarkedArguments("'|"), MarkedArguments("'|", nests=False)
_SCHEMA = {"properties": {"text": {"type": "string"}, "count": {"type": "integer"}, "flag": {"type": "boolean"}}}
_SCHEMA["properties"] |= {"list": {"type": "array"}, "tree": {"type": "object"}}


def read(text: str, kind: MarkedArguments = _NESTS) -> Any:
    def reader(source: Source) -> Reading[None]:
        yield from kind.read(source, (), lambda: _SCHEMA)

    events, _, rest = run(reader, text)
    assert rest.startswith("}")
    return json.loads(arguments(events))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("}", {}),
        ("text:'|x'|}", {"text": "x"}),
        (" text : '| x '| , count: 3 }", {"text": " x ", "count": 3}),
        ("text:'|a,b}:{[\"'\n'|}", {"text": "a,b}:{[\"'\n"}),
        ("'|text'|:'|x'|,\"count\":3}", {"text": "x", "count": 3}),
        ("tree:{a:'|x'|,b:{c:[1,'|y'|,true,null]}}}", {"tree": {"a": "x", "b": {"c": [1, "y", True, None]}}}),
        ("list:[],tree:{}}", {"list": [], "tree": {}}),
        (
            "a:1,b:1.5,c:true,d:null,e:None,f:True,g:word}",
            {"a": 1, "b": 1.5, "c": True, "d": None, "e": None, "f": True, "g": "word"},
        ),
        ("text:12,count:12,flag:true}", {"text": "12", "count": 12, "flag": True}),
        ("text:'|'|}", {"text": ""}),
    ],
)
def test_arguments_are_keys_and_values(text: str, expected: object) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("text:'|{a}'|,count:3}", {"text": "{a}", "count": 3}),
        ("""list:'|[1, "a"]'|,tree:'|{"a": [null]}'|}""", {"list": [1, "a"], "tree": {"a": [None]}}),
        ("text:'|[1]'|}", {"text": "[1]"}),  # the schema says text
        ("other:'|[1]'|,more:'|5'|,list:'|[1'|}", {"other": [1], "more": "5", "list": "[1"}),
        ("count:'|3'|,flag:'|true'|}", {"count": 3, "flag": True}),  # as vLLM's template shows them
        ("tree:{a:1,b:['|x'|]}}", {"tree": {"a": 1, "b": ["x"]}}),  # as the models that nest write it
    ],
)
def test_a_model_that_does_not_nest_writes_json_between_marks(text: str, expected: object) -> None:
    assert read(text, _FLAT) == expected


@pytest.mark.parametrize("text", ["text}", "text:}", "text:,count:3}", "{}", "text:'|x", "'|text'|=3}", "text:[1", ""])
def test_what_is_no_key_with_a_value_cannot_be_read(text: str) -> None:
    with pytest.raises(UnreadableError):
        read(text)


def test_values_are_nested_only_so_deep() -> None:
    read(f"a:{'[' * MAX_DEPTH}{']' * MAX_DEPTH}}}")
    with pytest.raises(UnreadableError, match="deeply"):
        read(f"a:{'[' * 300}{']' * 300}}}")

"""Keywords of a Python call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localai_shim.formats.source import Reading, Source, UnreadableError
from localai_shim.formats.syntaxes.keyed import MAX_DEPTH, PythonArguments
from tests.formats.reading import arguments, run


def read_all(source: Source) -> Reading[bool]:
    return PythonArguments().read(source, (), dict)


def read(text: str) -> Any:
    """The arguments before the bracket, which is left."""
    events, _, rest = run(read_all, text)
    assert rest.startswith(")")
    return json.loads(arguments(events))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values=st.dictionaries(st.sampled_from(["a", "b_1", "größe"]), _VALUES))
def test_what_python_writes_is_read(values: dict[str, Any]) -> None:
    assert read(", ".join(f"{key}={value!r}" for key, value in values.items()) + ")") == values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (")", {}),
        (" a = 1 ,\n b=[1, 'x'], )", {"a": 1, "b": [1, "x"]}),
        ("a=true, b=false, c=null)", {"a": True, "b": False, "c": None}),
        ("a=[true, None, {'b': null}])", {"a": [True, None, {"b": None}]}),
        ("a=(1, 2))", {"a": [1, 2]}),
        ("a=-1.5, b=007)", {"a": -1.5, "b": 7}),
        ('a="""two\n"lines" of text"""), b', {"a": 'two\n"lines" of text'}),
        ("a='it\\'s', b=\"a, b)\")", {"a": "it's", "b": "a, b)"}),
        ("a='don't', b='x')", {"a": "don't", "b": "x"}),
        ('a="say "hi" to him")', {"a": 'say "hi" to him'}),
        ("a='')", {"a": ""}),
        ("a='{[(', b=1)", {"a": "{[(", "b": 1}),
        ("a={1: 'x'})", {"a": {"1": "x"}}),
    ],
)
def test_keywords_with_literals_are_arguments(text: str, expected: object) -> None:
    assert read(text) == expected


@pytest.mark.parametrize("text", ["1)", "'x')", "a)", "a=b)", "a=f(1))", "a=1 b=2)", "a=1+x)", "**a)", "a=b'x')", "a="])
def test_what_are_no_keywords_with_literals_cannot_be_read(text: str) -> None:
    with pytest.raises(UnreadableError):
        run(read_all, text)


def test_brackets_are_nested_only_so_deep() -> None:
    depth = MAX_DEPTH - 1
    run(read_all, f"a={'[' * depth}{']' * depth})")
    with pytest.raises(UnreadableError, match="brackets"):
        run(read_all, f"a={'[' * 500}{']' * 500})")


def test_each_argument_comes_when_it_is_complete() -> None:
    events = run(read_all, "a=1, b='x')")[0]
    assert arguments(events) == '{"a": 1, "b": "x"}'

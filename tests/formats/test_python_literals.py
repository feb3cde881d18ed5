"""Python's literals are read as Python reads them, as far as JSON has such values."""

from __future__ import annotations

import ast
import json
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localai_shim.formats.python_literals import MAX_DEPTH, python_literal

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
        | st.tuples(inner)
        | st.tuples(inner, inner)
    ),
    max_leaves=8,
)


def as_json(value: object) -> Any:
    return json.loads(json.dumps(value))


@given(value=_VALUES)
def test_what_python_writes_is_read(value: object) -> None:
    assert python_literal(repr(value)) == as_json(value)


_PIECES = st.sampled_from(
    [
        *"[](){},:'\"\\#\n",
        *(" ", "'a'", '"b"', "1", "-", "+", "0x1F", "1_0", ".5", "1.", "1e3", "True", "None", "x", "r", "'''", '"""'),
        *("\\n", "\\x41", "\\u00e9", "\\N{BULLET}", "\\101", "\\d", "0", "j", "b", "1e999", "{}", "[1, 2]"),
    ]
)


@given(text=st.lists(_PIECES, max_size=8).map("".join))
def test_whatever_python_reads_is_read_alike(text: str) -> None:
    """More is read than Python reads: sets, newlines, zeros at the beginning of a number."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = ast.literal_eval(text.strip())
        expected = json.loads(json.dumps(value, allow_nan=False))
    except (ValueError, SyntaxError, TypeError):
        return
    assert python_literal(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[true, false, null]", [True, False, None]),
        ("{1, 'a'}", [1, "a"]),
        ("007", 7),
        ("'two\nlines'", "two\nlines"),
        ("'it\\'s' \"so\"", "it'sso"),
        ("r'\\d' '\\t'", "\\d\t"),
        ("{None: 1, True: 2, 1.5: 3}", {"null": 1, "true": 2, "1.5": 3}),
        ("'\\ud83d'", "\ud83d"),
        ("1,", [1]),
        ("-(-1)", 1),
    ],
)
def test_what_models_write_is_read(text: str, expected: object) -> None:
    assert python_literal(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "x", "f(1)", "1 + 1", "1j", "b'x'", "f'x'", "...", "[1", "[1 2]", "{'a' 1}", "{'a': 1 'b': 2}"),
        *("{[1]: 2}", "'a", "'''a''", "1e999", "nan", "-True", "- 'a'", "1 2", "[,]", ",", "'\\N{no such name}'"),
        *("{'a': }", "[1,,2]", "{1, 'a': 2}"),
    ],
)
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        python_literal(text)


def test_values_are_nested_only_so_deep() -> None:
    for begin, end in ("[]", "()", "{}"):
        assert python_literal(begin * MAX_DEPTH + "1" + end * MAX_DEPTH)
    for nested in ("[" * 100_000, "[" * 100_000 + "]" * 100_000, "{1:" * 100_000, "-" * 100_000 + "1"):
        with pytest.raises(ValueError):
            python_literal(nested)

"""Python's literals, as the JSON that they say.

Not `ast.literal_eval`: in CPython up to 3.12 two threads that use `ast` disturb each other, odd escapes are warned of,
and models write what it refuses, such as `true` or a newline in a string.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata

_SPACE = re.compile(r"(?:\s+|#[^\n]*|\\\n)*")
_NUMBER = re.compile(
    r"0(?:[xX][\da-fA-F_]+|[oO][0-7_]+|[bB][01_]+)|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d[\d_]*)?", re.ASCII
)
_NAME = re.compile(r"[^\W\d]\w*")
_STRING = re.compile(
    r"(?P<raw>[rR]?)[uU]?(?:"
    r'"""(?P<a>[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*)"""'
    r"|'''(?P<b>[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*)'''"
    r'|"(?P<c>[^"\\]*(?:\\.[^"\\]*)*)"'
    r"|'(?P<d>[^'\\]*(?:\\.[^'\\]*)*)')",
    re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<x>[\da-fA-F]{2})|u(?P<u>[\da-fA-F]{4})|U(?P<U>[\da-fA-F]{8})"
    r"|N\{(?P<name>[^{}]+)\}|(?P<one>.))",
    re.DOTALL,
)
_ESCAPED = {**dict(zip("abfnrtv\\'\"", "\a\b\f\n\r\t\v\\'\"", strict=True)), "\n": ""}
_NAMES = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
MAX_DEPTH = 100


def python_literal(text: str) -> object:
    """The value of a Python literal, in which JSON's names may be. Tuples and sets are lists, and keys are strings.

    Raises:
        ValueError: it is none, or JSON has no such value.
    """
    return _Literal(text).whole()


class _Literal:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self) -> object:
        items, is_tuple = self._items("", 0)
        if not items:
            raise ValueError("nothing")
        return items if is_tuple else items[0]

    def _next(self) -> str:
        """The next character that is no whitespace, empty at the end."""
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return self._text[self._at : self._at + 1]

    def _items(self, end: str, depth: int) -> tuple[list[object], bool]:
        """The values up to what ends them, which is read; and if they are a tuple between round brackets."""
        items: list[object] = []
        has_comma = False
        while self._next() != end:
            if items and not has_comma:
                raise ValueError("no comma")
            items.append(self._value(depth))
            has_comma = self._next() == ","
            self._at += has_comma
        self._at += 1
        return items, has_comma or len(items) != 1

    def _value(self, depth: int) -> object:
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        match self._next():
            case "[":
                self._at += 1
                return self._items("]", depth + 1)[0]
            case "(":
                self._at += 1
                items, is_tuple = self._items(")", depth + 1)
                return items if is_tuple else items[0]
            case "{":
                self._at += 1
                return self._members(depth + 1)
            case "+" | "-" as sign:
                self._at += 1
                value = self._value(depth + 1)
                if isinstance(value, bool) or not isinstance(value, int | float):
                    raise ValueError("no number")
                return -value if sign == "-" else value
        return self._scalar()

    def _members(self, depth: int) -> object:
        """A dictionary, or a set."""
        keys: list[str] = []
        values: list[object] = []
        while self._next() != "}":
            value = self._value(depth)
            if self._next() == ":":
                self._at += 1
                keys.append(_key(value))
                value = self._value(depth)
            values.append(value)
            if self._next() == ",":
                self._at += 1
            elif self._next() != "}":
                raise ValueError("no comma")
        self._at += 1
        if keys or not values:
            return dict(zip(keys, values, strict=True))
        return values

    def _scalar(self) -> object:
        if (string := _STRING.match(self._text, self._at)) is not None:
            parts = []
            while string is not None:
                parts.append(_unescaped(string))
                self._at = string.end()
                self._next()
                string = _STRING.match(self._text, self._at)
            return "".join(parts)
        if (found := _NUMBER.match(self._text, self._at)) is not None:
            self._at = found.end()
            return _number(found.group())
        found = _NAME.match(self._text, self._at)
        if found is None or found.group() not in _NAMES:
            raise ValueError("no literal")
        self._at = found.end()
        return _NAMES[found.group()]


def _key(value: object) -> str:
    """A key as JSON has it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict):
        raise ValueError("no key of JSON")
    return json.dumps(value)


def _number(text: str) -> float:
    text = text.replace("_", "")
    if text[1:2].isalpha() and text[1] not in "eE":
        return int(text, 0)
    value = int(text) if text.isdigit() else float(text)
    if not math.isfinite(value):
        raise ValueError("no number of JSON")
    return value


def _unescaped(string: re.Match[str]) -> str:
    inner = next(string[name] for name in "abcd" if string[name] is not None)
    return inner if string["raw"] or "\\" not in inner else _ESCAPE.sub(_character, inner)


def _character(escape: re.Match[str]) -> str:
    if (code := escape["x"] or escape["u"] or escape["U"]) is not None:
        return chr(int(code, 16))
    if escape["octal"] is not None:
        return chr(int(escape["octal"], 8))
    if escape["name"] is not None:
        try:
            return unicodedata.lookup(escape["name"])
        except KeyError as error:
            raise ValueError("no character") from error
    return _ESCAPED.get(escape["one"], escape.group())

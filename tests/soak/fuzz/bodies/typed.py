"""Strategies for what the SDK's types of arguments describe."""

from __future__ import annotations

import base64
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typing_extensions
from hypothesis import strategies as st

from tests.endpoints.pictures import data_url

MAX_DEPTH = 6
"""Of objects; below it optional fields are left away, and lists are empty."""
Strategy = st.SearchStrategy[Any]

_SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]},
    {"type": "object", "properties": {}, "additionalProperties": False},
    {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"enum": [1, "a", None]}}},
    {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"]}},
        "required": ["a"],
        "additionalProperties": False,
    },
    {"type": "object", "properties": {"a": {"type": "array", "items": {"anyOf": [{"type": "number"}, {}]}}}},
    {},
]
_TEXTS = [
    "Hi",
    "What is it?",
    "",
    " ",
    "{}",
    '{"a": "b"}',
    "<think>x</think>",
    "<|im_end|>",
    "é🙂\u202e",
    "a" * 3000,
    "\0",
]
_NAMES = ["a", "look_up", "get-it", "A" * 64, "x", "plan_trip"]
_IDS = ["call_1", "call_2", "resp_1", "msg_1", "rs_1", "file-1", "conv_1", "item_1"]

HINTS: dict[str, Strategy] = {
    "model": st.sampled_from(["gpt-4o", "m", "gpt-5", "o3"]),
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0, 1),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "n": st.integers(1, 3),
    "best_of": st.integers(1, 3),
    "seed": st.integers(-(2**63), 2**63 - 1),
    "top_logprobs": st.integers(0, 20),
    "max_tokens": st.integers(1, 60),
    "max_completion_tokens": st.integers(1, 60),
    "max_output_tokens": st.integers(16, 60),
    "max_tool_calls": st.integers(1, 9),
    "logit_bias": st.dictionaries(st.sampled_from(["0", "5", "77"]), st.integers(-100, 100), max_size=2),
    "stop": st.one_of(st.sampled_from(_TEXTS[:2]), st.lists(st.sampled_from(["x", "\n", "is"]), max_size=4)),
    "url": st.sampled_from([data_url(), data_url(), "data:,x", "https://127.0.0.1/x.png", "file:///etc/passwd"]),
    "image_url": st.sampled_from([data_url(), "data:image/png;base64,AAAA"]),
    "data": st.sampled_from([base64.b64encode(b"RIFF").decode(), "!"]),
    "file_data": st.sampled_from(["data:text/plain;base64,SGk=", "SGk=", "x"]),
    "arguments": st.sampled_from(["{}", '{"a": "b"}', "{", "[]", "null", '{"a": NaN}', "x"]),
    "parameters": st.sampled_from(_SCHEMAS),
    "schema": st.sampled_from(_SCHEMAS),
    "name": st.sampled_from(_NAMES),
    "definition": st.sampled_from(["start: /a+/", "^[a-z]+$", 'start: "x"', "start: ("]),
    "id": st.sampled_from(_IDS),
    "call_id": st.sampled_from(_IDS[:2]),
    "tool_call_id": st.sampled_from(_IDS[:2]),
    "item_id": st.sampled_from(_IDS),
    "dimensions": st.integers(1, 64),
    "encoding_format": st.sampled_from(["float", "base64"]),
    "background": st.just(False),
    "stream": st.just(False),
}
"""What a field of this name is of, more often than not."""
_REFUSED = (
    "audio",
    "modalities",
    "web_search_options",
    "prompt",
    "moderation",
    "access_programs",
    "background_options",
)
"""Fields that the endpoints of answers refuse: they are taken seldom."""
_SEEN = ("function", "message", "text", "json_schema", "json_object", "custom", "user", "system", "assistant", "tool")


def text() -> Strategy:
    return st.one_of(st.sampled_from(_TEXTS), st.text(max_size=20))


@cache
def of(kind: Any, depth: int = 0) -> Strategy:
    """A strategy for a type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]()
    if origin in (
        Annotated,
        typing_extensions.Required,
        typing_extensions.NotRequired,
        typing.Required,
        typing.NotRequired,
    ):
        return of(arguments[0], depth)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return _union(arguments, depth)
    if typing_extensions.is_typeddict(kind):
        return _object(kind, depth)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(st.sampled_from(["a", "key", ""]), of(arguments[1], depth + 1), max_size=2)
    if origin is tuple:
        return st.tuples(*(of(each, depth + 1) for each in arguments if each is not Ellipsis)).map(list)
    if origin is not None and issubclass(origin, Iterable):
        most = 3 if depth < MAX_DEPTH else 0
        few = st.deferred(lambda: st.lists(of(arguments[0], depth + 1), min_size=min(1, most), max_size=most))
        return st.integers(0, 9).flatmap(lambda number: few if number else st.just([]))
    if isinstance(kind, type) and issubclass(kind, Sequence):
        return st.lists(text(), max_size=2)
    return anything()


def anything() -> Strategy:
    """A small JSON value."""
    plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), text())
    return st.recursive(
        plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text(), inner, max_size=3), max_leaves=5
    )


_PLAIN: dict[Any, Callable[[], Strategy]] = {
    str: text,
    int: lambda: st.integers(-5, 100),
    float: lambda: st.floats(-3, 3),
    bool: st.booleans,
    type(None): st.none,
    None: st.none,
    object: anything,
    Any: anything,
    bytes: st.binary,
}


def _union(kinds: Sequence[Any], depth: int) -> Strategy:
    """One of several types; those of functions and texts more often than hosted tools."""
    common = [kind for kind in kinds if _is_common(kind)]
    if depth >= MAX_DEPTH:
        simple = [kind for kind in kinds if not typing_extensions.is_typeddict(kind)]
        kinds = simple or kinds[:1]
        common = []
    every = st.deferred(lambda: st.one_of([of(kind, depth) for kind in kinds]))
    if not common or len(common) == len(kinds):
        return every
    few = st.deferred(lambda: st.one_of([of(kind, depth) for kind in common]))
    return st.integers(0, 7).flatmap(lambda number: every if number == 0 else few)


def _is_common(kind: Any) -> bool:
    if not typing_extensions.is_typeddict(kind):
        return kind is not type(None)
    hints = _hints(kind)
    named = [value for name in ("type", "role") for value in get_args(_bare(hints.get(name)))]
    return not named or any(name in _SEEN or name in _TYPES for name in named)


_TYPES = ("input_text", "output_text", "function_call", "function_call_output", "reasoning", "image_url", "input_image")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _bare(kind: Any) -> Any:
    while get_origin(kind) in (Annotated, typing_extensions.Required, typing_extensions.NotRequired, typing.Required):
        kind = get_args(kind)[0]
    return kind


@cache
def _object(kind: Any, depth: int) -> Strategy:
    """An object with what it requires and a few of its optional fields."""
    hints = _hints(kind)
    required = {name for name in hints if name in kind.__required_keys__ or get_origin(hints[name]) in _REQUIRED}
    required |= {"input"} & hints.keys() if depth == 0 else set()
    optional = sorted(hints.keys() - required)
    wanted = [name for name in optional if name not in _REFUSED] * 3 + optional
    most = 0 if depth >= MAX_DEPTH or not optional else 5 if depth == 0 else 2

    def made(chosen: list[str]) -> Strategy:
        names = sorted(required | set(chosen))
        return st.fixed_dictionaries({name: _field(name, hints[name], depth) for name in names})

    return st.deferred(lambda: st.lists(st.sampled_from(wanted or [""]), max_size=most).flatmap(made))


_REQUIRED = (typing_extensions.Required, typing.Required)


def _field(name: str, kind: Any, depth: int) -> Strategy:
    typed = of(kind, depth + 1)
    hint = HINTS.get(name)
    if hint is None or get_origin(_bare(kind)) is Literal or typing_extensions.is_typeddict(_bare(kind)):
        return typed
    return st.integers(0, 5).flatmap(lambda number: typed if number == 0 else hint)

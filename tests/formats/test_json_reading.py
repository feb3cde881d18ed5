"""JSON that comes in pieces: objects as they are written, and calls that are objects."""

from __future__ import annotations

import json
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localai_shim.formats.source import Event, NoCallError, Reading, Source, UnreadableError
from localai_shim.formats.syntaxes.arguments import MAX_KEYS, json_text, json_value, object_call
from localai_shim.formats.values import OfferedTools
from tests.formats.reading import arguments, run

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def calls(
    text: str, *, key: str = "name", only: Collection[str] | None = None, free: Collection[str] = (), cut: bool = False
) -> tuple[str, str, str, str]:
    """(name, arguments, the last event's kind, what is left) of a call that is an object."""

    def read(source: Source) -> Reading[None]:
        yield from source.peek()
        yield from object_call(source, key, only, OfferedTools(custom=free))

    events, _, rest = run(read, text, stops=["</end>"], cut=cut)
    assert [event.kind for event in events][:1] == ["name"]
    written = arguments(events) + "".join(event.text for event in events if event.kind == "broken")
    return events[0].text, written, events[-1].kind, rest


# -- values -----------------------------------------------------------------------------------------------------------


@given(
    value=_VALUES, ascii=st.booleans(), indent=st.sampled_from([None, 2]), behind=st.sampled_from(["", ",", " }", "]"])
)
def test_a_value_is_read_up_to_its_end(value: object, ascii: bool, indent: int | None, behind: str) -> None:
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    assert run(json_value, f" {text}{behind}") == ([], text, behind)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "</end>"}',
        '{"a": "} ] \\" \\\\"}',
        '{"a": [{}, [[]], "x"]}',
        "{}",
        '{"a": "é\\u00e9\\n"}',
        '{"a": "x\ny"}',
    ],
)
def test_an_object_is_emitted_as_it_is_written(text: str) -> None:
    assert run(json_text, f"{text} behind", stops=["</end>"]) == ([Event("arguments", text)], None, " behind")


def test_an_object_comes_before_it_is_whole() -> None:
    source = Source(["</end>"])
    steps = json_text(source)
    for text, comes in (('{"a": "w', '{"a": "w'), ("or</en", "or"), ("x", "</enx"), ("\\", ""), ('"', '\\"')):
        source.text += text
        events = []
        while (event := next(steps)) is not None:
            events.append(event.text)
        assert "".join(events) == comes


def test_a_stop_in_a_string_is_text_unless_a_line_was_broken_in_it() -> None:
    """A string that was never closed goes on to the end of its line at most."""
    assert run(json_value, '{"a": "x </end> y"}', stops=["</end>"])[1] == '{"a": "x </end> y"}'
    with pytest.raises(UnreadableError, match="a marker came"):
        run(json_value, '{"a": "x}\n</end>"}', stops=["</end>"])
    with pytest.raises(UnreadableError, match="a marker came"):
        run(json_value, '{"a": 1 </end>}', stops=["</end>"])


@pytest.mark.parametrize("text", ['{"a": ', '{"a": "x', '"x', "[", '"\\'])
def test_a_value_without_an_end_is_none(text: str) -> None:
    with pytest.raises(UnreadableError, match="ends inside"):
        run(json_value, text)


@pytest.mark.parametrize("text", ["", ",", "}", ":"])
def test_no_value_is_none(text: str) -> None:
    with pytest.raises(UnreadableError, match="no value"):
        run(json_value, text)


# -- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('{"name": "f", "arguments": {"a": 1}}', '{"a": 1}'),
        ('{ "name" : "f" ,\n "arguments" :{ "a":1 } }', '{ "a":1 }'),
        ('{"tool_name": "f", "parameters": {"a": 1}}', '{"a": 1}'),
        ('{"arguments": {"a": 1}, "name": "f"}', '{"a": 1}'),
        ('{"id": "x", "index": 3, "name": "f", "why": [1, {}], "arguments": {"a": 1}}', '{"a": 1}'),
        ('{"name": "f", "arguments": {"a": 1}, "id": "x", "more": {"y": []}}', '{"a": 1}'),
        ('{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}', '{"a": 1}'),
        ('{"id": "x", "type": "function", "function": {"arguments": "{\\"a\\": 1}", "name": "f"}}', '{"a": 1}'),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', '{"a": 1}'),
        ('{"name": "f", "arguments": null}', "{}"),
        ('{"name": "f", "arguments": ""}', "{}"),
        ('{"name": "f"}', "{}"),
        ('{"name": " f "}', "{}"),
        ('{"name": "f", "arguments": [1]}', "[1]"),
        ('{"name": "f", "arguments": "text"}', "text"),
        ('{"name": "f", "arguments": {"a": 1}, "arguments": {"a": 2}}', '{"a": 1}'),
    ],
)
def test_a_call_is_an_object_whose_keys_come_in_any_order(text: str, written: str) -> None:
    assert calls(f"{text} behind") == ("f", written, "end", " behind")


def test_an_object_without_its_own_brace_ends_with_its_arguments() -> None:
    assert calls('{"name": "f", "arguments": {}</end>') == ("f", "{}", "end", "</end>")
    assert calls('{"name": "f", "arguments": {}, {"name": "g"}') == ("f", "{}", "end", ', {"name": "g"}')


@pytest.mark.parametrize(("text", "name"), [('{"f": {"a": 1}}', "f"), ('{"name": {"a": 1}}', "name")])
def test_a_name_may_be_the_key(text: str, name: str) -> None:
    assert calls(text, key="NAME") == (name, '{"a": 1}', "end", "")


@pytest.mark.parametrize(
    ("text", "key", "only"),
    [
        ("{}", "name", None),
        ('{"name": 7}', "name", None),
        ('{"name": ""}', "name", None),
        ('{"name": " ", "arguments": {}}', "name", None),
        ('{"name": "g", "arguments": {}}', "name", ["f"]),
        ('{"city": "Paris", "name": "f"}', "name", ["f"]),
        ('{"f": 1}', "NAME", None),
        ('{"g": {}}', "NAME", ["f"]),
    ],
)
def test_an_object_that_names_no_function_is_no_call(text: str, key: str, only: list[str] | None) -> None:
    with pytest.raises(NoCallError):
        calls(text, key=key, only=only)


@pytest.mark.parametrize("text", ["{a: 1}", '{"name" "f"}', '{"name": "f', "{'name': 'f'}"])
def test_what_is_no_json_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError):
        calls(text)


def test_an_object_has_only_so_many_keys_before_its_name() -> None:
    keys = ", ".join(f'"k{i}": 1' for i in range(MAX_KEYS))
    with pytest.raises(NoCallError):
        calls(f'{{{keys}, "name": "f"}}')


def test_text_may_stand_behind_the_object_of_a_tool_that_takes_text() -> None:
    assert calls('{"name": "f"}\nprint(1)\n</end>', free=["f"]) == ("f", "print(1)", "broken", "</end>")
    assert calls('{"name": "f", "arguments": {"input": "x"}}\n', free=["f"])[1] == '{"input": "x"}'

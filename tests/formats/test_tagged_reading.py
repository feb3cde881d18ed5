"""Parameters that are written one by one, between tags."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from localai_shim.formats.source import Reading, Source, UnreadableError, layout
from localai_shim.formats.syntaxes.tagged import Parameters, inside
from localai_shim.formats.table import FORMATS
from localai_shim.formats.values import dumps
from tests.formats.reading import arguments, run

_SCHEMA = {
    "properties": {
        "text": {"type": "string"},
        "more": {"type": "string"},
        "count": {"type": "integer"},
        "list": {"type": "array", "items": {"type": "integer"}},
        "tree": {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "tree": {"type": "object", "properties": {"count": {"type": "integer"}}},
                "list": {"type": "array", "items": {"type": "string"}},
            },
        },
    }
}


def kind_of(family: str) -> Parameters:
    kind = FORMATS[family].arguments
    assert isinstance(kind, Parameters)
    return kind


def read(
    family: str, text: str, end: str, *, schema: Mapping[str, Any] = _SCHEMA, cut: bool = False
) -> tuple[str, bool, str]:
    """(arguments, it is whole, what is left) of parameters that stand before this end."""

    def reader(source: Source) -> Reading[bool]:
        return (yield from kind_of(family).read(source, (layout(end),), lambda: schema))

    events, whole, rest = run(reader, text, stops=["</tool_call>"], cut=cut)
    return arguments(events), whole, rest


def qwen(text: str, **more: Any) -> dict[str, Any]:
    written, whole, rest = read("qwen3_coder", f"{text}</function>", "</function>", **more)
    assert (whole, rest) == (True, "")
    made: dict[str, Any] = json.loads(written)
    return made


def one(value: str, key: str = "text") -> str:
    return f"<parameter={key}>{value}</parameter>"


def test_one_newline_at_each_side_of_a_value_is_markup() -> None:
    assert qwen(one("\nx\n")) == {"text": "x"}
    assert qwen(one("x")) == {"text": "x"}
    assert qwen(one("\n\n  x \n\n")) == {"text": "\n  x \n"}
    assert qwen(one("\n")) == qwen(one("")) == qwen(one("\n\n")) == {"text": ""}
    assert qwen("") == {}


@pytest.mark.parametrize(
    "value", ["a < b", "</b>", "<parameter", "</parameter", "</parameter>x", "<function=f>", 'a"\\']
)
def test_what_is_not_the_end_of_a_value_is_its_text(value: str) -> None:
    assert qwen(one(f"\n{value}\n")) == {"text": value}


@pytest.mark.parametrize(
    "text",
    [
        "<parameter=text>\nx\n<parameter=count>\n3\n</parameter>\n",
        "<parameter=text>\nx\n</parameter>\n<parameter=count>\n3\n",
        "<parameter=text>\nx\n</parameter>\n<parameter=count>\n3",
    ],
)
def test_an_end_that_was_left_away_is_where_the_next_parameter_or_the_calls_end_stands(text: str) -> None:
    assert qwen(text) == {"text": "x", "count": 3}


def test_a_parameter_that_the_function_does_not_have_ends_no_value() -> None:
    assert qwen(one("see <parameter=nobody> there")) == {"text": "see <parameter=nobody> there"}
    assert qwen(one("see <parameter=text> there")) == {"text": "see <parameter=text> there"}, "it has come"


def test_values_are_of_the_types_of_the_schema() -> None:
    made = qwen(one("12") + one("12", "count") + one("[1, 2]", "list") + one('{"text": "x"}', "tree") + one("7", "new"))
    assert made == {"text": "12", "count": 12, "list": [1, 2], "tree": {"text": "x"}, "new": "7"}


@pytest.mark.parametrize("wrapper", ["arguments", "input"])
def test_a_parameter_may_hold_all_of_them(wrapper: str) -> None:
    assert qwen(one('{"text": "x", "count": 3}', wrapper)) == {"text": "x", "count": 3}
    assert qwen(one("plain", wrapper)) == {wrapper: "plain"}
    assert qwen(one("plain", wrapper), schema={"properties": {wrapper: {"type": "string"}}}) == {wrapper: "plain"}


def test_a_text_comes_while_it_is_written() -> None:
    source = Source(["</tool_call>"])
    steps = kind_of("qwen3_coder").read(source, (layout("</function>"),), lambda: _SCHEMA)
    for text, comes in (
        ("<parameter=text>\nfir", '{"text": "fir'),
        ("st\n", "st"),
        ('se"cond</par', '\\nse\\"cond'),
        ("am", ""),
        ("x", "</paramx"),
        ("\n</parameter>\n</function>", '"}'),
    ):
        source.text += text
        out = ""
        while (event := next(steps, None)) is not None:
            out += event.text
        assert out == comes


def test_a_call_ends_with_its_block_or_its_turn_and_is_cut_where_the_answer_is() -> None:
    assert read("qwen3_coder", one("x") + "</tool_call>", "</function>") == ('{"text": "x"}', True, "</tool_call>")
    assert read("qwen3_coder", one("x"), "</function>") == ('{"text": "x"}', True, "")
    assert read("qwen3_coder", one("x"), "</function>", cut=True) == ('{"text": "x"', False, "")
    assert read("qwen3_coder", "", "</function>", cut=True) == ("", False, "")


def test_what_is_neither_a_parameter_nor_an_end_cannot_be_read() -> None:
    with pytest.raises(UnreadableError, match="neither a parameter nor the end"):
        read("qwen3_coder", "and more</function>", "</function>")


# -- peculiar families ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("<![CDATA[a </param> & <b>\n]]>", "a </param> & <b>\n"),
        ("<![CDATA[]]>", ""),
        ("<![CDATA", "<![CDATA"),
        ("a", "a"),
    ],
)
def test_a_value_may_stand_in_cdata(value: str, expected: str) -> None:
    written, whole, _ = read("minicpm5", f'<param name="text">{value}</param></function>', "</function>")
    assert (json.loads(written), whole) == ({"text": expected}, True)


def _m3(text: str) -> Any:
    mark = "]<]minimax[>["
    written, whole, _ = read("minimax_m3", (text + "</invoke>").replace("<", f"{mark}<"), f"{mark}</invoke>")
    assert whole
    return json.loads(written)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<text>a</text><count>3</count>", {"text": "a", "count": 3}),
        ("<list><item>1</item><item>2</item></list>", {"list": [1, 2]}),
        ("<list></list><tree></tree>", {"list": [], "tree": {}}),
        ("<tree><text>1</text><tree><count>2</count></tree></tree>", {"tree": {"text": "1", "tree": {"count": 2}}}),
        ("<tree><tree><count>2</count></tree><text>a</text></tree>", {"tree": {"tree": {"count": 2}, "text": "a"}}),
        ("<tree><list><item>1</item></list></tree>", {"tree": {"list": ["1"]}}),
        ("<tree><list>a</list><list>b</list></tree>", {"tree": {"list": ["a", "b"]}}),
        ("<list>[1, 2]</list>", {"list": [1, 2]}),
    ],
)
def test_objects_and_arrays_may_be_elements(text: str, expected: object) -> None:
    assert _m3(text) == expected


def _kimi(text: str) -> Any:
    def tag(line: str) -> str:
        key, type, value = line.split("|", 2)
        return f'<|open|>argument key="{key}" type="{type}"<|sep|>{value}<|close|>argument<|sep|>'

    written, whole, _ = read(
        "kimi_k3", "".join(map(tag, text.split("\n"))) + "<|close|>call<|sep|>", "<|close|>call<|sep|>"
    )
    assert whole
    return json.loads(written)


def test_a_model_may_name_the_types() -> None:
    assert _kimi("text|string|12\ncount|number|12") == {"text": "12", "count": 12}
    assert _kimi("new|string|12\nother|number|12\nthird|object|{}") == {"new": "12", "other": 12, "third": {}}
    assert _kimi("text|number|12") == {"text": "12"}, "the schema is what the function takes"
    assert _kimi("a &amp; b|string|x &amp; y") == {"a & b": "x &amp; y"}, "keys are escaped, values are not"


def test_all_arguments_may_stand_in_one_object() -> None:
    text = '<|open|>json type="object"<|sep|>{"text": "x"}<|close|>json<|sep|><|close|>call<|sep|>'
    assert read("kimi_k3", text, "<|close|>call<|sep|>")[:2] == ('{"text": "x"}', True)


@pytest.mark.parametrize("text", ['é\n"\\', "\ud800 x", "plain"])
def test_the_inside_of_a_json_string_can_be_encoded(text: str) -> None:
    for written in (f'"{inside(text)}"', dumps(text)):
        assert json.loads(written) == text
        written.encode()
    assert inside("é🚲") == "é🚲"

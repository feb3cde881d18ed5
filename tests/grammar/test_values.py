from __future__ import annotations

import re
from typing import Any

import pytest

from localai_shim.grammar import GrammarError
from localai_shim.grammar.calls import SUPPORTED
from localai_shim.grammar.tool import CustomFormat, Tool
from tests.grammar.drafts import drafts, says
from tests.output.calls import ENDINGS, FORMATS, HEADERS, SUM, WITH_LARK, compiled, parsed
from tests.samples import only

# -- Values that are not written as JSON ------------------------------------------------------------------------------

RAW = ("qwen3_coder", "gemma4", "function_gemma")


def argument(format: str, value: str) -> str:
    """A call of `f` whose argument `a` is written like this."""
    return {
        "qwen3_coder": f"<tool_call>\n<function=f>\n<parameter=a>\n{value}\n</parameter>\n</function>\n</tool_call>",
        "gemma4": f"<|tool_call>call:f{{a:{value}}}<tool_call|>",
        "function_gemma": f"<start_function_call>call:f{{a:{value}}}<end_function_call>",
    }[format]


def takes(format: str, member: Any, *values: str, **more: Any) -> list[bool]:
    schema = {"type": "object", "properties": {"a": member}, "required": ["a"], **more}
    grammar, vocabulary = compiled(format, [Tool("f", schema, strict=True)])
    return [says(grammar, vocabulary, argument(format, value)) for value in values]


def test_a_string_in_tags_is_never_null_and_never_ends_the_tag() -> None:
    string = {"type": "string"}
    assert takes("qwen3_coder", string, "null", "NULL", "a</parameter>b", "</tool_call>") == [False] * 4
    assert takes("qwen3_coder", string, "", "\n", "nullify", "null\n", "<b>", " 5 ", '{"a": 1}') == [True] * 7
    assert takes("qwen3_coder", {"enum": ["null", "x"]}, "null", "x") == [False, True]
    with pytest.raises(GrammarError, match='cannot write the string "null"'):
        takes("qwen3_coder", {"const": "null"})


def test_a_value_of_several_types_in_tags_can_be_each_of_them() -> None:
    either = {"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "array", "items": {"type": "integer"}}]}
    assert takes("qwen3_coder", either, "null", "text", "[1, 2]", "") == [True] * 4
    # What begins like JSON is JSON: the parser would take a string for it.
    assert takes("qwen3_coder", either, "[x]", "{}", ' ["a"]') == [False] * 3
    assert takes("qwen3_coder", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "[x", "[1]") == [True, False]


def test_json_in_tags_never_ends_the_tag() -> None:
    strings = {"type": "array", "items": {"type": "string"}}
    patterns = {"type": "array", "items": {"type": "string", "pattern": "^<.*>$"}}
    for member in (strings, patterns, {"type": "object"}):
        inside = '{{"k": "{}"}}' if member == {"type": "object"} else '["{}"]'
        assert takes("qwen3_coder", member, inside.format("<b></b>")) == [True]
        assert takes("qwen3_coder", member, inside.format("<a></parameter>")) == [False]
    assert takes("qwen3_coder", {"enum": [["</parameter>"]]}, '["\\u003c/parameter>"]', '["</parameter>"]') == [
        True,
        False,
    ]


def test_numbers_in_tags_stay_what_they_are_as_doubles() -> None:
    assert takes("qwen3_coder", {"type": "integer"}, "9007199254740991", "9007199254740993", "-5") == [
        True,
        False,
        True,
    ]
    assert takes("qwen3_coder", {"type": "number"}, "1.5", "1e999", "-0.25") == [True, False, True]
    assert takes("qwen3_coder", {"type": "integer", "minimum": 3}, "2", "3") == [False, True]
    assert takes("qwen3_coder", {"type": "number", "exclusiveMinimum": 3, "multipleOf": 0.5}, "3", "3.5") == [
        False,
        True,
    ]


def test_gemma_nests_values() -> None:
    string = '<|"|>{}<|"|>'.format
    assert takes("gemma4", {"type": "string"}, string("a}b"), string(""), '"a"', string("<tool_call|>")) == [
        True,
        True,
        False,
        False,
    ]
    nested = {
        "type": "array",
        "items": {"type": "object", "properties": {"k": {"type": "string"}, "n": {"type": ["integer", "null"]}}},
    }
    assert takes("gemma4", nested, "[]", f"[{{k:{string('x,y:z')},n:null}},{{}}]", "[{n:1}]", "[{z:1}]") == [
        True,
        True,
        True,
        False,
    ]
    assert (
        takes("gemma4", {"enum": ["a", 1, ["b"], {"k": None}]}, string("a"), "1", f"[{string('b')}]", "{k:null}")
        == [True] * 4
    )
    assert takes("gemma4", True, "true", f"{{k:[1,{string('x')}]}}") == [True, True]


def test_function_gemma_writes_flat_values() -> None:
    string = "<escape>{}<escape>".format
    assert takes("function_gemma", {"type": "string"}, string("a,b:c"), string("a}b"), string("")) == [
        True,
        False,
        True,
    ]
    assert takes("function_gemma", {"type": ["integer", "null"]}, "5", "null", "5.5") == [True, True, False]
    with pytest.raises(GrammarError, match="cannot write objects and arrays: 'a'"):
        takes("function_gemma", {"anyOf": [{"type": "null"}, {"type": "array"}]})
    with pytest.raises(GrammarError, match="cannot write objects and arrays"):
        takes("function_gemma", {"enum": [[1]]})


@pytest.mark.parametrize("format", RAW)
@pytest.mark.parametrize(
    ("member", "message"),
    [
        ({"type": "string", "pattern": "^a$", "minLength": 2}, "No text satisfies minLength 2, pattern '\\^a\\$'"),
        ({"type": "string", "pattern": "("}, "unclosed group"),
        ({"type": "string", "pattern": "a^b"}, "lookarounds"),
        ({"type": "string", "format": "colour"}, "Unknown format: colour"),
        ({"type": "colour"}, "Invalid type: colour"),
        ({"not": {"type": "null"}}, 'Unimplemented keys: \\["not"\\]'),
        ({"$ref": "#/$defs/nope"}, "nothing at the \\$ref '#/\\$defs/nope'"),
        ({"type": "integer", "enum": ["a"]}, "no value of"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf is only supported"),
        (False, "No value satisfies the schema false"),
    ],
    ids=str,
)
def test_what_cannot_be_written_is_an_error_that_names_the_tool(format: str, member: Any, message: str) -> None:
    with pytest.raises(GrammarError, match=f"^Tool 'f': .*{message}"):
        takes(format, member)


def test_a_oneof_works_where_its_options_are_told_apart() -> None:
    kind = {name: {"type": "object", "properties": {"k": {"const": name}}, "required": ["k"]} for name in "xy"}
    member = {"oneOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/y"}, {"type": "null"}]}
    assert takes("gemma4", member, '{k:<|"|>y<|"|>}', "null", "{}", **{"$defs": kind}) == [True, True, False]


@pytest.mark.parametrize(("format", "name"), [("gemma4", "a b"), ("function_gemma", "a-b"), ("qwen3_coder", "a b")])
def test_names_that_a_format_cannot_write_are_an_error(format: str, name: str) -> None:
    schema = {"type": "object", "properties": {name: {"type": "integer"}}}
    with pytest.raises(GrammarError, match=f'cannot write the (property|parameter) name "{name}"'):
        compiled(format, [Tool("f", schema)])
    if format == "function_gemma":
        with pytest.raises(GrammarError, match="cannot write this name"):
            compiled(format, [Tool(name)])


# -- Custom tools -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_a_custom_tool_is_a_function_of_one_string(format: str) -> None:
    grammar, vocabulary = compiled(format, [Tool("shell", custom=CustomFormat("text", ""))])
    for text in drafts(grammar, vocabulary, 10, endings=ENDINGS):
        (call,) = parsed(format, text)
        assert call["name"] == "shell" and list(call["arguments"]) == ["input"]
        assert isinstance(call["arguments"]["input"], str)


QUOTED = [(format, r'"x"\n?') for format in FORMATS]
DEFINED = [*QUOTED, *((format, pattern) for format in FORMATS for pattern in (r"[a-z]{2}=\d{3}", r"^ab|c\d$"))]


@pytest.mark.parametrize(("format", "definition"), only(DEFINED[: len(FORMATS) + 4], DEFINED))
def test_a_custom_tools_input_matches_its_regular_expression_as_a_whole(format: str, definition: str) -> None:
    grammar, vocabulary = compiled(format, [Tool("set", custom=CustomFormat("regex", definition))])
    for text in drafts(grammar, vocabulary, 10):
        assert re.fullmatch(definition, parsed(format, text)[0]["arguments"]["input"])


@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("format", WITH_LARK)
def test_a_custom_tools_input_follows_its_lark_grammar(format: str, mode: Any) -> None:
    grammar, vocabulary = compiled(format, [Tool("sum", custom=CustomFormat("lark", SUM)), Tool("now")], mode=mode)
    before, after = HEADERS[format]
    for text, good in [("1", True), ("12 + (3+4)", True), ("1+", False), ("(1", False), ("x", False)]:
        assert says(grammar, vocabulary, before + text + after) is good, text
    if mode == "required":
        for text in drafts(grammar, vocabulary, 10):
            assert "now" in text or re.search(r"[0-9]", text)


@pytest.mark.parametrize("format", sorted(SUPPORTED - set(WITH_LARK)))
def test_lark_is_refused_where_calls_are_items_of_an_array(format: str) -> None:
    with pytest.raises(GrammarError, match="Tool 'sum': Lark grammars are not possible"):
        compiled(format, [Tool("sum", custom=CustomFormat("lark", SUM))])

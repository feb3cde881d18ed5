from __future__ import annotations

from typing import Any

import pytest

from localai_shim.formats.syntaxes.arguments import JsonArguments
from localai_shim.formats.table import FORMATS as ROWS
from localai_shim.grammar import GrammarError
from localai_shim.grammar.tool import Tool
from tests.formats.grammar.calls import FORMATS, compiled, read, valid, written
from tests.grammar.drafts import says

# -- Values that are not written as JSON ------------------------------------------------------------------------------

RAW = [name for name in FORMATS if not isinstance(ROWS[name].arguments, JsonArguments)]
"""Formats of which these rules write the values."""
HEADS = {
    "qwen3_coder": ("<tool_call>\n<function=f>\n<parameter=a>\n", "\n</parameter>\n</function>\n</tool_call>"),
    "gemma4": ("<|tool_call>call:f{a:", "}<tool_call|>"),
    "functiongemma": ("<start_function_call>call:f{a:", "}<end_function_call>"),
    "minicpm5": ('<function name="f"><param name="a">', "</param></function>"),
    "lfm2": ("<|tool_call_start|>[f(a=", ")]<|tool_call_end|>"),
    "minimax_m3": (
        ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="f">]<]minimax[>[<a>',
        "]<]minimax[>[</a>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    ),
}


def takes(format: str, member: Any, *values: str, **more: Any) -> list[bool]:
    """Which of these an argument `a` with this schema may be written as. What may be is read as a valid one."""
    schema = {"type": "object", "properties": {"a": member}, "required": ["a"], **more}
    tools = [Tool("f", schema, strict=True)]
    grammar, vocabulary = compiled(format, tools)
    before, behind = HEADS.get(format, ("", ""))
    found = [says(grammar, vocabulary, before + value + behind) for value in values]
    for value, good in zip(values, found, strict=True):
        if good:
            valid(read(format, before + value + behind, tools)[0][1], schema)
    return found


def test_a_string_in_tags_never_ends_the_tag_and_never_begins_another() -> None:
    string = {"type": "string"}
    assert takes("qwen3_coder", string, "a</parameter>b", "</tool_call>", "<parameter=b>") == [False] * 3
    assert takes("qwen3_coder", string, "", "\n", "null", "null\n", "<b>", " 5 ", '{"a": 1}') == [True] * 7
    assert takes("qwen3_coder", {"enum": ["null", "x"]}, "null", "x") == [True, True]


def test_a_value_of_several_types_in_tags_can_be_each_of_them() -> None:
    either = {"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "array", "items": {"type": "integer"}}]}
    assert takes("qwen3_coder", either, "null", "text", "[1, 2]", "") == [True] * 4
    # What begins like JSON is JSON: the reader would take a string for it.
    assert takes("qwen3_coder", either, "[x]", "{}", ' ["a"]') == [False] * 3
    assert takes("qwen3_coder", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "[x", "[1]") == [True, True]


def test_no_string_in_tags_spells_a_number_that_is_not_allowed() -> None:
    few = {"anyOf": [{"type": "string"}, {"type": "integer", "maximum": 3}]}
    assert takes("qwen3_coder", few, "3", "4", "3 of 4", "of 4") == [True, False, False, True]
    assert takes("qwen3_coder", {"type": ["string", "integer"]}, "3", "3 of 4", "3.5", "true") == [True] * 4
    assert takes("qwen3_coder", {"type": ["string", "number"]}, "3.5", "3 of 4", "1e999", "NaN") == [
        True,
        True,
        False,
        False,
    ]
    assert takes("qwen3_coder", {"anyOf": [{"type": "string"}, {"const": True}]}, "true", "false") == [True, False]
    assert takes("qwen3_coder", {"enum": ["5", 7]}, "5", "7") == [True, True]
    with pytest.raises(GrammarError, match='cannot write the string "</parameter>"'):
        takes("qwen3_coder", {"const": "</parameter>"})


def test_text_that_looks_like_xml_stands_in_cdata() -> None:
    string, numbers = {"type": "string"}, {"type": "array", "items": {"type": "integer"}}
    cdata = "<![CDATA[{}]]>".format
    assert takes("minicpm5", string, "plain", cdata("<b> & </p>"), cdata(""), "<b>", "a & b") == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert takes("minicpm5", numbers, "[1, 2]", cdata("[1, 2]"), "[[1]]") == [True, True, False]
    assert takes("minicpm5", {"enum": ["<b>", 1]}, cdata("<b>"), "1", cdata("1"), "<b>") == [True, True, True, False]


def test_python_is_written_with_the_strings_of_json() -> None:
    assert takes("lfm2", {"type": "string"}, "\"a, b) = 'c'\"", r'"\"\n\\"', "'a'", "a") == [True, True, False, False]
    assert takes("lfm2", {"type": ["boolean", "null"]}, "True", "None", "true", "null") == [True, True, False, False]
    member = {"type": "object", "properties": {"k k": {"type": "array", "items": {"type": "number"}}}}
    assert takes("lfm2", member, '{"k k": [1, 2.5]}', "{}", '{"other": 1}') == [True, True, False]
    assert takes("lfm2", {"enum": ["é\n", None, [True]]}, r'"é\n"', "None", "[True]") == [True] * 3


def test_objects_are_written_as_elements_where_their_types_can_be_read() -> None:
    def tag(name: str, inner: str) -> str:
        return f"]<]minimax[>[<{name}>{inner}]<]minimax[>[</{name}>"

    place = {"type": "object", "properties": {"x": {"type": "integer"}, "name": {"type": "string"}}}
    assert takes("minimax_m3", place, tag("x", "5") + tag("name", " a\n"), tag("x", "five"), "") == [True, False, True]
    grid = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
    assert takes("minimax_m3", grid, tag("item", tag("item", "1") + tag("item", "2")), "") == [True, True]
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}, "additionalProperties": False}
    assert (
        takes("minimax_m3", {"$ref": "#/$defs/tree"}, '{"next": {}}', "{}", **{"$defs": {"tree": tree}}) == [True] * 2
    )
    with pytest.raises(GrammarError, match='cannot write the property name "a b"'):
        takes("minimax_m3", {"type": "object", "properties": {"a b": {"type": "integer"}}})


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


def test_functiongemma_writes_objects_and_arrays_as_json_between_its_marks() -> None:
    text = "<escape>{}<escape>".format
    assert takes("functiongemma", {"type": "string"}, text("a,b:c"), text("a}b"), text("[1]"), text("")) == [True] * 4
    assert takes("functiongemma", {"type": ["integer", "null"]}, "5", "null", "5.5") == [True, True, False]
    numbers = {"type": "array", "items": {"type": "integer"}, "maxItems": 2}
    assert takes("functiongemma", numbers, text("[1, 2]"), text("[]"), "[1]", text('["a"]')) == [
        True,
        True,
        False,
        False,
    ]
    tree = {
        "type": "object",
        "properties": {"k": {"type": "string"}, "next": {"$ref": "#/properties/a"}},
        "required": ["k"],
    }
    nested = text('{"k": "a}b", "next": {"k": ""}}')
    assert takes("functiongemma", tree, nested, text("{}"), text('{"k": "<escape>"}')) == [True, False, False]
    # A string that begins like JSON would be read as what it spells.
    either = {"anyOf": [{"type": "string"}, numbers, {"type": "null"}]}
    assert takes("functiongemma", either, text("a"), text("[3]"), "null", text("[a]"), text("5")) == [
        *(True, True, True, False, True)
    ]
    assert takes("functiongemma", {"enum": [[1], "x", {"k": "<escape>"}]}, text("[1]"), text("x"), text("[2]")) == [
        *(True, True, False)
    ]
    assert takes("functiongemma", True, text('[1, {"a": null}]'), text("a"), "5", "true") == [True] * 4


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


@pytest.mark.parametrize("format", RAW)
def test_names_that_a_format_cannot_write_are_an_error(format: str) -> None:
    schema = {"type": "object", "properties": {"a b": {"type": "integer"}}}
    with pytest.raises(GrammarError, match=r'cannot write the (property|parameter) name "a b"'):
        compiled(format, [Tool("f", schema)])
    with pytest.raises(GrammarError, match=f"'{format}' cannot write this name"):
        compiled(format, [Tool("a b")])


def test_a_name_with_a_hyphen_is_no_word_to_functiongemma() -> None:
    with pytest.raises(GrammarError, match="cannot write this name"):
        compiled("functiongemma", [Tool("a-b")])


@pytest.mark.parametrize("format", ["qwen3_coder", "glm", "deepseek_v32", "kimi_k3", "gemma4", "lfm2"])
def test_arguments_that_have_no_name_follow_what_is_said_of_all_others(format: str) -> None:
    schema = {"type": "object", "properties": {"ab": {"type": "string"}}, "additionalProperties": {"type": "integer"}}
    tools = [Tool("f", schema, strict=True)]
    for special in (True, False):
        grammar, vocabulary = compiled(format, tools, special=special)
        for arguments in ({"ab": "x", "ac": 5}, {"b": 1, "c": 2}):
            text = written(format, [("f", arguments)])
            assert says(grammar, vocabulary, text), text
            assert read(format, text, tools) == [("f", arguments)]
        assert not says(grammar, vocabulary, written(format, [("f", {"ac": "five"})]))

"""Tool calls: when their deltas come, those that cannot be read or were cut, custom tools, and none offered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from localai_shim.formats.table import FORMATS
from localai_shim.formats.values import OfferedTools
from localai_shim.output.tool_calls import CallDelta
from tests.output.reading import Answer, tokens
from tests.output.recorded import CASES, WRITERS
from tests.output.recorded.case import OFFERED, Call, Case
from tests.output.recorded.read import markup_of, parser_of, read
from tests.output.recorded.scenarios import SHORT
from tests.samples import only, sample

NOTE: Call = ("store_note", {"title": "notes", "body": "the rest"})
# Values are passed on when they are complete.
BY_VALUE = ("pythonic", "lfm2", "gemma4", "functiongemma", "minimax_m3")


def written(family: str, *calls: Call, **more: Any) -> Case:
    writer = WRITERS[family]
    return Case(family, "", writer.turn("", "", writer.block(calls)), **more)


def block(family: str, body: str, *, cut: bool = False, step: int = 1) -> Answer:
    """An answer that is one block; one that is cut has no end."""
    format = markup_of(family).tools
    assert format is not None
    case = Case(family, "", f"{format.start}{body}{'' if cut else format.end}", finish="length" if cut else "stop")
    return read(case, [case.text[at : at + step] for at in range(0, len(case.text), step)])


def function(name: str, properties: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, **more}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


def test_every_format_has_recorded_calls_of_every_kind() -> None:
    assert FORMATS.keys() <= WRITERS.keys()
    for family in WRITERS:
        own = [case for case in CASES if case.family == family]
        assert any(len(case.calls) > 1 for case in own) or not WRITERS[family].parallel
        assert any(case.calls and case.content for case in own) or not WRITERS[family].beside
        assert any(case.finish == "length" and case.broken for case in own)
        assert any(not case.calls and case.content for case in own)


# -- streams ----------------------------------------------------------------------------------------------------------


def so_far(case: Case, part: str) -> Answer:
    """The calls when the answer came up to these words."""
    pieces = list(case.text[: case.text.rindex(part)])
    parser, out = parser_of(case, pieces), Answer()
    for token in tokens(pieces, "stop")[:-1]:
        out.add(parser.feed(token))
    return out


@pytest.mark.parametrize("family", WRITERS)
def test_arguments_come_while_the_model_writes_them(family: str) -> None:
    [(name, arguments)] = so_far(written(family, NOTE), "est").calls
    assert name == "store_note"
    assert arguments.startswith('{"title": "notes"')
    assert family in BY_VALUE or arguments.endswith("the r")


@pytest.mark.parametrize("family", [name for name, writer in WRITERS.items() if writer.parallel])
def test_the_arguments_of_every_parallel_call_come_in_time(family: str) -> None:
    first, (name, arguments) = so_far(written(family, SHORT, NOTE), "rest").calls
    assert (first[0], json.loads(first[1])) == SHORT
    assert name == "store_note" and arguments.startswith('{"title": "notes"')


@pytest.mark.parametrize("family", WRITERS)
def test_a_name_comes_before_the_arguments_and_only_once(family: str) -> None:
    case = written(family, NOTE)
    parser = parser_of(case, list(case.text))
    deltas = [delta for token in tokens(list(case.text), "stop") for delta in parser.feed(token).calls]
    assert deltas[0].name == "store_note"
    assert [delta.name for delta in deltas[1:]] == [None] * (len(deltas) - 1)
    assert {delta.index for delta in deltas} == {0}
    assert not any(delta.custom for delta in deltas)


JSON_FAMILIES = [
    name for name in WRITERS if '{"city": "Paris"}' in written(name, ("plan_trip", {"city": "Paris"})).text
]


@pytest.mark.parametrize("family", JSON_FAMILIES)
def test_json_arguments_are_passed_on_as_they_are_written(family: str) -> None:
    odd = '{ "city":"Par\\u0069s",\n"nights" :3 }'
    case = written(family, ("plan_trip", {"city": "Paris"}))
    case = replace(case, text=case.text.replace('{"city": "Paris"}', odd))
    assert read(case, list(case.text)).calls == [("plan_trip", odd)]


# -- cut --------------------------------------------------------------------------------------------------------------


def end_of(case: Case) -> int:
    """The place where the last argument is complete."""
    return case.text.rindex("rest") + len("rest")


@pytest.mark.parametrize("family", WRITERS)
@pytest.mark.parametrize("ends", only([40], [40, 10_000]))
def test_a_call_that_was_cut_in_its_arguments_is_not_whole(family: str, ends: int) -> None:
    whole = written(family, NOTE)
    begun = 0
    for end in sample(range(end_of(whole)), ends, family):
        answer = read(replace(whole, text=whole.text[:end], finish="length"), list(whole.text[:end]))
        assert answer.whole_calls == [], whole.text[:end]
        begun += any(arguments.startswith('{"title": "notes"') for _, arguments in answer.calls)
        assert not (answer.calls and answer.invalid)
    assert begun


@pytest.mark.parametrize(
    ("family", "body", "complete"),
    [
        ("hermes", '{"name": "ring", "arguments": {}}', True),
        ("hermes", '{"name": "ring", "arguments": {}', True),
        ("hermes", '{"name": "ring", "arguments": {', False),
        ("hermes", '{"name": "ring"', False),
        ("mistral", "ring[ARGS]{}", True),
        ("harmony", "<|channel|>commentary to=functions.ring<|message|>{}", True),
        ("qwen3_coder", "<function=ring>\n</function>", True),
        ("qwen3_coder", "<function=ring>\n", False),
        ("minicpm5", '<function name="ring">', False),
        ("glm", "ring\n", False),
        ("minimax_m2", '<invoke name="ring">\n', False),
        ("deepseek_v32", '<｜DSML｜invoke name="ring">\n', False),
        ("lfm2", "[ring()", True),
        ("lfm2", "[ring(", False),
        ("gemma4", "call:ring{", False),
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_a_call_that_was_cut_behind_its_name_is_whole_only_where_its_arguments_have_an_end(
    family: str, body: str, complete: bool, step: int
) -> None:
    out = block(family, body, cut=True, step=step)
    assert out.whole_calls == [("ring", {})] * complete
    assert [name for name, _ in out.calls] == ["ring"]
    assert not out.invalid


def test_a_name_that_was_cut_is_no_name() -> None:
    """A longer one may have been meant, although one that is offered stands there."""
    out = block("glm", "ring", cut=True)
    assert out.calls == [] and len(out.invalid) == 1


@pytest.mark.parametrize("family", ["qwen3_coder", "hermes", "minimax_m2", "lfm2", "glm"])
def test_an_end_marker_in_the_last_token_ends_a_call_at_the_limit(family: str) -> None:
    case = written(family, ("ring", {}), finish="length")
    for at in range(len(case.text)):
        answer = read(case, [case.text[:at], case.text[at:]])
        assert (answer.calls, answer.invalid) == ([("ring", "{}")], [])


# -- what cannot be read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(
    "body",
    ['{"name": 7, "arguments": {}}', '{"name": " ", "arguments": {}}', '{"name": ""}', '{"arguments": {}}', "[]", ""],
)
def test_what_cannot_be_read_as_a_call_is_reported_whole(body: str, step: int) -> None:
    out = block("hermes", body, step=step)
    [invalid] = out.invalid
    assert out.calls == []
    assert invalid.text == f"<tool_call>{body}</tool_call>"
    assert invalid.error
    assert out.content == invalid.text, "the answer would otherwise be empty"


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize("body", ['"f"', "[1]", "null", "then ring comes", 'ring({"a": 1})'])
def test_a_marker_behind_which_no_call_begins_is_reported_and_what_follows_is_content(body: str, step: int) -> None:
    out = block("hermes", body, step=step)
    assert out.calls == []
    assert [invalid.text for invalid in out.invalid] == ["<tool_call>"]
    assert out.content == body


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(
    ("family", "body", "calls", "left"),
    [
        ("hermes", '{"name": "f", "arguments": {}} and more', [("f", "{}")], "and more"),
        *(
            ("hermes", f'{{"name": "f", "arguments": {written}', [("f", read)], None)
            for written, read in (
                ('{"a": 1}}}', '{"a": 1}'),
                ('{"a": 1}', '{"a": 1}'),
                ('{"a": 1', '{"a": 1'),
                ('{"a": x}}', '{"a": x}'),
                ("[1]}", "[1]"),
                ("[1, x]}", "[1, x]"),
                ("7}", "7"),
                ('"x"}', "x"),
                ('""}', "{}"),
                ('{"a": 1}, "arguments": {"a": 2}}', '{"a": 1}'),
            )
        ),
        ("hermes", '{"arguments": {a: 1}, "name": "f"}', [("f", "{a: 1}")], None),
        ("hermes", "{'name': 'ring', 'arguments': {}}", [("ring", "arguments': {}}")], None),
        (
            "hermes",
            '[{"name": "f", "arguments": {}}, {"arguments": {"a": 1}}]',
            [("f", "{}")],
            '{"arguments": {"a": 1}}]',
        ),
        (
            "hermes",
            '[{"name": "f", "arguments": {}}, {"name": "g", "arguments": [1]}]',
            [("f", "{}"), ("g", "[1]")],
            None,
        ),
        ("mistral", "f[ARGS][1]", [("f", "[1]")], None),
        ("mistral", 'f[ARGS]{"a": 1', [("f", '{"a": 1')], None),
        ("mistral", 'f[ARGS]{"a": 1}g[ARGS]{', [("f", '{"a": 1}'), ("g", "{")], None),
        (
            "qwen3_coder",
            "<function=plan_trip>\n<parameter=nights>\nsoon\n</parameter>\n</function>",
            [("plan_trip", '{"nights": "soon"}')],
            None,
        ),
        ("gemma4", "call:f{a:}", [("f", "a:}")], None),
        ("longcat", "plan_trip", [("plan_trip", "{}")], None),
    ],
    ids=str,
)
def test_a_call_whose_name_can_be_read_is_one_and_its_arguments_are_as_they_stand(
    family: str, body: str, calls: list[tuple[str, str]], left: str | None, step: int
) -> None:
    out = block(family, body, step=step)
    assert out.calls == calls
    assert [invalid.text for invalid in out.invalid] == ([] if left is None else [left])


@pytest.mark.parametrize("step", [1, 1000])
def test_what_stands_behind_a_call_without_an_end_marker_is_not_lost(step: int) -> None:
    said = block("mistral", 'plan_trip[ARGS]{"city": "Paris", "nights": 3} That is all.', step=step)
    assert [name for name, _ in said.calls] == ["plan_trip"]
    assert said.content.strip() == "That is all."


def test_calls_of_several_blocks_are_numbered_in_one_row_broken_ones_included() -> None:
    good, bad = ('{"name": "ring", "arguments": {' + inner + "}" for inner in ("}", '"x": }'))
    text = "".join(f"<tool_call>{body}</tool_call>" for body in (good, bad, good))
    case = Case("hermes", "", text)
    parser = parser_of(case, list(text))
    deltas = [delta for token in tokens(list(text), "stop") for delta in parser.feed(token).calls]
    assert [delta.index for delta in deltas if delta.name] == [0, 1, 2]
    assert parser.calls == 3


@pytest.mark.parametrize("family", WRITERS)
def test_arguments_hold_no_lone_surrogates(family: str) -> None:
    """JSON can escape halves of characters, which no encoding has; the arguments that are sent have to have one."""
    call: Call = ("store_note", {"title": "a \ud83d b", "body": "é"})
    case = Case(family, "", written(family, call).text)
    [(_, arguments)] = read(case, list(case.text)).calls
    if family not in JSON_FAMILIES:
        arguments.encode()
    assert json.loads(arguments) == call[1]


# -- no tools ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", WRITERS)
def test_without_tools_nothing_is_a_call(family: str) -> None:
    case = written(family, ("ring", {}), ("plan_trip", {"city": "Marseille"}), tools=())
    answer = read(case, list(case.text))
    assert answer.calls == []
    assert answer.content.strip(), "the answer would otherwise be empty"
    assert {call.error for call in answer.invalid} <= {"no tools were offered"}


# -- typed values -----------------------------------------------------------------------------------------------------

_SCHEMA = {
    "a": {"type": "integer"},
    "b": {"type": ["boolean", "null"]},
    "c": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
    "d": {"enum": [1, 2]},
    "e": {"const": 7},
    "f": {"$ref": "#/$defs/size"},
    "g": {"oneOf": [{"type": "object", "properties": {"x": {"type": "integer"}}}]},
    "h": {"type": ["integer", "string"]},
    "j": {"enum": ["1", 2]},
    "k": {"const": "1"},
    "m": {"$ref": "#/$defs/nothing"},
    "o": {"type": "number"},
    "p": {"type": "string"},
}
_TYPED = {
    "a": 1, "b": True, "c": [1], "d": 2, "e": 7, "f": 3, "g": {"x": 1}, "h": 1, "j": "1", "k": "1", "m": "1", "o": 2.5,
    "p": "1", "unknown": "1",
}  # fmt: skip


@pytest.mark.parametrize("family", [name for name, w in WRITERS.items() if w.typed])
def test_arguments_that_stand_without_quotes_are_what_the_schema_wants(family: str) -> None:
    tool = function("f", _SCHEMA, **{"$defs": {"size": {"type": "integer"}}})
    case = written(family, ("f", _TYPED), tools=(tool,))
    [(name, arguments)] = read(case, list(case.text)).whole_calls
    assert name == "f"
    assert arguments == _TYPED
    assert [type(value) for value in arguments.values()] == [type(value) for value in _TYPED.values()]


def test_a_schema_that_refers_to_itself_is_followed_only_so_far() -> None:
    case = written("qwen3_coder", ("f", {"a": "1"}), tools=(function("f", {"a": {"$ref": "#/properties/a"}}),))
    assert read(case, [case.text]).whole_calls == [("f", {"a": "1"})]


# -- custom tools -----------------------------------------------------------------------------------------------------

_RUN = function("run", {"input": {"type": "string"}})
_CUSTOM_TOOLS = (function("ring", {}), _RUN)
CUSTOM = OfferedTools(_CUSTOM_TOOLS, custom={"run"})
CODE = 'print("hi")\n{"a": [1]}'


def custom(case: Case, pieces: Sequence[str]) -> Answer:
    return read(replace(case, tools=_CUSTOM_TOOLS), pieces, tools=CUSTOM)


@pytest.mark.parametrize("family", WRITERS)
def test_a_custom_tools_input_is_its_one_string(family: str) -> None:
    calls = [("run", {"input": CODE}), ("ring", {})][: 2 if WRITERS[family].parallel else 1]
    case = written(family, *calls)
    for pieces in ([case.text], list(case.text)):
        assert custom(case, pieces).calls == [("run", CODE), ("ring", "{}")][: len(calls)]


@pytest.mark.parametrize("family", WRITERS)
def test_a_custom_tools_delta_says_so_and_comes_when_it_is_complete(family: str) -> None:
    case = written(family, ("run", {"input": CODE}))
    parser = parser_of(case, list(case.text), tools=CUSTOM)
    deltas = [delta for token in tokens(list(case.text), "stop") for delta in parser.feed(token).calls]
    assert deltas == [CallDelta(0, CODE, "run", custom=True)]


@pytest.mark.parametrize("code", [CODE, "plain", '{"a":1}', '{"input":1}', "[1]", "1", '"x"', ""])
@pytest.mark.parametrize(
    ("family", "layout"),
    [
        ("hermes", '<tool_call>\n{"name": "run"}\nCODE\n</tool_call>'),
        ("mistral", "[TOOL_CALLS]run[ARGS]CODE"),
        ("harmony", "<|channel|>commentary to=functions.run <|message|>CODE<|call|>"),
    ],
)
def test_a_custom_tools_input_may_stand_as_it_is_behind_a_header(family: str, layout: str, code: str) -> None:
    case = Case(family, "", layout.replace("CODE", code))
    for step in (1, 5, 1000):
        answer = custom(case, [case.text[at : at + step] for at in range(0, len(case.text), step)])
        assert (answer.calls, answer.invalid) == ([("run", code)], [])


def test_a_custom_tools_input_that_was_cut_is_delivered_as_far_as_it_came() -> None:
    case = Case("mistral", "", "[TOOL_CALLS]run[ARGS]print(", finish="length")
    assert custom(case, list(case.text)).calls == [("run", "print(")]


def test_names_of_offered_tools_and_their_schemas() -> None:
    tools = OfferedTools(OFFERED)
    assert tools.names == ["plan_trip", "store_note", "set_level", "ring"]
    assert tools.parameters("ring") == {"type": "object", "properties": {}, "required": []}
    assert tools.parameters("nobody") == {}

"""Tool calls of every format: what the answers of the corpus say, what comes of it in a stream, and the odd ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from localai_shim.adapters.markup import tool_format
from localai_shim.output.tool_calls import CallDelta, CallParser, InvalidCall, OfferedTools
from tests.output.families import FAMILIES, Call, Family
from tests.output.reading import Answer, read, same, split, upstream
from tests.output.recorded import CORPUS, TOOLS, Recorded, function
from tests.samples import only, sample

STREAMED = [family for family in FAMILIES.values() if family.markup.tools and family.markup.tools.style != "whole"]


def parse(family: str, body: str, *, tools: OfferedTools = TOOLS, cut: bool = False, step: int = 1) -> Answer:
    """One block, in pieces of this many characters."""
    markup = FAMILIES[family].markup
    assert markup.tools is not None
    parser = CallParser(markup.tools, tools)
    parser.open("<")
    deltas = [d for at in range(0, len(body), step) for d in parser.feed(body[at : at + step])]
    rest, invalid = parser.close(">", cut=cut)
    return collect([*deltas, *rest], invalid)


def collect(deltas: Sequence[CallDelta], invalid: InvalidCall | None = None) -> Answer:
    out = Answer(invalid=[invalid] if invalid else [])
    for delta in deltas:
        if delta.name is not None:
            out.calls.append((delta.name, ""))
        name, arguments = out.calls[delta.index]
        out.calls[delta.index] = (name, arguments + delta.arguments)
    return out


# -- the corpus -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", CORPUS, ids=lambda answer: answer.name)
def test_an_answer_says_what_its_model_meant(answer: Recorded) -> None:
    read_whole = read(answer, [answer.text])
    assert read_whole.content == answer.content
    assert read_whole.reasoning == answer.reasoning
    assert read_whole.whole_calls == list(answer.calls)
    assert read_whole.broken_calls == list(answer.broken)
    assert len(read_whole.invalid) == answer.invalid
    for call in read_whole.invalid:
        assert call.error
        own = call.text if "<|message|>" not in call.text else call.text.split("<|message|>")[-1]
        assert own in answer.text


@pytest.mark.parametrize("answer", CORPUS, ids=lambda answer: answer.name)
def test_calls_in_a_stream_are_those_that_upstream_reads_of_the_whole_block(answer: Recorded) -> None:
    streamed = read(answer, list(answer.text))
    if answer.broken or "malformed" in answer.name:
        return  # which upstream cannot read
    invalid = [call.text for call in streamed.invalid]
    expected: list[Call] = []
    whole = body = ""
    for piece in split(answer, [answer.text]):
        if piece.kind == "open":
            whole, body = piece.text, ""
        elif piece.kind == "call":
            whole, body = whole + piece.text, body + piece.text
        elif piece.kind == "close" and whole + piece.text not in invalid:
            expected += upstream(answer.family, body, answer.tools)
    assert len(streamed.whole_calls) == len(expected)
    for call, other in zip(streamed.whole_calls, expected, strict=True):
        assert same(call, other)


def test_the_corpus_has_every_kind_of_answer_of_every_format() -> None:
    for family in FAMILIES.values():
        names = {answer.name.partition(", ")[2] for answer in CORPUS if answer.family is family}
        assert {"reasoning, content and a call", "parallel calls", "only a call", "no call", "malformed"} <= names
        assert any(
            answer.finish == "length" and (answer.invalid or answer.broken)
            for answer in CORPUS
            if answer.family is family
        )


# -- streams --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", STREAMED, ids=lambda family: family.name)
def test_arguments_come_while_the_model_writes_them(family: Family) -> None:
    note: Call = ("write_file", {"path": "notes.txt", "content": "the rest"})
    text = family.block([note])
    answer = Recorded("", family, text[: text.index("rest")])
    pieces = list(answer.text)
    so_far = read(replace(answer, finish="length"), pieces)
    assert [name for name, _ in so_far.calls] == ["write_file"]
    assert so_far.calls[0][1].startswith('{"path": "notes.txt"')


@pytest.mark.parametrize("family", STREAMED, ids=lambda family: family.name)
def test_the_arguments_of_every_parallel_call_come_in_time(family: Family) -> None:
    note: Call = ("write_file", {"path": "notes.txt", "content": "the rest"})
    text = family.block([("get_weather", {"city": "Paris", "days": 3}), note])
    so_far = read(Recorded("", family, text[: text.rindex("rest")], finish="length"), list(text[: text.rindex("rest")]))
    assert [name for name, _ in so_far.calls] == ["get_weather", "write_file"]
    assert json.loads(so_far.calls[0][1]) == {"city": "Paris", "days": 3}
    assert so_far.calls[1][1].startswith('{"path": "notes.txt"')


@pytest.mark.parametrize("name", ["json_tools", "mistral", "kimi_k2", "harmony", "cohere2_moe", "mistral_array"])
def test_json_arguments_are_passed_on_as_they_are_written(name: str) -> None:
    family = FAMILIES[name]
    odd = '{ "city":"Par\\u0069s",\n"days" :3 }'
    text = family.block([("get_weather", {"city": "Paris"})]).replace('{"city": "Paris"}', odd)
    assert read(Recorded("", family, text), list(text)).calls == [("get_weather", odd)]


@pytest.mark.parametrize("family", [f for f in STREAMED if f.markup.tools.style == "closed"], ids=lambda f: f.name)
@pytest.mark.parametrize("ends", only([60], [60, 10_000]))
def test_what_was_said_of_a_call_that_was_cut_stays_without_its_end(family: Family, ends: int) -> None:
    text = family.block([("write_file", {"path": "notes.txt", "content": "the rest"})])
    begun = 0
    for end in sample(range(len(text)), ends):
        answer = read(Recorded("", family, text[:end], finish="length"), list(text[:end]))
        assert answer.whole_calls == []
        begun += any(arguments.startswith('{"path": "notes.txt"') for _, arguments in answer.calls)
        assert bool(answer.calls) != bool(answer.invalid) or not answer.calls
    assert begun


# -- one block ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(
    ("family", "body"),
    [
        ("json_tools", '{"name": 7, "arguments": {}}'),
        ("json_tools", '{"name": " ", "arguments": {}}'),
        ("json_tools", '{"arguments": {}}'),
        ("json_tools", '"f"'),
        ("json_tools", "[]"),
        ("json_tools", "[1]"),
        ("json_tools", "null"),
        ("json_tools", ""),
        ("json_tools", "then ping comes"),
        ("kimi_k2", "f{}"),
        ("gemma4", "call:f{a:}"),
        ("function_gemma", "call:f{a}"),
        ("glm47", "nobody<arg_key>a</arg_key><arg_value>1</arg_value>"),
        ("glm47", "I would ping"),
        ("kimi_k3", '<|open|>call tool="f"<|sep|>'),
    ],
    ids=str,
)
def test_what_cannot_be_read_as_a_call_is_handed_over_whole(family: str, body: str, step: int) -> None:
    out = parse(family, body, step=step)
    [invalid] = out.invalid
    assert invalid.text == f"<{body}>"
    assert invalid.error


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(
    ("family", "body", "calls", "left"),
    [
        ("json_tools", '{"name": "f", "arguments": {}} and more', [("f", "{}")], "and more"),
        *(
            ("json_tools", f'{{"name": "f", "arguments": {written}', [("f", read)], None)
            for written, read in (
                ('{"a": 1}}}', '{"a": 1}'),
                ('{"a": 1}', '{"a": 1}'),
                ('{"a": 1', '{"a": 1'),
                ('{"a": x}}', '{"a": x}'),
                ("[1]}", "[1]"),
                ("[1, x]}", "[1, x]"),
                ("7}", "7"),
                ('"x"}', "x"),
                ('{"a": 1}, "arguments": {"a": 2}}', '{"a": 1}'),
            )
        ),
        ("json_tools", '{"arguments": {a: 1}, "name": "f"}', [("f", '{a: 1}, "name": "f"')], None),
        ("json_tools", "{'name': 'ping', 'arguments': {}}", [("ping", "arguments': {}}")], None),
        ("json_tools", 'ping({"a": 1})', [("ping", '({"a": 1})')], None),
        (
            "json_tools",
            '[{"name": "f", "arguments": {}}, {"arguments": {"a": 1}}]',
            [("f", "{}")],
            '{"arguments": {"a": 1}}]',
        ),
        (
            "json_tools",
            '[{"name": "f", "arguments": {}}, {"name": "g", "arguments": [1]}]',
            [("f", "{}"), ("g", "[1]")],
            None,
        ),
        ("mistral", "f[ARGS][1]", [("f", "[1]")], None),
        ("mistral", 'f[ARGS]{"a": 1', [("f", '{"a": 1')], None),
        ("mistral", 'f[ARGS]{"a": 1}g[ARGS]{', [("f", '{"a": 1}'), ("g", "{")], None),
        (
            "qwen3_coder",
            "<function=get_weather>\n<parameter=days>\nsoon\n</parameter>\n</function>",
            [("get_weather", '{"days": "soon"}')],
            None,
        ),
        (
            "glm47",
            "ping<arg_key>a</arg_key><arg_value>{1, 2}</arg_value>",  # a set is no JSON
            [("ping", "<arg_key>a</arg_key><arg_value>{1, 2}</arg_value>")],
            None,
        ),
        ("longcat", "get_weather", [("get_weather", "{}")], None),
    ],
    ids=str,
)
def test_a_call_whose_name_can_be_read_is_one_and_its_arguments_are_as_they_stand(
    family: str, body: str, calls: list[tuple[str, str]], left: str | None, step: int
) -> None:
    """Before, it was handed over as invalid, also where a stream had told of it already; agents ended there."""
    out = parse(family, body, step=step)
    assert out.calls == calls
    assert [invalid.text for invalid in out.invalid] == ([] if left is None else [left])


@pytest.mark.parametrize(
    ("family", "body", "complete"),
    [
        ("json_tools", '{"name": "ping", "arguments": {}}', True),
        ("json_tools", '{"name": "ping", "arguments": {', False),
        ("mistral", "ping[ARGS]{}", True),
        ("harmony", "functions.ping<|message|>{}", True),
        ("qwen3_coder", "<function=ping>\n</function>", False),  # as far as anybody can tell
        ("minicpm5", '"ping">', False),
        ("glm47", "ping", False),
        ("muse_spark", '<atem:invoke name="ping">', False),
    ],
)
def test_a_call_that_was_cut_is_one_only_where_its_json_is_complete(family: str, body: str, complete: bool) -> None:
    out = parse(family, body, cut=True)
    assert (out.whole_calls == [("ping", {})]) == complete
    if not out.calls:
        assert (family, len(out.invalid)) == ("glm47", 1), "its name may not be whole"
    else:
        assert [name for name, _ in out.calls] == ["ping"] and out.invalid == []


def test_an_end_marker_in_the_last_token_ends_a_call_at_the_limit() -> None:
    family = FAMILIES["qwen3_coder"]
    text = family.block([("ping", {})])
    for at in range(len(text)):
        answer = read(Recorded("", family, text, finish="length"), [text[:at], text[at:]])
        assert (answer.calls, answer.invalid) == ([("ping", "{}")], [])


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_without_tools_nothing_is_a_call(family: Family) -> None:
    text = family.block([("ping", {}), ("get_weather", {"city": "Paris"})])
    answer = read(Recorded("", family, text, tools=OfferedTools()), list(text))
    assert answer.calls == []
    assert answer.invalid and {call.error for call in answer.invalid} == {"no tools were offered"}


def test_arguments_that_came_as_text_are_what_the_schema_wants() -> None:
    root = {"$defs": {"size": {"type": "integer"}}}
    schema = {
        "a": {"type": "integer"},
        "b": {"type": ["boolean", "null"]},
        "c": {"anyOf": [{"type": "array"}, {"type": "null"}]},
        "d": {"enum": [1, 2]},
        "e": {"const": 7},
        "f": {"$ref": "#/$defs/size"},
        "g": {"oneOf": [{"type": "object"}]},
    }
    text = {
        "h": {"type": ["integer", "string"]},
        "i": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "j": {"enum": ["1", 2]},
        "k": {"const": "1"},
        "l": {},
        "m": {"$ref": "#/$defs/nothing"},
        "n": True,
    }
    tool = function("f", **schema, **text)  # type: ignore[arg-type]
    tool["function"]["parameters"].update(root)
    raw = {"a": "1", "b": "true", "c": "[1]", "d": "2", "e": "7", "f": "3", "g": '{"x": 1}'}
    read_raw = {key: json.loads(value) for key, value in raw.items()}
    kept = dict.fromkeys(text, "1")

    def upstreams(body: str, tools: Any) -> Any:
        return {"name": "f", "arguments": json.loads(body)}

    made = CallParser(replace(tool_format("function_gemma"), parse=upstreams), OfferedTools([tool]))
    made.open("")
    made.feed(json.dumps({**raw, **kept, "unknown": "1"}))
    deltas, invalid = made.close("", cut=False)
    assert invalid is None
    assert json.loads(deltas[0].arguments) == {**read_raw, **kept, "unknown": "1"}


def test_a_schema_that_refers_to_itself_is_followed_only_so_far() -> None:
    tool = function("f", a={"$ref": "#/properties/a"})
    answer = parse(
        "qwen3_coder", "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>", tools=OfferedTools([tool])
    )
    assert answer.whole_calls == [("f", {"a": "1"})]


# -- custom tools ---------------------------------------------------------------------------------------------------

CUSTOM = OfferedTools([function("ping"), function("run", input={"type": "string"})], custom={"run"})
CODE = 'print("hi")\n{"a": [1]}'


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.nests])
def test_a_custom_tools_input_is_its_one_string(family: str) -> None:
    text = FAMILIES[family].block([("run", {"input": CODE}), ("ping", {})])
    answer = read(Recorded("", FAMILIES[family], text, tools=CUSTOM), list(text))
    assert answer.calls == [("run", CODE), ("ping", "{}")]


def test_a_custom_tools_delta_says_so_and_comes_when_it_is_complete() -> None:
    parser = CallParser(tool_format("json_tools"), CUSTOM)
    parser.open("<tool_call>")
    body = json.dumps({"name": "run", "arguments": {"input": CODE}})
    assert [delta for letter in body for delta in parser.feed(letter)] == []
    assert parser.close("", cut=False) == ([CallDelta(0, CODE, "run", custom=True)], None)
    assert parser.calls == 1


@pytest.mark.parametrize("code", [CODE, "plain", '{"a":1}', '{"input":1}', "[1]", "1", '"x"', ""])
@pytest.mark.parametrize("step", [1, 5, 1000])
def test_a_custom_tools_input_may_stand_as_it_is_behind_a_header(code: str, step: int) -> None:
    for family, body in (
        ("json_tools", f'\n{{"name": "run"}}\n{code}\n'),
        ("mistral", f"run[ARGS]{code}"),
        ("harmony", f"functions.run<|message|>{code}"),
    ):
        answer = parse(family, body, tools=CUSTOM, step=step)
        assert (answer.calls, answer.invalid) == ([("run", code)], [])


def test_calls_of_several_blocks_are_numbered_in_one_row_invalid_ones_included() -> None:
    parser = CallParser(tool_format("json_tools"), TOOLS)
    indexes = []
    for body in (
        '{"name": "ping", "arguments": {}}',
        '{"name": "ping", "arguments": {"x": }',
        '{"name": "ping", "arguments": {}}',
    ):
        parser.open("")
        deltas = parser.feed(body)
        rest, _ = parser.close("", cut=False)
        indexes += [delta.index for delta in [*deltas, *rest] if delta.name]
    assert indexes == [0, 1, 2]
    assert parser.calls == 3


@pytest.mark.parametrize("step", [1, 1000])
def test_what_stands_behind_a_call_without_an_end_marker_is_not_lost(step: int) -> None:
    said = parse("mistral", 'get_weather[ARGS]{"city": "Paris", "days": 3} That is all.', step=step)
    assert [name for name, _ in said.calls] == ["get_weather"]
    assert [call.text for call in said.invalid] == ["That is all."]


def test_commas_inside_a_marked_string_end_no_argument() -> None:
    text = 'call:write_file{path:<|"|>a,b,}c<|"|>,content:<|"|>x, y<|"|>}'
    said = parse("gemma4", text)
    assert said.whole_calls == [("write_file", {"path": "a,b,}c", "content": "x, y"})]
    assert "".join(arguments for _, arguments in said.calls) == '{"path": "a,b,}c", "content": "x, y"}'


def test_arguments_hold_no_lone_surrogates() -> None:
    said = parse("longcat", '{"name": "write_file", "arguments": {"path": "\\ud800", "content": "\\u00e9"}}')
    [(_, arguments)] = said.calls
    arguments.encode()
    assert json.loads(arguments) == {"path": "\ud800", "content": "\u00e9"}


def test_empty_arguments_are_an_empty_object() -> None:
    assert parse("json_tools", '{"name": "ping", "arguments": ""}').whole_calls == [("ping", {})]

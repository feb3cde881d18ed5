from __future__ import annotations

import random
from typing import Any

import pytest

from localai_shim.grammar import GrammarError
from localai_shim.grammar.calls import answer_with_calls, call_or, harmony_answer
from localai_shim.grammar.compile import Grammar, choice, json_schema
from localai_shim.grammar.tool import CustomFormat, Tool
from tests.grammar.drafts import draft, drafts, says, vocabulary_with
from tests.output.calls import (
    DEEP,
    ENDED,
    ENDINGS,
    FORMATS,
    HEADERS,
    MARKERS,
    NESTED,
    SUM,
    compiled,
    parsed,
    schema_for,
    valid,
)
from tests.samples import only

# -- Calls that have to be made ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", only([15], [15, 100]))
@pytest.mark.parametrize("format", FORMATS)
def test_upstreams_parser_reads_a_valid_call_in_whatever_is_written(format: str, count: int) -> None:
    schema = schema_for(format)
    grammar, vocabulary = compiled(format, [Tool("get_weather", schema, strict=True)])
    for text in drafts(grammar, vocabulary, count, endings=ENDINGS):
        (call,) = parsed(format, text)
        assert call["name"] == "get_weather"
        valid(call["arguments"], schema, texts=format == "qwen3_coder")
        assert set(call["arguments"]) <= set(schema["properties"])


@pytest.mark.parametrize("count", only([8], [8, 30]))
@pytest.mark.parametrize("format", FORMATS)
def test_markers_that_are_no_special_tokens_are_written_in_letters(format: str, count: int) -> None:
    schema = schema_for(format)
    grammar, vocabulary = compiled(format, [Tool("get_weather", schema)], special=False)
    for text in drafts(grammar, vocabulary, count, endings=ENDINGS):
        (call,) = parsed(format, text)
        valid(call["arguments"], schema, texts=format == "qwen3_coder")


@pytest.mark.parametrize("count", only([10], [10, 50]))
def test_the_parser_of_tags_reads_single_types_by_itself(count: int) -> None:
    single = {name: member for name, member in DEEP["properties"].items() if isinstance(member.get("type"), str)}
    schema = {"type": "object", "properties": single, "required": list(single)}
    grammar, vocabulary = compiled("qwen3_coder", [Tool("f", schema)])
    for text in drafts(grammar, vocabulary, count):
        valid(parsed("qwen3_coder", text, {"f": schema})[0]["arguments"], schema)


@pytest.mark.parametrize("count", only([10], [10, 40]))
@pytest.mark.parametrize("format", FORMATS)
def test_strings_without_limits_hold_nothing_that_the_parser_trips_over(format: str, count: int) -> None:
    members = {"a": {"type": "string"}, "b": {"type": "string"}}
    schema = {"type": "object", "properties": members, "required": ["a", "b"]}
    grammar, vocabulary = compiled(format, [Tool("f", schema)], special=False)
    for text in drafts(grammar, vocabulary, count, endings=ENDINGS):
        (call,) = parsed(format, text, {"f": schema})
        valid(call["arguments"], schema)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("parallel", [True, False])
def test_the_answer_is_one_call_or_several_where_that_is_allowed(format: str, parallel: bool) -> None:
    tools = [Tool("now"), Tool("wait", {"type": "object", "properties": {"s": {"enum": [1, 2]}}})]
    grammar, vocabulary = compiled(format, tools, parallel=parallel)
    counts, names = set(), set()
    for text in drafts(grammar, vocabulary, 20):
        calls = parsed(format, text)
        counts.add(len(calls))
        names |= {call["name"] for call in calls}
        assert all(
            call["arguments"] in ({}, {"s": 1}, {"s": 2})
            for call in calls
            if call["name"] == "wait" and format != "qwen3_coder"
        )
        assert all(call["arguments"] == {} for call in calls if call["name"] == "now")
    assert names == {"now", "wait"}
    assert max(counts) > 1 if parallel and format != "harmony" else counts == {1}


@pytest.mark.parametrize("format", NESTED)
def test_a_tool_that_is_not_strict_follows_what_is_known_of_its_schema(format: str) -> None:
    tags = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 1, "maxItems": 2}
    schema = {"type": "object", "properties": {"tags": tags, "p": {"type": "string", "format": "path", "maxLength": 3}}}
    grammar, vocabulary = compiled(format, [Tool("f", {**schema, "required": ["tags"]})])
    for text in drafts(grammar, vocabulary, 5):
        tags_read = parsed(format, text, {"f": schema})[0]["arguments"]["tags"]
        assert all(isinstance(tag, int) for tag in tags_read)
    with pytest.raises(GrammarError, match=r"^Tool 'f': .*uniqueItems"):
        compiled(format, [Tool("f", schema, strict=True)])


PATTERNS = ["^[a-z]+$", "a|^b", "[0-9]$", "^null$|^nul", "^x|y$"]


def random_schema(pick: random.Random, depth: int = 0) -> dict[str, Any]:
    """A schema such as tools have."""
    low, more = pick.randint(-20, 20), pick.randint(0, 20)
    scalars: list[dict[str, Any]] = [
        {"type": "string", "minLength": abs(low) // 5, "maxLength": abs(low) // 5 + more},
        {"type": "string", "pattern": pick.choice(PATTERNS), "maxLength": 9},
        {"type": "string", "format": pick.choice(["date", "time", "duration", "email", "ipv6"]), "maxLength": 50},
        {"type": "integer", "minimum": low, "maximum": low + more},
        {"type": "number", "minimum": low / 4, "maximum": low / 4 + more},
        {"type": "boolean"},
        {"type": "null"},
        {"enum": pick.sample(["a", "Null", "[1]", "x\ny", "é", 1, 2.5, None, True, [1, "x"], {"k": [None]}], k=4)},
        {"type": ["string", "null"], "maxLength": 5},
        {"type": ["integer", "boolean"]},
    ]  # fmt: skip
    if depth > 2 or pick.random() < 0.6:
        return pick.choice(scalars)
    match pick.choice(["object", "array", "anyOf", "map"]):
        case "object":
            members = {name: random_schema(pick, depth + 1) for name in pick.sample("abcde", k=pick.randint(1, 3))}
            return {"type": "object", "properties": members, "required": pick.sample(list(members), k=1)}
        case "array":
            return {
                "type": "array",
                "items": random_schema(pick, depth + 1),
                "minItems": more % 2,
                "maxItems": more % 4 + 1,
            }
        case "anyOf":
            return {"anyOf": [random_schema(pick, depth + 1) for _ in range(pick.randint(1, 3))]}
        case _:
            return {"type": "object", "additionalProperties": {"type": "boolean"}}


@pytest.mark.parametrize("schemas", only([5], [5, 40]))
@pytest.mark.parametrize("format", NESTED)
def test_calls_follow_schemas_that_nobody_chose(format: str, schemas: int) -> None:
    pick = random.Random(format)
    for seed in range(schemas):
        members = {name: random_schema(pick) for name in ("a", "b_2", "c")}
        schema = {"type": "object", "properties": members, "required": pick.sample(list(members), k=2)}
        grammar, vocabulary = compiled(format, [Tool("f", schema, strict=True)])
        for n in range(3):
            text = draft(grammar, vocabulary, [seed, n], endings=ENDINGS)
            if text is not None:
                valid(parsed(format, text)[0]["arguments"], schema, texts=format == "qwen3_coder")


# -- Calls among other text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("format", ENDED)
def test_text_and_calls_mix(format: str, special: bool) -> None:
    tools = [Tool("now", strict=True), Tool("later", strict=True)]
    call, _ = _example(format, "now")
    free, vocabulary = compiled(format, tools, mode="auto", parallel=True, special=special)
    for text in ("", "Hello <b>there</b>.\n", f"Let me see.\n{call}", f"{call}\n{call} and\n{call}. Done"):
        assert says(free, vocabulary, text), text
    assert not says(free, vocabulary, call.replace("now", "never"))
    single, _ = compiled(format, tools, mode="auto", parallel=False, special=special)
    assert says(single, vocabulary, f"Let me see.\n{call}")
    assert not says(single, vocabulary, f"{call}\n{call}")
    assert not says(single, vocabulary, f"{call} ")


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("format", ["mistral", "mistral_array", "kimi_k2", "cohere2_moe"])
def test_calls_come_after_the_text_where_they_end_the_answer(format: str, special: bool) -> None:
    tools = [Tool("now", strict=True), Tool("later", strict=True)]
    one, two = _example(format, "now")
    free, vocabulary = compiled(format, tools, mode="auto", parallel=True, special=special)
    single, _ = compiled(format, tools, mode="auto", parallel=False, special=special)
    for text in ("", "Hello.", one, f"Let me see. {one}"):
        assert says(free, vocabulary, text) and says(single, vocabulary, text), text
    assert says(free, vocabulary, f"So: {two}") and not says(single, vocabulary, f"So: {two}")
    assert not says(free, vocabulary, f"{one} done")
    assert not says(free, vocabulary, one.replace("now", "never"))


def _example(format: str, name: str) -> tuple[str, str]:
    """One call without arguments, and two, as a model writes them."""
    if format == "json_tools":
        one = f'<tool_call>\n{{"name": "{name}", "arguments": {{}}}}\n</tool_call>'
        return one, f"{one}\n{one}"
    if format == "qwen3_coder":
        one = f"<tool_call>\n<function={name}>\n</function>\n</tool_call>"
        return one, f"{one}\n{one}"
    if format == "gemma4":
        one = f"<|tool_call>call:{name}{{}}<tool_call|>"
        return one, one + one
    if format == "function_gemma":
        one = f"<start_function_call>call:{name}{{}}<end_function_call>"
        return one, one + one
    if format == "mistral":
        one = f"[TOOL_CALLS]{name}[ARGS]{{}}"
        return one, one + one
    if format == "mistral_array":
        one = f'{{"name": "{name}", "arguments": {{}}}}'
        return f"[TOOL_CALLS][{one}]", f"[TOOL_CALLS][{one}, {one}]"
    if format == "kimi_k2":
        first, second = (
            f"<|tool_call_begin|>functions.{name}:{n}<|tool_call_argument_begin|>{{}}<|tool_call_end|>" for n in (0, 1)
        )
        begin, end = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
        return f"{begin}{first}{end}", f"{begin}{first}{second}{end}"
    first, second = (f'    {{"tool_call_id": "{n}", "tool_name": "{name}", "parameters": {{}}}}' for n in (0, 1))
    return f"<|START_ACTION|>[\n{first}\n]<|END_ACTION|>", f"<|START_ACTION|>[\n{first},\n{second}\n]<|END_ACTION|>"


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "harmony"])
def test_the_examples_are_what_upstream_reads(format: str) -> None:
    one, two = _example(format, "now")
    assert [call["name"] for call in parsed(format, one)] == ["now"]
    assert [call["name"] for call in parsed(format, two)] == ["now", "now"]


@pytest.mark.parametrize("format", ["json_tools", "mistral", "kimi_k2", "gemma4", "harmony"])
def test_only_strict_tools_follow_their_schema_of_their_own_accord(format: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    loose, vocabulary = compiled(format, [Tool("f", schema)], mode="auto")
    strict, _ = compiled(format, [Tool("f", schema, strict=True)], mode="auto")
    arguments = "{m:true}" if format == "gemma4" else '{"m": true}'
    call = {
        "json_tools": f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>',
        "mistral": f"[TOOL_CALLS]f[ARGS]{arguments}",
        "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
        f"{arguments}<|tool_call_end|><|tool_calls_section_end|>",
        "gemma4": f"<|tool_call>call:f{arguments}<tool_call|>",
        "harmony": f"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{arguments}",
    }[format]
    assert says(loose, vocabulary, call) and not says(strict, vocabulary, call)
    good = call.replace("m:true", "n:1").replace('"m": true', '"n": 1')
    assert says(loose, vocabulary, good) and says(strict, vocabulary, good)


def test_a_loose_tool_written_in_tags_has_any_of_its_parameters() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}, "required": ["n"]}
    grammar, vocabulary = compiled("qwen3_coder", [Tool("f", schema)], mode="auto")
    tag = "<parameter={}>\n{}\n</parameter>\n"
    call = "<tool_call>\n<function=f>\n{}</function>\n</tool_call>"
    assert says(grammar, vocabulary, call.format(tag.format("s", "x") + tag.format("n", "no number")))
    assert says(grammar, vocabulary, call.format(""))
    assert not says(grammar, vocabulary, call.format(tag.format("other", "x")))


def test_a_marker_cannot_be_spelt_in_the_letters_of_free_text() -> None:
    grammar, vocabulary = compiled("json_tools", [Tool("f")], mode="auto")
    letters = [token for letter in "Use <tool_call" for token in vocabulary.tokenizer.tokenize_str(letter)]
    matcher = grammar.matcher()
    assert not any(matcher.accept(token) for token in letters)
    (last,) = vocabulary.tokenizer.tokenize_str(">")
    with pytest.raises(GrammarError):
        matcher.accept(last)


def test_an_answer_of_cohere_may_be_marked() -> None:
    grammar, vocabulary = compiled("cohere2_moe", [Tool("f")], mode="auto")
    assert says(grammar, vocabulary, "<|START_RESPONSE|>Hello.<|END_RESPONSE|>")


# -- Whole answers ----------------------------------------------------------------------------------------------------


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(GrammarError, match="no grammar for the tool calls of 'glm47'"):
        answer_with_calls("glm47", [Tool("f")], vocabulary_with(), mode="auto", parallel=True)


def test_no_tools_are_an_error() -> None:
    with pytest.raises(GrammarError, match="no tools"):
        answer_with_calls("json_tools", [], vocabulary_with(), mode="auto", parallel=True)


def test_the_source_does_not_depend_on_when_it_is_made() -> None:
    vocabulary = vocabulary_with(*MARKERS["qwen3_coder"])
    tools = [Tool("f", DEEP), Tool("sum", custom=CustomFormat("lark", SUM))]
    first, second = (answer_with_calls("qwen3_coder", tools, vocabulary, mode="auto", parallel=True) for _ in range(2))
    assert first == second


def test_harmony_thinks_before_it_answers_or_calls() -> None:
    thought = "<|channel|>analysis<|message|>I see.<|end|><|start|>assistant"
    preamble = "<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant"
    call = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}"
    final = "<|channel|>final<|message|>Hello."
    free, vocabulary = compiled("harmony", [Tool("now", strict=True)], mode="auto")
    forced, _ = compiled("harmony", [Tool("now", strict=True)])
    for text in (call, thought + call, thought + thought + call):
        assert says(free, vocabulary, text) and says(forced, vocabulary, text)
    for text in (final, thought + final, preamble + call, thought + preamble + call):
        assert says(free, vocabulary, text) and not says(forced, vocabulary, text)
    assert not says(free, vocabulary, "Hello.")


def test_a_harmony_answer_follows_a_schema_in_its_final_message() -> None:
    vocabulary = vocabulary_with(*MARKERS["harmony"])
    grammar = Grammar(harmony_answer(json_schema({"type": "boolean"}), vocabulary), vocabulary)
    thought = "<|channel|>analysis<|message|>{no JSON}<|end|><|start|>assistant"
    assert says(grammar, vocabulary, thought + "<|channel|>final<|message|>true")
    assert says(grammar, vocabulary, "<|channel|>final<|message|>false")
    assert not says(grammar, vocabulary, "<|channel|>final<|message|>maybe")
    assert not says(grammar, vocabulary, "true")


@pytest.mark.parametrize("format", ["json_tools", "gemma4", "harmony"])
def test_an_answer_may_be_calls_or_a_content_of_some_form(format: str) -> None:
    vocabulary = vocabulary_with(*MARKERS[format])
    tools = [Tool("now"), Tool("sum", custom=CustomFormat("lark", SUM))]
    calls = answer_with_calls(format, tools, vocabulary, mode="required", parallel=True)
    content = json_schema({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]})
    text = '{"a": true}'
    call = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}"
    if format == "harmony":
        content, text = harmony_answer(content, vocabulary), f"<|channel|>final<|message|>{text}"
    else:
        call, _ = _example(format, "now")
    grammar = Grammar(call_or(calls, content), vocabulary)
    before, after = HEADERS[format]
    assert says(grammar, vocabulary, text) and says(grammar, vocabulary, call)
    assert says(grammar, vocabulary, f"{before}1 + 2{after}")
    assert not says(grammar, vocabulary, text + call) and not says(grammar, vocabulary, "Hello.")
    assert says(Grammar(call_or(calls, choice(["yes"])), vocabulary), vocabulary, "yes")

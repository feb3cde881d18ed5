from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from localai_shim.formats.grammar.answers import answer_with_calls, call_or, content_in_channels, no_call
from localai_shim.formats.table import FORMATS as ROWS
from localai_shim.grammar import GrammarError
from localai_shim.grammar.compile import Grammar, choice, json_schema
from localai_shim.grammar.tool import CustomFormat, Tool
from tests.formats.channels import CHANNELS
from tests.formats.grammar.calls import (
    DEEP,
    FORMATS,
    SUM,
    answer,
    compiled,
    endings_of,
    markers_of,
    markup_of,
    raw_call,
    read,
    valid,
    vocabulary_for,
    written,
)
from tests.grammar.drafts import drafts, says, vocabulary_with
from tests.samples import only

NOW, LATER = Tool("now", strict=True), Tool("later", strict=True)
BARE = [name for name in FORMATS if ROWS[name].bare and name not in CHANNELS]
MARKED = [name for name in FORMATS if not ROWS[name].bare and name not in CHANNELS]
THOUGHTS = {
    "harmony": "<|channel|>analysis<|message|>I see.<|end|><|start|>assistant",
    "muse": " to=self<|message|>I see.<|eom|><|start|>assistant",
}
PREAMBLES = {
    "harmony": "<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant",
    "muse": " to=user<|message|>One moment.<|eom|><|start|>assistant",
    "functionary_v32": "all\nOne moment.>>>",
}
FINALS = {"harmony": "<|channel|>final<|message|>{}", "muse": " to=user<|message|>{}", "functionary_v32": "all\n{}"}

# -- Calls that have to be made ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_the_answer_is_one_call_or_several_where_that_is_allowed(format: str, parallel: bool) -> None:
    wait = {"type": "object", "properties": {"s": {"enum": [1, 2]}}}
    tools = [Tool("now"), Tool("wait", wait)]
    grammar, vocabulary = compiled(format, tools, parallel=parallel)
    counts, names = set(), set()
    for text in drafts(grammar, vocabulary, 12):
        calls = read(format, text, tools)
        counts.add(len(calls))
        names |= {name for name, _ in calls}
        for name, arguments in calls:
            assert arguments in ([{}] if name == "now" else [{}, {"s": 1}, {"s": 2}])
    assert names == {"now", "wait"}
    assert max(counts) > 1 if parallel and format != "harmony" else counts == {1}


@pytest.mark.parametrize("format", FORMATS)
def test_several_calls_are_written_as_the_model_writes_them(format: str) -> None:
    one, two = [("now", {})], [("now", {}), ("later", {})]
    single, vocabulary = compiled(format, [NOW, LATER])
    several, _ = compiled(format, [NOW, LATER], parallel=True)
    assert says(single, vocabulary, written(format, one)) and says(several, vocabulary, written(format, one))
    assert says(several, vocabulary, written(format, two)) is (format != "harmony")
    assert not says(single, vocabulary, written(format, two))
    assert not says(single, vocabulary, written(format, [("never", {})]))
    assert not says(single, vocabulary, "Hello.")


@pytest.mark.parametrize("format", FORMATS)
def test_a_tool_that_is_not_strict_follows_what_is_known_of_its_schema(format: str) -> None:
    tags = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 1, "maxItems": 2}
    schema = {"type": "object", "properties": {"tags": tags, "p": {"type": "string", "format": "path", "maxLength": 3}}}
    tools = [Tool("f", {**schema, "required": ["tags"]})]
    grammar, vocabulary = compiled(format, tools)
    for text in drafts(grammar, vocabulary, 4, endings=endings_of(format)):
        [(_, arguments)] = read(format, text, tools)
        assert all(isinstance(tag, int) for tag in arguments["tags"])
    with pytest.raises(GrammarError, match=r"^Tool 'f': .*uniqueItems"):
        compiled(format, [Tool("f", schema, strict=True)])


# -- Calls among other text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("format", MARKED)
def test_text_and_calls_mix(format: str, special: bool) -> None:
    """Where a marker ends a block, other text may follow; elsewhere it would be taken for a part of it."""
    row = ROWS[format]
    call, other = written(format, [("now", {})]), written(format, [("never", {})])
    two = written(format, [("now", {}), ("later", {})])
    free, vocabulary = compiled(format, [NOW, LATER], mode="auto", parallel=True, special=special)
    single, _ = compiled(format, [NOW, LATER], mode="auto", special=special)
    for text in ("", "Hello <b>there</b>: {1} [2].\n", f"Let me see.\n{call}", call):
        assert says(free, vocabulary, text) and says(single, vocabulary, text), text
    assert says(free, vocabulary, f"So: {two}") and not says(single, vocabulary, f"So: {two}")
    more = f"{call}\n{call} and\n{call}. Done"
    assert says(free, vocabulary, more) is bool(row.each and row.end)
    assert not says(single, vocabulary, f"{call} Done")
    assert not says(free, vocabulary, f"Hello. {other}")


@pytest.mark.parametrize("format", BARE)
def test_an_answer_without_markers_is_calls_or_text_that_does_not_begin_as_one(format: str) -> None:
    call = written(format, [("now", {})])
    grammar, vocabulary = compiled(format, [NOW, LATER], mode="auto", parallel=True)
    for text in ("", "Hello there: {1} [2].\n", call, written(format, [("now", {}), ("later", {})])):
        assert says(grammar, vocabulary, text), text
    for text in (f" {call}", f"Well. {call}" if format == "xlam" else "[1]", call.replace("now", "never")):
        assert not says(grammar, vocabulary, text) or not answer(format, [text], [NOW, LATER]).calls, text


@pytest.mark.parametrize("count", only([2], [2, 25]))
@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_whatever_is_written_beside_calls_is_read_as_it_is(format: str, special: bool, count: int) -> None:
    tools = [Tool("now", strict=True), Tool("f", DEEP, strict=True)]
    grammar, vocabulary = compiled(format, tools, mode="auto", parallel=True, special=special)
    for text in drafts(grammar, vocabulary, count, limit=1500, endings=_calls_of(format)):
        found = answer(format, [text], tools)
        assert not found.invalid and {name for name, _ in found.calls} <= {"now", "f"}
        for name, arguments in found.whole_calls:
            valid(arguments, {"additionalProperties": False} if name == "now" else DEEP)
        assert not found.broken_calls
        assert found.calls or not any(start in text for start in ROWS[format].starts if not start[0].isalpha())


def _calls_of(format: str) -> tuple[str, ...]:
    """What a writer that knows nothing would not think of."""
    return (written(format, [("now", {})]), *endings_of(format))


@pytest.mark.parametrize("format", MARKED)
def test_only_strict_tools_follow_their_schema_of_their_own_accord(format: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    loose, vocabulary = compiled(format, [Tool("f", schema)], mode="auto")
    strict, _ = compiled(format, [Tool("f", schema, strict=True)], mode="auto")
    wrong, right = written(format, [("f", {"n": "many"})]), written(format, [("f", {"n": 1})])
    assert says(loose, vocabulary, wrong) and not says(strict, vocabulary, wrong)
    assert says(loose, vocabulary, right) and says(strict, vocabulary, right)
    assert says(loose, vocabulary, written(format, [("f", {})])) and not says(
        strict, vocabulary, written(format, [("f", {})])
    )


def test_a_loose_tool_written_in_tags_has_any_of_its_parameters() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}, "required": ["n"]}
    grammar, vocabulary = compiled("qwen3_coder", [Tool("f", schema)], mode="auto")
    tag = "<parameter={}>\n{}\n</parameter>\n"
    call = "<tool_call>\n<function=f>\n{}</function>\n</tool_call>"
    assert says(grammar, vocabulary, call.format(tag.format("s", "x") + tag.format("n", "no number")))
    assert says(grammar, vocabulary, call.format(""))
    assert not says(grammar, vocabulary, call.format(tag.format("other", "x")))


def test_a_marker_cannot_be_spelt_in_the_letters_of_free_text() -> None:
    grammar, vocabulary = compiled("hermes", [Tool("f")], mode="auto")
    letters = [token for letter in "Use <tool_call" for token in vocabulary.tokenizer.tokenize_str(letter)]
    matcher = grammar.matcher()
    assert not any(matcher.accept(token) for token in letters)
    (last,) = vocabulary.tokenizer.tokenize_str(">")
    with pytest.raises(GrammarError):
        matcher.accept(last)


def test_a_marker_that_is_a_word_may_be_one() -> None:
    grammar, vocabulary = compiled("command_r_plus", [NOW], mode="auto")
    assert says(grammar, vocabulary, "Action: read on.")
    assert says(grammar, vocabulary, "Now. " + written("command_r_plus", [("now", {})]))
    assert not says(grammar, vocabulary, "Action: [1]")


def test_markers_that_say_nothing_may_stand_in_text() -> None:
    markers = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|open|>", "<|sep|>")
    vocabulary = vocabulary_with(*markers_of("command_r7b"), *markers)
    structural = (*markers[:2], "<|open|>response<|sep|>", "<answer>")
    call = written("command_r7b", [("now", {})])
    markup = replace(markup_of("command_r7b"), structural=structural)
    free = answer_with_calls(markup, [NOW], vocabulary, mode="auto", parallel=True)
    none = no_call(markup, vocabulary)
    for text in ("Hi.", "<|START_RESPONSE|>Hello.<|END_RESPONSE|>", "<|open|>response<|sep|><answer>Hello."):
        assert says(Grammar(free, vocabulary), vocabulary, text), text
        assert says(Grammar(none, vocabulary), vocabulary, text), text
        assert says(Grammar(free, vocabulary), vocabulary, text + call), text
        assert not says(Grammar(none, vocabulary), vocabulary, text + call), text
    assert not says(Grammar(free, vocabulary), vocabulary, "<|open|>other<|sep|>")


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("format", [*MARKED, *CHANNELS])
def test_where_nothing_may_be_called_everything_else_may_be_said(format: str, special: bool) -> None:
    vocabulary = vocabulary_for(format, special=special)
    grammar = Grammar(no_call(markup_of(format), vocabulary), vocabulary)
    call = written(format, [("now", {})])
    final = FINALS.get(format, "{}")
    assert says(grammar, vocabulary, final.format("Hello <b>there</b>: [2].\n"))
    assert not says(grammar, vocabulary, call)
    assert not says(grammar, vocabulary, PREAMBLES.get(format, "So: ") + call)
    if format in THOUGHTS:
        assert says(grammar, vocabulary, THOUGHTS[format] + PREAMBLES[format] + final.format("Hi."))


# -- Channels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("format", CHANNELS)
def test_an_answer_in_channels_thinks_before_it_answers_or_calls(format: str, special: bool) -> None:
    call, final = written(format, [("now", {})]), FINALS[format].format("Hello.")
    thought, preamble = THOUGHTS.get(format, ""), PREAMBLES[format]
    free, vocabulary = compiled(format, [NOW], mode="auto", special=special)
    forced, _ = compiled(format, [NOW], special=special)
    for text in (call, thought + call, thought + thought + call):
        assert says(free, vocabulary, text) and says(forced, vocabulary, text), text
        assert read(format, text, [NOW]) == [("now", {})]
    for text in (final, thought + final, preamble + call, thought + preamble + call):
        assert says(free, vocabulary, text) and not says(forced, vocabulary, text), text
    found = answer(format, [thought + preamble + call], [NOW])
    assert (found.content.strip(), found.calls) == ("One moment.", [("now", "{}")])
    assert not says(free, vocabulary, "Hello.")


@pytest.mark.parametrize("format", CHANNELS)
def test_an_answer_in_channels_follows_a_schema_in_its_text_for_the_user(format: str) -> None:
    vocabulary = vocabulary_for(format)
    source = content_in_channels(json_schema({"type": "boolean"}), CHANNELS[format], vocabulary)
    grammar, final = Grammar(source, vocabulary), FINALS[format].format
    assert says(grammar, vocabulary, THOUGHTS.get(format, "") + final("true"))
    assert says(grammar, vocabulary, final("false"))
    assert not says(grammar, vocabulary, final("maybe"))
    assert not says(grammar, vocabulary, "true")


@pytest.mark.parametrize(("format", "name"), [("functionary_v32", "all"), ("muse", "user"), ("muse", "self")])
def test_a_function_named_as_who_else_is_written_to_is_an_error(format: str, name: str) -> None:
    with pytest.raises(GrammarError, match=f"^Tool '{name}': '{format}' cannot write this name"):
        compiled(format, [Tool(name)])


# -- Whole answers ----------------------------------------------------------------------------------------------------


def test_no_tools_are_an_error() -> None:
    with pytest.raises(GrammarError, match="no tools"):
        answer_with_calls(markup_of("hermes"), [], vocabulary_with(), mode="auto", parallel=True)


def test_the_source_does_not_depend_on_when_it_is_made() -> None:
    vocabulary = vocabulary_for("qwen3_coder")
    tools = [Tool("f", DEEP), Tool("sum", custom=CustomFormat("lark", SUM))]
    markup = markup_of("qwen3_coder")
    first, second = (answer_with_calls(markup, tools, vocabulary, mode="auto", parallel=True) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("format", FORMATS)
def test_an_answer_may_be_calls_or_a_content_of_some_form(format: str) -> None:
    vocabulary, channels = vocabulary_for(format), CHANNELS.get(format)
    text = raw_call(format, "sum", "1 + 2")
    tools: list[Tool] = [NOW] if text is None else [NOW, Tool("sum", custom=CustomFormat("lark", SUM))]
    calls = answer_with_calls(markup_of(format), tools, vocabulary, mode="required", parallel=True)
    content = json_schema({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]})
    other = choice(["yes"])
    if channels is not None:
        content, other = (content_in_channels(source, channels, vocabulary) for source in (content, other))
    said, call = FINALS.get(format, "{}").replace("{}", '{"a": true}'), written(format, [("now", {})])
    grammar = Grammar(call_or(calls, content), vocabulary)
    assert says(grammar, vocabulary, said) and says(grammar, vocabulary, call)
    assert text is None or says(grammar, vocabulary, text)
    assert not says(grammar, vocabulary, said + call) and not says(grammar, vocabulary, "Hello.")
    assert says(Grammar(call_or(calls, other), vocabulary), vocabulary, FINALS.get(format, "{}").format("yes"))


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("format", BARE)
def test_an_answer_in_json_may_have_the_keys_of_a_call(format: str, special: bool) -> None:
    vocabulary = vocabulary_for(format, special=special)
    calls = answer_with_calls(markup_of(format), [NOW], vocabulary, mode="required", parallel=False)
    guest = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
    guests = {"type": "array", "items": guest}
    for schema, text in ((guest, '{"name": "now", "age": 5}'), (guests, '[{"name": "now"}]')):
        grammar = Grammar(call_or(calls, json_schema(schema)), vocabulary)
        assert says(grammar, vocabulary, text) and not answer(format, [text], [NOW]).calls
        assert says(grammar, vocabulary, written(format, [("now", {})]))


# -- Custom tools -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_a_custom_tool_is_a_function_of_one_string(format: str) -> None:
    tools = [Tool("shell", custom=CustomFormat("text", ""))]
    grammar, vocabulary = compiled(format, tools)
    for text in drafts(grammar, vocabulary, 5, endings=endings_of(format)):
        [(name, given)] = read(format, text, tools)
        assert name == "shell" and isinstance(given, str)


DEFINED = [(format, r'"x"\n?') for format in FORMATS]
MORE = [(format, pattern) for format in FORMATS for pattern in (r"[a-z]{2}=\d{3}", r"^ab|c\d$")]


@pytest.mark.parametrize(("format", "definition"), only(DEFINED + MORE[:4], DEFINED + MORE))
def test_a_custom_tools_input_matches_its_regular_expression_as_a_whole(format: str, definition: str) -> None:
    tools = [Tool("set", custom=CustomFormat("regex", definition))]
    grammar, vocabulary = compiled(format, tools)
    for text in drafts(grammar, vocabulary, 5):
        assert re.fullmatch(definition, read(format, text, tools)[0][1])


@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_custom_tools_input_follows_its_lark_grammar(format: str, mode: Any) -> None:
    tools = [Tool("sum", custom=CustomFormat("lark", SUM)), NOW]
    if raw_call(format, "sum", "1") is None:
        with pytest.raises(GrammarError, match=f"^Tool 'sum': Lark grammars are not possible .*'{format}'"):
            compiled(format, tools)
        return
    grammar, vocabulary = compiled(format, tools, mode=mode)
    for text, good in [("1", True), ("12 + (3+4)", True), ("1+", False), ("(1", False), ("x", False)]:
        call = raw_call(format, "sum", text)
        assert call is not None and says(grammar, vocabulary, call) is good, call
        if good:
            assert read(format, call, tools) == [("sum", text)]
    for text in drafts(grammar, vocabulary, 6) if mode == "required" else ():
        assert read(format, text, tools)[0][0] in ("now", "sum")

from __future__ import annotations

import datetime
import hashlib
import json
import threading
from typing import Any

import jsonschema
import numpy as np
import pytest

from localai_shim.grammar import GrammarError, TooComplexError
from localai_shim.grammar.compile import (
    GrammarCompiler,
    caller_lark,
    check,
    choice,
    json_object,
    json_schema,
    lark,
    regex,
)
from tests.grammar.drafts import (
    allowed,
    closed,
    draft,
    drafts,
    may_end,
    says,
    tokenizer_with,
    vocabulary_of,
    vocabulary_with,
)

VALIDATOR = jsonschema.Draft202012Validator
FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")


LIST = closed({"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/L"}, {"type": "null"}]}})
TREE = closed({"name": {"enum": ["div", "p"]}, "children": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}})
# What OpenAI's guide to structured outputs documents, by what it shows.
DOCUMENTED: dict[str, dict[str, Any]] = {
    "nested objects": closed({"a": closed({"b": closed({"c": {"type": "string"}})}), "d": {"type": "number"}}),
    "optional properties": closed(
        {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "null"}}, "a", "b"
    ),
    "anyOf": closed({"item": {"anyOf": [closed({"x": {"type": "string"}}), closed({"y": {"type": "integer"}})]}}),
    "definitions": closed({"s": {"$ref": "#/$defs/S"}}, **{"$defs": {"S": closed({"t": {"type": "boolean"}})}}),
    "recursion at the root": TREE,
    "recursion in a definition": closed({"list": {"$ref": "#/$defs/L"}}, **{"$defs": {"L": LIST}}),
    "enum": {"enum": ["red", 'with "quotes"', "é\n", 1, 2.5, None, True, [1], {"a": 1}]},
    "const": closed({"kind": {"const": "circle"}, "sides": {"type": "integer", "const": 0}}),
    "lists of types": closed({"a": {"type": ["string", "null"]}, "b": {"type": ["integer", "boolean"]}}),
    "lengths": {"type": "string", "minLength": 2, "maxLength": 5},
    "pattern": closed({"user": {"type": "string", "pattern": "^@[a-zA-Z0-9_]+$"}}),
    "pattern anywhere": {"type": "string", "pattern": "x|\\d", "maxLength": 9},
    "integers within bounds": {"type": "integer", "minimum": -130, "exclusiveMaximum": 130},
    "numbers within bounds": {"type": "number", "exclusiveMinimum": -1.5, "maximum": 2.25},
    "multiples": {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 100},
    "arrays": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4},
    "tuples": {
        "type": "array",
        "prefixItems": [{"type": "string"}, {"type": "integer"}],
        "items": False,
        "minItems": 2,
    },
    "open objects": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "maps": {"type": "object", "additionalProperties": {"type": "integer"}},
    "oneOf, told apart by type": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
    "oneOf, told apart by a constant": {
        "oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}],
        "discriminator": {"propertyName": "kind"},
        "$defs": {"A": closed({"kind": {"const": "a"}}), "B": closed({"kind": {"const": "b"}, "n": {"type": "null"}})},
    },
    **{f"format {name}": {"type": "string", "format": name} for name in FORMATS},
}


def validate(value: Any, schema: dict[str, Any]) -> None:
    VALIDATOR(schema, format_checker=VALIDATOR.FORMAT_CHECKER).validate(value)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_what_openai_documents_is_followed(name: str, compiler: GrammarCompiler) -> None:
    grammar = compiler.compile(json_schema(DOCUMENTED[name]))
    for text in drafts(grammar, compiler.vocabulary, 15):
        validate(json.loads(text), DOCUMENTED[name])


@pytest.mark.parametrize("name", ["nested objects", "arrays", "lists of types", "maps", "recursion at the root"])
def test_json_is_written_in_one_way(name: str, compiler: GrammarCompiler) -> None:
    grammar = compiler.compile(json_schema(DOCUMENTED[name]))
    for text in drafts(grammar, compiler.vocabulary, 10):
        blanks = json.dumps(json.loads(text), ensure_ascii=False)
        assert text.count(" ") == blanks.count(" ") and "\n" not in text


def test_properties_come_in_the_order_of_the_schema(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile(json_schema(closed({"b": {"type": "null"}, "a": {"type": "null"}})))
    assert says(grammar, compiler.vocabulary, '{"b": null, "a": null}')
    assert not says(grammar, compiler.vocabulary, '{"a": null, "b": null}')


def test_any_json_object(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile(json_object())
    for text in drafts(grammar, compiler.vocabulary, 20):
        assert isinstance(json.loads(text), dict)
    assert says(grammar, compiler.vocabulary, '{"a": [1, {"b": null}], "c": "d"}')
    assert not says(grammar, compiler.vocabulary, "[]")


def test_an_object_that_does_not_say_that_it_is_closed_is_open(compiler: GrammarCompiler) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert says(compiler.compile(json_schema(schema)), compiler.vocabulary, '{"a": 1, "b": [2]}')
    assert not says(compiler.compile(json_schema(schema)), compiler.vocabulary, '{"a": "x"}')


@pytest.mark.parametrize(
    "annotation",
    [
        {"title": "T"}, {"description": "D"}, {"default": 5}, {"examples": [1]}, {"$comment": "c"},
        {"deprecated": True},
        {"readOnly": True}, {"writeOnly": True}, {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        {"$id": "https://example.com/x"}, {"nullable": False}, {"x-order": 1}, {"example": 1}, {"strict": True},
        {"contentEncoding": "base64"}, {"discriminator": {"propertyName": "x"}}, {"$defs": {}}, {"definitions": {}},
    ],
    ids=str,
)  # fmt: skip
def test_annotations_are_passed_over(annotation: dict[str, Any], compiler: GrammarCompiler) -> None:
    inside = {} if "$id" in annotation else annotation  # which is to be unique
    schema = closed({"n": {"type": "integer", "minimum": 0, "maximum": 9, **inside}}, **annotation)
    for text in drafts(compiler.compile(json_schema(schema)), compiler.vocabulary, 2):
        assert 0 <= json.loads(text)["n"] <= 9


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "nonsense"}, "Invalid type: nonsense"),
        ({"type": "object", "properties": 5}, "properties must be an object"),
        ({"$ref": "#/nope"}, "'/nope' does not exist"),
        ({"$ref": "https://example.com/x"}, "not present"),
        ({"type": "string", "pattern": "(x"}, "unclosed group"),
        ({"type": "string", "pattern": "(?=x)"}, "look-ahead"),
        ({"type": "string", "format": "colour"}, "Unknown format: colour"),
        ({"not": {"type": "integer"}}, 'Unimplemented keys: ["not"]'),
        ({"type": "array", "uniqueItems": True}, 'Unimplemented keys: ["uniqueItems"]'),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf constraints are not supported"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum (5) is greater than maximum (3)"),
        ({"type": "array", "minItems": 3, "maxItems": 1}, "minItems (3) is greater than maxItems (1)"),
        ({"allOf": [{"type": "integer"}, {"type": "string"}]}, "incompatible types"),
        ({"type": "string", "pattern": "^a$", "minLength": 3}, "Regex is empty"),
        ({"enum": []}, "anyOf is empty"),
        (closed({"a": False}), "required property 'a' is unsatisfiable"),
        ({"$defs": {"A": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"}, "cannot be satisfied"),
    ],
    ids=str,
)
def test_a_schema_that_cannot_be_followed_is_an_error_that_says_why(
    schema: dict[str, Any], message: str, compiler: GrammarCompiler
) -> None:
    with pytest.raises(GrammarError) as caught:
        compiler.compile(json_schema(schema))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_lenient_reading_passes_over_what_is_not_known(compiler: GrammarCompiler) -> None:
    schema = closed(
        {
            "tags": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "maxItems": 3},
            "path": {"type": "string", "format": "path", "maxLength": 4},
            "id": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        }
    )
    with pytest.raises(GrammarError):
        compiler.compile(json_schema(schema))
    for text in drafts(compiler.compile(json_schema(schema, lenient=True)), compiler.vocabulary, 5):
        assert set(json.loads(text)) == {"tags", "path", "id"}


def test_dates_and_times_are_such_as_python_reads(compiler: GrammarCompiler) -> None:
    schema = closed({"at": {"type": "string", "format": "date-time"}, "on": {"format": "date", "type": "string"}})
    grammar = compiler.compile(json_schema(schema))
    for text in drafts(grammar, compiler.vocabulary, 100):
        value = json.loads(text)
        datetime.datetime.fromisoformat(value["at"])
        datetime.date.fromisoformat(value["on"])
    assert not says(grammar, compiler.vocabulary, '{"at": "2023-02-29T00:00:00Z", "on": "2024-01-01"}')


# -- Other sources ----------------------------------------------------------------------------------------------------


def test_a_text_matches_a_regular_expression_as_a_whole(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile(regex(r"[ab]{2}/\d"))
    for text in drafts(grammar, compiler.vocabulary, 10):
        assert text[0] in "ab" and text[1] in "ab" and text[2] == "/" and text[3:].isdigit() and len(text) == 4


def test_an_empty_regular_expression_matches_nothing_but_the_empty_text(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile(regex(""))
    assert says(grammar, compiler.vocabulary, "") and not says(grammar, compiler.vocabulary, "a")


def test_a_choice_is_one_of_its_options(compiler: GrammarCompiler) -> None:
    options = ["yes", "yes and no", 'a "quoted" \\ word', "zwei\nZeilen", "é🙂", "yes"]
    grammar = compiler.compile(choice(options))
    assert set(drafts(grammar, compiler.vocabulary, 60)) == set(options)


def test_a_choice_may_be_empty_and_begin_as_another_one_does(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile(choice(["", "a", "ab"]))
    assert set(drafts(grammar, compiler.vocabulary, 40)) == {"", "a", "ab"}
    assert says(compiler.compile(choice([""])), compiler.vocabulary, "")


@pytest.mark.parametrize("count", [2_000, 2_001, 20_000])
def test_a_choice_may_have_thousands_of_options_that_have_nothing_in_common(
    count: int, compiler: GrammarCompiler
) -> None:
    options = [hashlib.sha256(str(i).encode()).hexdigest()[:16] for i in range(count)]
    grammar = compiler.compile(choice(options))
    assert set(drafts(grammar, compiler.vocabulary, 10)) <= set(options)
    assert all(says(grammar, compiler.vocabulary, option) for option in (options[0], options[-1]))
    assert not says(grammar, compiler.vocabulary, options[0][:-1])


def test_choices_that_are_too_long_together_are_refused_before_they_are_compiled() -> None:
    with pytest.raises(TooComplexError, match="more than 500,000 characters"):
        choice([f"{i:010}" for i in range(50_001)])


def test_a_choice_that_is_too_large_to_compile_says_so(compiler: GrammarCompiler) -> None:
    with pytest.raises(TooComplexError, match=r"^It is too large: .* Pass fewer\.$"):
        compiler.compile(choice([str(i) for i in range(100_000)]))


def test_a_pattern_with_very_many_parts_that_may_be_left_out_is_refused_at_once() -> None:
    for pattern in (r"(\w+x)?" * 1_001, r"\w*," * 1_001, "a{0,9}" * 1_001):
        with pytest.raises(TooComplexError, match="more than 1,000 parts that may be left out"):
            regex(pattern)
        with pytest.raises(TooComplexError, match="more than 1,000 parts that may be left out"):
            caller_lark(f"start: /{pattern}/")


def test_groups_and_lazy_repeats_are_no_parts_that_may_be_left_out() -> None:
    check(regex("(?:a+?b)" * 1_001))


def test_a_choice_among_nothing_is_an_error() -> None:
    with pytest.raises(GrammarError, match="at least one choice"):
        choice([])


def test_a_lark_grammar_is_followed(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile(lark('start: sum\nsum: N ("+" sum)?\nN: /[0-9]{1,2}/'))
    for text in drafts(grammar, compiler.vocabulary, 10):
        assert all(1 <= len(number) <= 2 and number.isdigit() for number in text.split("+"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (regex("("), "unclosed group"),
        (lark("start: a"), 'at 1(8): unknown name: "a"'),
        (lark("start: /(?<=x)y/"), "look-around"),
        (lark("start: A\nA: /x+/ & /y+/"), "cannot be satisfied"),
        ("no source", ""),
    ],
)
def test_a_broken_source_is_an_error_that_says_where(source: str, message: str, compiler: GrammarCompiler) -> None:
    with pytest.raises(GrammarError) as caught:
        compiler.compile(source)
    assert message in str(caught.value)


def test_a_source_can_be_checked_without_a_vocabulary() -> None:
    check(regex("a+"))
    with pytest.raises(GrammarError, match=r"the regex: .*unclosed group"):
        check(regex("("), "the regex")


def test_a_grammar_in_which_nothing_but_one_letter_can_ever_follow_does_not_hang(compiler: GrammarCompiler) -> None:
    matcher = compiler.compile(lark('start: X "x<"\nX: /x+/')).matcher()
    mask = np.zeros(compiler.vocabulary.words, np.int32)
    for _ in range(5):
        matcher.mask(mask)
        matcher.accept(allowed(mask)[0])


# -- Following a grammar ----------------------------------------------------------------------------------------------


def test_a_mask_may_be_asked_for_again_and_leaves_the_rest_alone(compiler: GrammarCompiler) -> None:
    words = compiler.vocabulary.words
    matcher = compiler.compile(json_schema({"type": "boolean"})).matcher()
    first, second = np.zeros(words, np.int32), np.full(words + 3, 77, np.int32)
    matcher.mask(first)
    matcher.mask(second)
    assert (first == second[:words]).all() and (second[words:] == 77).all()


@pytest.mark.parametrize("step", [1, 2])
def test_a_mask_fits_where_there_is_less_room_than_tokens(step: int, compiler: GrammarCompiler) -> None:
    words = compiler.vocabulary.words
    matcher = compiler.compile(regex("(?s:.*)")).matcher()
    whole, short = np.zeros(words, np.int32), np.zeros((words - 2) * step, np.int32)[::step]
    matcher.mask(whole)
    matcher.mask(short)
    assert (short == whole[: words - 2]).all()


def test_accepting_a_token_says_when_nothing_may_follow(compiler: GrammarCompiler) -> None:
    tokenizer = tokenizer_with()
    matcher = compiler.compile(choice(["ab"])).matcher()
    ended = [matcher.accept(token) for token in tokenizer.encode("ab")]
    assert ended == [False] * (len(ended) - 1) + [True]


def test_an_end_of_sequence_ends_what_could_go_on(compiler: GrammarCompiler) -> None:
    matcher = compiler.compile(regex("a*")).matcher()
    assert may_end(matcher, compiler.vocabulary)
    assert matcher.accept(tokenizer_with().eos_token_id)


def test_a_token_that_the_grammar_forbids_is_an_error_and_stays_one(compiler: GrammarCompiler) -> None:
    matcher = compiler.compile(choice(["ab"])).matcher()
    with pytest.raises(GrammarError):
        matcher.accept(tokenizer_with().encode("z")[0])
    with pytest.raises(GrammarError):
        matcher.mask(np.zeros(compiler.vocabulary.words, np.int32))


def test_a_grammar_that_is_too_complex_is_an_error(compiler: GrammarCompiler) -> None:
    everything = " & ".join(f"/(a|b)*a(a|b){{{n}}}(a|b)*/" for n in range(14, 22))
    with pytest.raises(GrammarError, match="fuel exhausted"):
        compiler.compile(lark(f"start: X\nX: {everything}"))


def test_rows_follow_one_grammar_each_by_itself(compiler: GrammarCompiler) -> None:
    tokenizer = tokenizer_with()
    grammar = compiler.compile(regex("ab|cd"))
    a, c, fresh = grammar.matcher(), grammar.matcher(), np.zeros(compiler.vocabulary.words, np.int32)
    assert not a.accept(tokenizer.encode("a")[0])
    assert not c.accept(tokenizer.encode("c")[0])
    assert a.accept(tokenizer.encode("b")[0]) and c.accept(tokenizer.encode("d")[0])
    grammar.matcher().mask(fresh)
    assert {tokenizer.encode("a")[0], tokenizer.encode("c")[0]} <= set(allowed(fresh))


# -- Compiling --------------------------------------------------------------------------------------------------------


def in_threads(count: int, work: Any) -> list[Any]:
    results: list[Any] = []
    barrier = threading.Barrier(count)

    def run(n: int) -> None:
        barrier.wait()
        try:
            results.append(work(n))
        except GrammarError as error:
            results.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def large(name: str) -> str:
    properties = {f"{name}{n}": {"type": "string", "pattern": f"^[a-z]{{{n}}}x+$"} for n in range(1, 60)}
    return json_schema(closed(properties))


def test_equal_schemas_compile_once_when_asked_for_at_the_same_time() -> None:
    compiler = GrammarCompiler(vocabulary_of(tokenizer_with()))
    grammars = in_threads(16, lambda n: compiler.compile(large(f"p{n % 2}")))
    assert len(grammars) == 16
    assert len({id(grammar) for grammar in grammars}) == 2


def test_an_error_reaches_everybody_who_waited_and_is_not_kept() -> None:
    compiler = GrammarCompiler(vocabulary_with())
    errors = in_threads(8, lambda n: compiler.compile(json_schema({"type": "nonsense"})))
    assert [str(error) for error in errors] == ["Invalid type: nonsense"] * 8
    assert len({id(error) for error in errors}) == 8
    with pytest.raises(GrammarError):
        compiler.compile(json_schema({"type": "nonsense"}))


def test_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localai_shim.grammar.compile.MAX_CACHED_GRAMMARS", 2)
    compiler = GrammarCompiler(vocabulary_with())
    a, b = compiler.compile(regex("a")), compiler.compile(regex("b"))
    assert compiler.compile(regex("a")) is a
    compiler.compile(regex("c"))
    assert compiler.compile(regex("a")) is a
    assert compiler.compile(regex("b")) is not b


def test_matchers_are_made_and_followed_in_many_threads(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile(json_schema(DOCUMENTED["nested objects"]))
    texts = in_threads(8, lambda n: draft(grammar, compiler.vocabulary, 5))
    assert len(texts) == 8 and len(set(texts)) == 1

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localai_shim.grammar import GrammarError
from localai_shim.grammar.compile import Grammar, lark
from localai_shim.grammar.lark_rules import containing, text, without
from localai_shim.grammar.schema import FORMATS
from tests.grammar.drafts import drafts, says, vocabulary_with

near = st.lists(st.sampled_from(["</", "</p", "</parameter", ">", "<", "/", "p", "<a", "b", "x", "\n"]), max_size=8)


def grammar_of(schema: dict[str, Any], *excluding: str) -> Grammar:
    return Grammar(lark(f"start: TEXT\nTEXT: {text(schema, excluding)}"), vocabulary_with())


@pytest.mark.parametrize("marker", ["</parameter>", "<ab", "</"])
@settings(derandomize=True, max_examples=300)
@given(pieces=near)
def test_a_pattern_without_a_marker_matches_where_the_marker_does_not_occur(marker: str, pieces: list[str]) -> None:
    written = "".join(pieces)
    assert (re.search(without(marker), written) is None) is (marker in written)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(pieces=near)
def test_texts_that_contain_a_marker_are_told_from_others(pieces: list[str]) -> None:
    written = "".join(pieces)
    grammar = grammar_of({}, containing("</parameter>", "<ab"))
    assert says(grammar, vocabulary_with(), written) is not ("</parameter>" in written or "<ab" in written)


PATTERNS = [
    "b",
    "^b",
    "b$",
    "^b$",
    "^a|b$",
    "a|^b|c$",
    "^(a|b)$",
    "(a|b)+$",
    "[|)(]",
    "^[$^]$",
    r"\|",
    r"a\$",
    r"^\^",
    "",
    "^$",
    r"\\$",
    r"[\]|]",
]
TEXTS = ["", "a", "b", "c", "ab", "ba", "abc", "bcd", "|", "(", "$", "^", "a$", "a$b", "^a", "\\", "x\\", "]"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_searched_for_as_json_schema_has_it(pattern: str) -> None:
    grammar = grammar_of({"pattern": pattern})
    for written in TEXTS:
        assert says(grammar, vocabulary_with(), written) is (re.search(pattern, written) is not None), written


@pytest.mark.parametrize(("low", "high"), [(0, 2), (2, None), (1, 1), (0, 0)])
def test_lengths_count_characters(low: int, high: int | None) -> None:
    grammar = grammar_of({"minLength": low, **({} if high is None else {"maxLength": high})})
    for written in ("", "é", "🙂", "🙂\n", "ab🙂"):
        assert says(grammar, vocabulary_with(), written) is (low <= len(written) <= (high if high is not None else 99))


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_what_a_validator_takes_it_for(name: str) -> None:
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    assert name in checker.checkers
    for written in drafts(grammar_of({"format": name, "maxLength": 80}), vocabulary_with(), 60):
        checker.check(written, name)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("date", "2024-12-31"),
        ("time", "23:59:59.123Z"),
        ("date-time", "2024-02-28T00:00:00+05:30"),
        ("duration", "P1Y2M3DT4H5M6S"),
        ("duration", "P2W"),
        ("email", "first.last+tag@sub.example.com"),
        ("hostname", "example.com"),
        ("ipv4", "192.168.0.255"),
        ("ipv6", "2001:db8::8a2e:370:7334"),
        ("ipv6", "::1"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000"),
        ("uri", "https://example.com:8080/a/b%20c?q=1&r=2#top"),
    ],
)
def test_usual_values_of_a_format_can_be_said(name: str, written: str) -> None:
    assert says(grammar_of({"format": name}), vocabulary_with(), written)


@pytest.mark.parametrize("schema", [{"pattern": "^a$", "minLength": 2}, {"format": "date", "maxLength": 4}])
def test_keywords_that_no_text_satisfies_are_an_error(schema: dict[str, Any]) -> None:
    with pytest.raises(GrammarError, match="No text satisfies"):
        text(schema)


def test_an_unknown_format_is_an_error_unless_lenient() -> None:
    with pytest.raises(GrammarError, match="Unknown format: colour"):
        text({"format": "colour"})
    assert text({"format": "colour"}, lenient=True) == text({})

"""Tokens to text deltas, with both families of tokenizers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from localai_shim.output.answer import Delta, TextParser
from localai_shim.output.stop import RowText, StopStrings
from localai_shim.types import Token
from tests.conftest import TEXTS, chat_tokenizer


def tokens_of(tokenizer: Any, text: str, *, eos: bool = False) -> list[Token]:
    """What the engine would hand over: the last token says why the row ended."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    tokens = [Token(token_id, logprob=-float(i)) for i, token_id in enumerate(ids)]
    if eos:
        return [*tokens, Token(tokenizer.eos_token_id, finish_reason="stop", is_eos=True)]
    return [*tokens[:-1], tokens[-1]._replace(finish_reason="length")]


def run(parser: TextParser, tokens: Sequence[Token]) -> list[Delta]:
    return [parser.feed(token) for token in tokens]


def said(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("eos", [False, True], ids=["ends by length", "ends by itself"])
def test_the_deltas_are_the_text(tokenizer: Any, text: str, eos: bool) -> None:
    parser = TextParser(chat_tokenizer(tokenizer).detokenizer())
    tokens = tokens_of(tokenizer, text, eos=eos)
    deltas = run(parser, tokens)
    assert said(deltas) == text
    assert [delta.finish_reason for delta in deltas] == [token.finish_reason for token in tokens]
    assert parser.generated == len(tokens)
    assert not any(delta.tokens for delta in deltas)


@pytest.mark.parametrize("text", TEXTS)
def test_no_delta_shows_a_broken_character(tokenizer: Any, text: str) -> None:
    deltas = run(TextParser(chat_tokenizer(tokenizer).detokenizer()), tokens_of(tokenizer, text))
    assert all("\ufffd" not in delta.text for delta in deltas)


def test_a_character_that_never_ends_is_shown_as_a_replacement(tokenizer: Any) -> None:
    tokens = tokens_of(tokenizer, "ok 🚀")
    cut = [*tokens[:-2], tokens[-2]._replace(finish_reason="length")]
    assert said(run(TextParser(chat_tokenizer(tokenizer).detokenizer()), cut)).rstrip("\ufffd") == "ok "


def test_text_that_begins_with_a_space_keeps_it(byte_level: Any) -> None:
    for text in (" leading", "  twice", " "):
        assert said(run(TextParser(chat_tokenizer(byte_level).detokenizer()), tokens_of(byte_level, text))) == text


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_continues_a_prompt_keeps_the_space_that_it_begins_with(tokenizer: Any, text: str) -> None:
    tokens = tokens_of(tokenizer, text)
    for count in range(1, len(tokens)):
        prompt = tokenizer.decode([token.id for token in tokens[:count]])
        if prompt.endswith("\ufffd"):
            continue
        detokenizer = chat_tokenizer(tokenizer).detokenizer(continuing=True)
        assert prompt + said(run(TextParser(detokenizer), tokens[count:])) == text


def test_a_zero_byte_is_text_too(tokenizer: Any) -> None:
    assert said(run(TextParser(chat_tokenizer(tokenizer).detokenizer()), tokens_of(tokenizer, "a\x00b"))) == "a\x00b"


@pytest.mark.parametrize("text", TEXTS)
def test_a_stop_string_cuts_the_text_wherever_tokens_end(tokenizer: Any, text: str) -> None:
    tokens = tokens_of(tokenizer, text)
    for start, end in itertools.combinations(range(len(text) + 1), 2):
        if end - start > 6:
            continue
        stop = text[start:end]
        deltas = run(TextParser(chat_tokenizer(tokenizer).detokenizer(), [stop]), tokens)
        assert said(deltas) == text[: text.find(stop)], stop


@pytest.mark.parametrize("text", ["one two!", "one two "])
def test_a_stop_string_that_the_last_token_completes_is_the_reason(tokenizer: Any, text: str) -> None:
    stop = [text[-3:]]
    *others, last = tokens_of(tokenizer, text)
    checker = StopStrings(RowText(chat_tokenizer(tokenizer).detokenizer()), stop)
    assert not any(checker.feed(token.id) for token in others)
    last = last._replace(finish_reason="stop" if checker.feed(last.id) else "length")  # as the engine does
    deltas = run(TextParser(chat_tokenizer(tokenizer).detokenizer(), stop), [*others, last])
    assert (said(deltas), deltas[-1].finish_reason) == (text[:-3], "stop")


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_come_in_order_and_never_before_their_text(tokenizer: Any, text: str) -> None:
    tokens = tokens_of(tokenizer, text)
    parser = TextParser(chat_tokenizer(tokenizer).detokenizer(), ["never said"], with_tokens=True)
    out: list[tuple[Token, int]] = []
    released = 0
    for token in tokens:
        delta = parser.feed(token)
        released += len(delta.text)
        out += delta.tokens
        assert all(offset <= released for _, offset in delta.tokens)
    assert [token for token, _ in out] == tokens
    offsets = [offset for _, offset in out]
    before = -1 if chat_tokenizer(tokenizer).token_bytes.strips_space else 0  # sentencepiece's space before a text
    assert offsets == sorted(offsets) and offsets[0] == before and offsets[-1] <= len(text)


def test_offsets_are_where_each_tokens_text_begins(byte_level: Any) -> None:
    text = "The quick brown fox, two three."
    tokens = tokens_of(byte_level, text)
    deltas = run(TextParser(chat_tokenizer(byte_level).detokenizer(), with_tokens=True), tokens)
    pieces = [byte_level.decode([token.id]) for token in tokens]
    expected = [0, *itertools.accumulate(map(len, pieces))][:-1]
    assert [offset for delta in deltas for _, offset in delta.tokens] == expected


def test_an_end_of_sequence_is_no_token_of_the_text(tokenizer: Any) -> None:
    tokens = tokens_of(tokenizer, "one two", eos=True)
    deltas = run(TextParser(chat_tokenizer(tokenizer).detokenizer(), with_tokens=True), tokens)
    assert [token for delta in deltas for token, _ in delta.tokens] == tokens[:-1]


def test_tokens_behind_a_stop_string_are_not_given_out(byte_level: Any) -> None:
    tokens = tokens_of(byte_level, "one two three four")
    pieces = [byte_level.decode([token.id]) for token in tokens]
    for count in range(1, len(tokens)):
        stop = "".join(pieces[count:])  # begins exactly where a token begins
        if stop in "".join(pieces[:count]) + stop[:-1]:
            continue
        deltas = run(TextParser(chat_tokenizer(byte_level).detokenizer(), [stop], with_tokens=True), tokens)
        assert [token for delta in deltas for token, _ in delta.tokens] == tokens[:count]
        assert said(deltas) == "".join(pieces[:count])

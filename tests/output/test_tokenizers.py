"""Tokenizers of every kind under a random model: what `tests/real` holds of published ones, with trained ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import tokenizer_checks
from tests.prompt import kinds
from tests.tokenizer_checks import CHECKS, Subject, make_subject

OF_ANY = [
    tokenizer_checks.texts_come_back_whole,
    tokenizer_checks.greedy_as_mlx_lm,
    tokenizer_checks.streams_are_the_whole,
    tokenizer_checks.stop_strings_end_answers,
    tokenizer_checks.logit_bias_is_by_token,
]
"""Checks of a tokenizer that gives no text back as it was, and whose tokens stand for no bytes of their own."""


EXACT = [kinds.byte_level, kinds.byte_level_misdecoded, kinds.prepending, kinds.metaspace, kinds.unigram_with_bytes]
INEXACT = [kinds.unigram, kinds.word_pieces]


@pytest.fixture(scope="module", params=EXACT, ids=lambda make: make.__name__)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    folder = tmp_path_factory.mktemp("exact")
    request.param(folder, kinds.END)  # a model of few tokens would sample markup all the time
    made = make_subject(folder)
    yield made
    made.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_what_holds_of_every_tokenizer(subject: Subject, check: Callable[[Subject], None]) -> None:
    check(subject)


@pytest.fixture(scope="module", params=INEXACT, ids=lambda make: make.__name__)
def inexact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    folder = tmp_path_factory.mktemp("inexact")
    request.param(folder, kinds.END)
    made = make_subject(folder)
    made.inexact = True
    yield made
    made.close()


@pytest.mark.parametrize("check", OF_ANY, ids=lambda check: check.__name__)
def test_tokenizers_that_lose_text_are_served_as_well(inexact: Subject, check: Callable[[Subject], None]) -> None:
    check(inexact)


def test_a_beginning_of_sequence_is_none_of_a_prompts_text(tmp_path: Path) -> None:
    """Offsets count from what was sent, whether it is repeated or not."""
    from tokenizers import Tokenizer, processors

    kinds.prepending(tmp_path, kinds.Added(["<s>", "<|im_end|>"], []))
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    begin = ("<s>", tokenizer.token_to_id("<s>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[begin])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    subject = make_subject(tmp_path)
    assert subject.chat.encode("x")[0] == begin[1]
    try:
        tokenizer_checks.completions_echo_prompts(subject)
    finally:
        subject.close()


def test_ids_beyond_a_tokenizers_are_no_text(tmp_path: Path) -> None:
    """Models' vocabularies are filled up; mlx-lm's detokenizer of this kind fails for such an id."""
    kinds.prepending(tmp_path, kinds.END)
    subject = Subject(tmp_path)
    ids = subject.ids("one two")
    assert "".join(tokenizer_checks.deltas(subject, [2_000, *ids, 2_001, *ids])) == "one two one two"


def test_an_added_letter_is_text_whatever_byte_it_would_stand_for(tmp_path: Path) -> None:
    """DeepSeek's vocabularies have letters of GPT-2's alphabet beside those tokens that stand for their bytes."""
    kinds.byte_level(tmp_path, kinds.Added(["<|im_end|>"], ["õ", "<b>"]))
    subject = Subject(tmp_path)
    ids = subject.ids("põe")
    assert "".join(tokenizer_checks.deltas(subject, ids)) == "põe"
    named = subject.vocabulary.special.values()
    assert "õ" not in named and "<b>" in named, "grammars name markup, and hold letters in any text"


def test_banned_words_are_those_of_an_answer(tmp_path: Path) -> None:
    """A word as it stands within a text, where no space is put before it."""
    kinds.prepending(tmp_path, kinds.END)
    subject = make_subject(tmp_path)
    try:
        spelling = subject.chat.token_bytes
        token_id = next(i for i in range(subject.chat.vocabulary_size) if re.fullmatch(rb"[a-z]{3,}", spelling(i)))
        word, bias = spelling.text(token_id), {str(token_id): 100}
        free = subject.said(logit_bias=bias, max_tokens=4)
        banned = subject.said(logit_bias=bias, max_tokens=4, extra_body={"bad_words": [word]})
    finally:
        subject.close()
    assert free == word * 4 and word not in banned

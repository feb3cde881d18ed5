"""Tokenizers of every kind under a random model: what `tests/real` holds of published ones, with trained ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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


EXACT = [kinds.byte_level, kinds.prepending, kinds.metaspace, kinds.unigram_with_bytes]
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

"""Stop strings: the text never depends on how it was cut into pieces, and shows no piece of a stop string."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from localai_shim.output.stop import RowText, StopMatcher, StopStrings
from tests.conftest import chat_tokenizer
from tests.output.stops import cut_at_first_stop

CASES = [
    ("abcabd", ["abd"]),
    ("aaab", ["aab"]),
    ("abababc", ["ababc"]),
    ("abc", ["abc"]),
    ("abc", ["abcd"]),
    ("abc", ["x"]),
    ("abcde", ["cd", "bcx"]),
    ("abcde", ["e", "cde"]),
    ("abcdef", ["bcde", "c"]),
    ("abab", ["b", "ab"]),
    ("\n\nUser:", ["\nUser:", "\n\n\n"]),
    ("é🙂é🙂!", ["🙂!", "🙂🙂"]),
    ("", ["a"]),
]


def splits(text: str) -> Iterator[list[str]]:
    """Every way to cut a text into pieces."""
    for cuts in itertools.product([False, True], repeat=max(0, len(text) - 1)):
        pieces, start = [], 0
        for at, cut in enumerate(cuts, 1):
            if cut:
                pieces.append(text[start:at])
                start = at
        yield [*pieces, text[start:]]


def run(pieces: Sequence[str], stops: Sequence[str]) -> tuple[str, bool]:
    matcher = StopMatcher(stops)
    out = "".join(matcher.feed(piece) for piece in pieces)
    return out + matcher.flush(), matcher.matched


@pytest.mark.parametrize(("text", "stops"), CASES, ids=str)
def test_the_text_is_cut_at_the_first_stop_string_however_it_comes(text: str, stops: list[str]) -> None:
    for pieces in splits(text):
        assert run(pieces, stops) == cut_at_first_stop(text, stops), pieces


def test_random_texts_are_cut_alike() -> None:
    rng = random.Random(0)
    for _ in range(2000):
        text = "".join(rng.choices("ab", k=rng.randint(0, 14)))
        stops = ["".join(rng.choices("ab", k=rng.randint(3, 5))) for _ in range(rng.randint(1, 4))]
        assert run(list(text), stops) == cut_at_first_stop(text, stops), (text, stops)


def test_only_what_may_become_a_stop_string_is_held_back() -> None:
    rng = random.Random(1)
    for _ in range(500):
        stop = "".join(rng.choices("ab", k=4))
        text = "".join(rng.choices("abc", k=12))
        matcher = StopMatcher([stop])
        out = ""
        for end, char in enumerate(text, 1):
            out += matcher.feed(char)
            if matcher.matched:
                break
            held = max(n for n in range(4) if text[:end].endswith(stop[:n]) and n <= end)
            assert out == text[: end - held]


def test_without_stop_strings_all_text_passes_at_once() -> None:
    matcher = StopMatcher([])
    assert [matcher.feed("a"), matcher.feed("b"), matcher.flush()] == ["a", "b", ""]
    assert not matcher.matched


def test_nothing_comes_after_a_match() -> None:
    matcher = StopMatcher(["b"])
    assert [matcher.feed("abc"), matcher.feed("d"), matcher.flush()] == ["a", "", ""]
    assert matcher.matched


def test_what_was_held_back_comes_once_when_the_text_ends() -> None:
    matcher = StopMatcher(["abc"])
    assert [matcher.feed("xab"), matcher.flush(), matcher.flush()] == ["x", "ab", ""]


@pytest.mark.parametrize("text", ["one two three", "Paris is the capital", "gęślą 🙂🚀!", "a  b c "])
def test_the_engine_is_told_at_the_token_that_completes_a_stop_string(tokenizer: Any, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    for start, end in itertools.combinations(range(len(text) + 1), 2):
        stop = text[start:end]
        texts = {n: tokenizer.decode(ids[:n]) for n in range(1, len(ids) + 1)}
        completes = next(n for n, said in texts.items() if stop in said.rstrip("\ufffd"))
        checker = StopStrings(RowText(chat_tokenizer(tokenizer).detokenizer()), [stop])
        said = [checker.feed(token) for token in ids]
        assert said.index(True) + 1 == completes, stop
        assert all(said[completes - 1 :])


def test_the_engine_is_told_nothing_without_a_stop_string(tokenizer: Any) -> None:
    checker = StopStrings(RowText(chat_tokenizer(tokenizer).detokenizer()), ["never"])
    assert not any(checker.feed(token) for token in tokenizer.encode("one two three"))

"""What is read of an answer does not depend on how its text was cut into tokens."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.output.families import FAMILIES, Family
from tests.output.reading import read, split
from tests.output.recorded import CORPUS, Recorded
from tests.samples import exhaustive, sample, sampled

_TOKENS = re.compile(r"<[|/]?\w+[|:]?\w*[|>]?|\s?\w+|\s+|[^\w\s]+")


def cut(text: str, places: Sequence[int]) -> list[str]:
    """The text, cut at these places."""
    ends = [0, *sorted(places), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(ends)]


def ways(text: str, seed: int) -> Iterator[list[str]]:
    """Every way to cut it in two, single characters, tokens much as models have them, and random tokens."""
    yield list(text)
    yield from (cut(text, [at]) for at in range(len(text) + 1))
    yield _TOKENS.findall(text)
    rng = random.Random(seed)
    for _ in range(20):
        yield cut(text, rng.sample(range(len(text) + 1), rng.randint(0, len(text))))
        yield cut(text, [rng.randint(0, len(text)) for _ in range(rng.randint(2, 6))])


def some_ways(text: str, seed: int) -> list[list[str]]:
    return sample(ways(text, seed), 10, text)


@pytest.mark.parametrize("ways", [some_ways, pytest.param(ways, marks=exhaustive)])
@pytest.mark.parametrize("answer", CORPUS, ids=lambda answer: answer.name)
def test_every_way_to_cut_an_answer_into_tokens_reads_alike(
    answer: Recorded, ways: Callable[[str, int], Iterator[list[str]]]
) -> None:
    whole = read(answer, [answer.text])
    for pieces in ways(answer.text, len(answer.text)):
        assert read(answer, pieces) == whole, pieces


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
@pytest.mark.parametrize("finish", ["stop", "length"])
@pytest.mark.parametrize("ends", [12, pytest.param(10_000, marks=exhaustive)], ids=["some ends", "all ends"])
def test_an_answer_that_ends_anywhere_reads_alike_however_it_was_cut(family: Family, finish: str, ends: int) -> None:
    rng = random.Random(finish)
    whole = next(answer for answer in CORPUS if answer.name == f"{family.name}, reasoning, content and a call")
    for end in sample(range(len(whole.text)), ends, whole.name):
        answer = Recorded("", family, whole.text[:end], finish="length" if finish == "length" else "stop")
        read_whole = read(answer, [answer.text])
        assert read(answer, list(answer.text)) == read_whole
        for _ in range(3):
            pieces = cut(answer.text, [rng.randint(0, end) for _ in range(4)])
            assert read(answer, pieces) == read_whole, pieces


@pytest.mark.parametrize("answer", sampled(CORPUS, 100), ids=lambda answer: answer.name)
def test_pieces_are_the_whole_text_in_order_and_merge_alike(answer: Recorded) -> None:
    merged = None
    for pieces in sample(ways(answer.text, seed=1), 20, answer.text):
        found = split(answer, pieces)
        own = [piece for piece in found if piece.start < piece.end or not piece.text]  # a header is repeated for a call
        assert "".join(piece.text for piece in own) == answer.text
        at = 0
        for piece in found:
            assert piece.start == at
            assert piece.end - piece.start in (0, len(piece.text))
            at = piece.end
        assert at == len(answer.text)
        kinds: list[list[str]] = []
        for piece in found:
            if kinds and kinds[-1][0] == piece.kind and piece.kind not in ("open", "close", "stray"):
                kinds[-1][1] += piece.text
            else:
                kinds.append([piece.kind, piece.text])
        merged = merged or kinds
        assert kinds == merged, pieces

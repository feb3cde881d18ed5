"""What is read of an answer does not depend on how its text was cut into tokens: ends, and pieces of channels."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from tests.output.recorded import CASES, WRITERS
from tests.output.recorded.case import Case
from tests.output.recorded.read import read, split
from tests.output.recorded.scenarios import ASIDE, NESTED, RING, SHORT, THOUGHT
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


def whole_turn(family: str) -> Case:
    """All that a family can say in one turn."""
    writer = WRITERS[family]
    calls = [SHORT, RING, NESTED] if writer.parallel else [SHORT]
    thought, aside = THOUGHT if writer.think else "", ASIDE if writer.beside else ""
    opened = writer.think is not None and not writer.think[0]
    return Case(family, "a whole turn", writer.turn(thought, aside, writer.block(calls)), opened=opened)


@pytest.mark.parametrize("ways", [some_ways, pytest.param(ways, marks=exhaustive)])
@pytest.mark.parametrize("case", sampled(CASES, 80), ids=str)
def test_every_way_to_cut_an_answer_into_tokens_reads_alike(
    case: Case, ways: Callable[[str, int], Iterator[list[str]]]
) -> None:
    whole = read(case, [case.text])
    for pieces in ways(case.text, len(case.text)):
        assert read(case, pieces) == whole, pieces


@pytest.mark.parametrize("family", WRITERS)
@pytest.mark.parametrize("finish", ["stop", "length"])
@pytest.mark.parametrize("ends", [12, pytest.param(10_000, marks=exhaustive)], ids=["some ends", "all ends"])
def test_an_answer_that_ends_anywhere_reads_alike_however_it_was_cut(family: str, finish: str, ends: int) -> None:
    rng = random.Random(finish)
    whole = whole_turn(family)
    for end in sample(range(len(whole.text)), ends, family):
        case = replace(whole, text=whole.text[:end], finish="length" if finish == "length" else "stop")
        read_whole = read(case, [case.text])
        assert read(case, list(case.text)) == read_whole, case.text
        for _ in range(3):
            pieces = cut(case.text, [rng.randint(0, end) for _ in range(4)])
            assert read(case, pieces) == read_whole, pieces


@pytest.mark.parametrize("case", sampled(CASES, 80), ids=str)
def test_pieces_are_the_whole_text_in_order_and_merge_alike(case: Case) -> None:
    merged = None
    for pieces in sample(ways(case.text, seed=1), 12, case.text):
        found = split(case, pieces)
        assert "".join(piece.text for piece in found) == case.text
        at = 0
        for piece in found:
            assert (piece.start, piece.end) == (at, at + len(piece.text))
            at = piece.end
        kinds: list[list[str]] = []
        for piece in found:
            if kinds and kinds[-1][0] == piece.kind and piece.kind not in ("open", "close", "stray"):
                kinds[-1][1] += piece.text
            else:
                kinds.append([piece.kind, piece.text])
        merged = merged or kinds
        assert kinds == merged, pieces


@pytest.mark.parametrize("case", sampled(CASES, 80), ids=str)
def test_the_calls_of_an_answer_stand_in_blocks_that_open_and_close(case: Case) -> None:
    depth = 0
    for piece in split(case, list(case.text)):
        depth += (piece.kind == "open") - (piece.kind == "close")
        assert depth in (0, 1)
        assert (piece.kind == "call") <= (depth == 1)
        assert piece.events == () or piece.kind == "call"
    assert depth == 0

"""Texts are cut by tokens, without a gap, also by tokenizers that do not say where their tokens end."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localai_shim.endpoints.vector_stores import chunks
from localai_shim.endpoints.vector_stores.chunks import ends_of, spans, token_ends_of

TEXT = "The train leaves at nine.\n\nBäume, 木, and 🙂 stay. " * 20


def nothing() -> None:
    """Work that is wanted."""


def words(text: str) -> list[int]:
    """Ends of the words of a text, as those of tokens."""
    return list(token_ends_of(None, lambda word: 1)(text))


@given(st.text(max_size=300), st.integers(1, 20), st.integers(0, 10))
def test_chunks_have_all_of_a_text(text: str, size: int, overlap: int) -> None:
    overlap = min(overlap, size // 2)
    ends = ends_of(text, words, nothing)
    found = list(spans(ends, len(text), size, overlap))
    if not ends:
        assert found == []
        return
    assert found[0].start == 0 and found[-1].stop == len(text)
    assert all(later.start <= earlier.stop for earlier, later in itertools.pairwise(found))
    assert all(later.start > earlier.start for earlier, later in itertools.pairwise(found))


@pytest.mark.parametrize(("size", "overlap"), [(10, 5), (10, 0), (7, 3), (1, 0)])
def test_chunks_have_as_many_tokens_and_overlap_as_many(size: int, overlap: int) -> None:
    ends = ends_of(TEXT, words, nothing)
    found = list(spans(ends, len(TEXT), size, overlap))
    counts = [len(words(TEXT[each.start : each.stop])) for each in found]
    assert set(counts[:-1]) == {size} and counts[-1] <= size
    shared = [len(words(TEXT[b.start : a.stop])) for a, b in itertools.pairwise(found)]
    assert set(shared) <= {overlap}


def test_long_texts_are_tokenized_in_blocks_that_end_before_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "BLOCK", 100)
    seen: list[str] = []

    def noted(text: str) -> list[int]:
        seen.append(text)
        return words(text)

    assert list(ends_of(TEXT, noted, nothing)) == words(TEXT)
    assert len(seen) > 5 and "".join(seen) == TEXT and max(map(len, seen)) <= 100
    assert all(text[0].isspace() for text in seen[1:])


def test_tokens_of_one_word_share_its_characters() -> None:
    assert token_ends_of(None, len)("abc de") == [1, 2, 3, 4, 5, 6]
    assert token_ends_of(None, lambda word: 2)("abcd") == [2, 4]


def test_work_that_is_not_wanted_any_more_stops() -> None:
    def stop() -> Any:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        ends_of(TEXT, words, stop)

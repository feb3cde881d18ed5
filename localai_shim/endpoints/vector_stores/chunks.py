"""Cutting a text into chunks of tokens that overlap."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

BLOCK = 2**16
"""Characters that are tokenized together: a long text holds up other threads only for one block."""
_WORD = re.compile(r"\s*\S+|\s+")
_SPACE = re.compile(r"\s(?=\S)")

TokenEnds = Callable[[str], Sequence[int]]
"""Text -> for each of its tokens, the position of the character behind it."""


class Span(NamedTuple):
    """A chunk's characters."""

    start: int
    stop: int


def ends_of(text: str, token_ends: TokenEnds, check: Callable[[], object]) -> array[int]:
    """Ends of a text's tokens.

    Args:
        check: called between two blocks; may raise.
    """
    ends = array("q")
    start = 0
    while start < len(text):
        check()
        stop = _block_end(text, start)
        ends.extend(start + end for end in token_ends(text[start:stop]))
        start = stop
    return ends


def _block_end(text: str, start: int) -> int:
    """End of a block: before a word if there is one."""
    stop = start + BLOCK
    if stop >= len(text):
        return len(text)
    spaces = [match.start() for match in _SPACE.finditer(text, stop - 1024, stop)]
    return spaces[-1] if spaces else stop


def spans(ends: Sequence[int], length: int, size: int, overlap: int) -> Iterator[Span]:
    """Chunks of at most `size` tokens, each of which begins with the last `overlap` tokens of the one before.

    Together they have all characters of the text. A token of which a part is a character may be in two.

    Args:
        ends: of the tokens.
        length: of the text, in characters.
    """
    first = 0
    while first < len(ends):
        last = min(first + size, len(ends))
        start = ends[first - 1] if first else 0
        yield Span(start, length if last == len(ends) else ends[last - 1])
        if last == len(ends):
            return
        first = last - overlap


def word_ends(count: Callable[[Sequence[str]], Sequence[int]]) -> TokenEnds:
    """Ends of tokens for tokenizers that do not say where theirs are: a word's tokens share its characters evenly.

    Args:
        count: words -> the number of tokens of each.
    """

    def token_ends(text: str) -> list[int]:
        found = list(_WORD.finditer(text))
        counts = count([match[0] for match in found])
        return [
            match.start() + (match.end() - match.start()) * (i + 1) // tokens
            for match, tokens in zip(found, counts, strict=True)
            for i in range(tokens)
        ]

    return token_ends

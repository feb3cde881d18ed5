"""Cutting a text into chunks of tokens that overlap."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ...threads.panics import panics_are_errors

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


def token_ends_of(tokenizer: object, count: Callable[[str], int]) -> TokenEnds:
    """Function that finds the ends of a text's tokens.

    Args:
        tokenizer: of mlx-lm, or what plays one.
        count: word -> the number of its tokens; used if the tokenizer does not say where its tokens end.
    """
    backend = getattr(getattr(tokenizer, "_tokenizer", None), "backend_tokenizer", None)
    if backend is None:
        return partial(_word_ends, count=count)

    @panics_are_errors
    def token_ends(text: str) -> list[int]:
        [encoding] = backend.encode_batch([text], add_special_tokens=False)
        return [end for _, end in encoding.offsets]

    return token_ends


def _word_ends(text: str, *, count: Callable[[str], int]) -> list[int]:
    """Ends of tokens of which those of one word share its characters evenly."""
    found = [(match.start(), match.end(), count(match[0])) for match in _WORD.finditer(text)]
    return [start + (end - start) * (i + 1) // tokens for start, end, tokens in found for i in range(tokens)]

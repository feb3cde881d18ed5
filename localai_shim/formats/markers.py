"""Looking for markers in a text that is still being written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

# Between a special token and a word in one marker; models write blanks there, which the tokens make invisible to them.
_EDGE = re.compile(r"(?<=\|>)\s*(?=\w)|(?<=\w)\s*(?=<\|)")
_BLANKS = re.compile(r"(?<=\|>)\s+(?=\w|$)|(?<=\w)\s+(?=<|$)")
MAX_BLANKS = 8


class Markers:
    """Some markers.

    Attributes:
        pattern: of any of them; the longest that is there.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        longest_first = sorted(set(filter(None, texts)), key=len, reverse=True)
        self.pattern = re.compile("|".join(map(_pattern, longest_first)) or r"(?!)")
        edges = max((len(_EDGE.findall(text)) for text in longest_first), default=0)
        self._is_loose = edges > 0
        self._named = {_squeezed(text): text for text in longest_first}
        self._wholes = frozenset(self._named)
        self._beginnings = frozenset(text[:n] for text in self._named for n in range(1, len(text)))
        self._longest = max(map(len, longest_first), default=0) + edges * MAX_BLANKS

    def named(self, found: str) -> str:
        """The marker that was found, as it was given."""
        return self._named[_squeezed(found)] if self._is_loose else found

    def may_go_on(self, text: str, at: int) -> bool:
        """The text from a place on is the beginning of a marker."""
        if len(text) - at > self._longest:
            return False
        return (_squeezed(text[at:]) if self._is_loose else text[at:]) in self._beginnings

    def held(self, text: str, at: int) -> int:
        """The first place, not before another, from which on the text is a marker or the beginning of one; its end if
        there is none.
        """
        for begins in range(max(at, len(text) - self._longest), len(text)):
            tail = _squeezed(text[begins:]) if self._is_loose else text[begins:]
            if tail in self._beginnings or tail in self._wholes:
                return begins
        return len(text)


@lru_cache(maxsize=512)
def markers_of(texts: tuple[str, ...]) -> Markers:
    """The markers that these texts are."""
    return Markers(texts)


def is_marker(text: str) -> bool:
    """A text that is markup everywhere; others may be words of an answer."""
    return any(c in text for c in "<[｜|") and not text.startswith("```")


def _pattern(text: str) -> str:
    """A pattern of a marker."""
    return rf"\s{{0,{MAX_BLANKS}}}".join(map(re.escape, _EDGE.split(text)))


def _squeezed(text: str) -> str:
    """A marker without the blanks that it may have anywhere."""
    return _BLANKS.sub("", text)

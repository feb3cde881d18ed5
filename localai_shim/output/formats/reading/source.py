"""A text that comes in pieces, and what generators that read it share.

A reader is a generator that yields events, and None where it needs more of the text. It decides nothing before it has
seen enough to decide the same of the whole text: an answer is read alike in whichever pieces it comes.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

from ..layout import Layout, Match, Partial, skip_space

T = TypeVar("T")


class Event(NamedTuple):
    """A step of reading a block.

    `name`: a call of this function begins. `arguments`: more of its arguments' JSON. `end`: it is complete. `broken`:
    it ends here, and is not; with what was written behind what came as its arguments. `text`: what belongs to no call.
    """

    kind: Literal["name", "arguments", "end", "broken", "text"]
    text: str = ""


Reading = Generator[Event | None, None, T]
"""Yields events, or None for more text; returns a T."""


class UnreadableError(ValueError):
    """The text does not go on as the format demands."""


class NoCallError(Exception):
    """A text that might have been a call is none."""


@lru_cache(maxsize=512)
def _beginnings(texts: tuple[str, ...]) -> tuple[frozenset[str], int]:
    """(all that one of these begins with, the length of the longest)"""
    return frozenset(text[:n] for text in texts for n in range(1, len(text) + 1)), max(map(len, texts), default=0)


def extended(owner: object, attribute: str, text: str) -> str:
    """A text that an object has, and more, for the object to keep.

    Python lengthens a string in place that nothing else refers to, so that what waits for its end is not copied with
    each token. So the object lets go of it.
    """
    own: str = getattr(owner, attribute)
    setattr(owner, attribute, "")
    own += text
    return own


class Source:
    """Text of a block that was written and not read yet.

    Attributes:
        text: from some place before `at` on.
        at: the next character to read.
        ended: no more text comes.
        cut: it ended before the model ended it.
        stops: markers at which a call that cannot be read is over.
        begins: the place of what a reader may go back to.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self.text = ""
        self.at = 0
        self.ended = self.cut = False
        self.begins: int | None = None
        self.stops = tuple(stops)
        self.stop = re.compile("|".join(re.escape(stop) for stop in sorted(stops, key=len, reverse=True)) or r"(?!)")

    @property
    def left(self) -> int:
        """Number of characters that were not read for good."""
        return len(self.text) - (self.at if self.begins is None else self.begins)

    def append(self, text: str) -> None:
        """More of the text."""
        self.text = extended(self, "text", text)

    def forget(self) -> None:
        """Drop what was read; places in the text that somebody holds are void."""
        self.text, self.at = self.text[self.at :], 0

    def take(self, end: int) -> str:
        """The text up to a place, which is read now."""
        taken, self.at = self.text[self.at : end], end
        return taken

    # -- Parts of readers ---------------------------------------------------------------------------------------------

    def more(self) -> Reading[None]:
        """Wait for more text.

        Raises:
            UnreadableError: none comes.
        """
        if self.ended:
            raise UnreadableError("the text ends amid a call")
        yield None

    def run(self, pattern: re.Pattern[str], at: int, limit: int | None = None) -> Reading[int]:
        """The end of what matches a pattern of single characters from a place on, once something else follows.

        Args:
            limit: of characters, after which there may be more.
        """
        begins = at
        while True:
            found = pattern.match(self.text, at)
            at = at if found is None else found.end()
            if at < len(self.text) or self.ended or (limit is not None and at - begins > limit):
                return at
            yield None

    def peek(self) -> Reading[str]:
        """Skip whitespace; the next character, empty at the end of the text."""
        while True:
            self.at = skip_space(self.text, self.at)
            if self.at < len(self.text):
                return self.text[self.at]
            if self.ended:
                return ""
            yield None

    def match(self, layouts: Sequence[Layout]) -> Reading[tuple[Layout, Match] | None]:
        """The first of several layouts that stands here; it is read then, but for the whitespace behind it."""
        while True:
            for layout in layouts:
                found = layout.match(self.text, self.at)
                if isinstance(found, Match):
                    self.at = found.end
                    return layout, found
                if isinstance(found, Partial) and not self.ended:
                    break  # one that comes later may be the beginning of this one
            else:
                return None
            yield None

    def literal(self, texts: Sequence[str]) -> Reading[str | None]:
        """The longest of several texts that is here, behind whitespace; it is read then."""
        at = self.at
        while True:
            at = skip_space(self.text, at)
            if self.ended or not self.may_begin(texts, at):
                found = max((text for text in texts if self.text.startswith(text, at)), key=len, default=None)
                if found is not None:
                    self.at = at + len(found)
                return found
            yield None

    def stops_here(self) -> Reading[bool]:
        """A stop or the end of the text is the next that comes, behind whitespace; nothing is read."""
        at = self.at
        while True:
            at = skip_space(self.text, at)
            if self.stop.match(self.text, at):
                return True
            if self.ended or not self.may_begin(self.stops, at):
                return at == len(self.text)
            yield None

    def may_begin(self, texts: Sequence[str], at: int) -> bool:
        """The text ends at or behind a place before it is known whether one of these is there."""
        room = len(self.text) - at
        return any(len(text) > room and text.startswith(self.text[at:]) for text in texts)

    def until(self, *texts: str) -> Reading[int]:
        """The place where one of these or a stop begins, or the end of the text; nothing is read."""
        pattern = re.compile("|".join(filter(None, (*map(re.escape, texts), self.stop.pattern))))
        scanned = self.at
        while True:
            found = pattern.search(self.text, scanned)
            if found is not None:
                return found.start()
            if self.ended:
                return len(self.text)
            scanned = max(self.at, self.held((*texts, *self.stops)))
            yield None

    def held(self, texts: Sequence[str]) -> int:
        """The place from which on the text may be the beginning of one of these; its end where none is."""
        beginnings, longest = _beginnings(tuple(texts))
        text = self.text
        for at in range(max(self.at, len(text) - longest), len(text)):
            if text[at:] in beginnings:
                return at
        return len(text)

"""A text that comes in pieces: the markers and layouts in it, and what generators that read it share.

A reader is a generator that yields events, and None where it needs more of the text. It decides nothing before it has
seen enough to decide the same of the whole text: an answer is read alike in whichever pieces it comes.

Layouts are texts with holes, such as `<function=NAME>`, which are matched, written and made into grammars.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

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
    """The text does not continue as the format requires.

    Attributes:
        read: text that was read before, and is in no event.
    """

    def __init__(self, why: str, read: str = "") -> None:
        super().__init__(why)
        self.read = read


class NoCallError(Exception):
    """A text that looked like a call is not a call."""


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
        self.stop = markers_of(self.stops)

    def append(self, text: str) -> None:
        """More of the text.

        Python lengthens a string in place if nothing else refers to it, so that what waits for its end is not copied
        with each token. So the source lets go of it.
        """
        own, self.text = self.text, ""
        own += text
        self.text = own

    def forget(self) -> None:
        """Drop the text that was read; places in the text that callers hold become invalid."""
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
            raise UnreadableError("the text ends inside a call")
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
        """The first of several layouts that matches here; it is then read, except for the whitespace after it."""
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
            room = len(self.text) - at
            if self.ended or not any(len(text) > room and text.startswith(self.text[at:]) for text in texts):
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
            if self.stop.pattern.match(self.text, at):
                return True
            if self.ended or not (at == len(self.text) or self.stop.may_go_on(self.text, at)):
                return at == len(self.text)
            yield None

    def until(self, *texts: str) -> Reading[int]:
        """The place where one of these or a stop begins, or the end of the text; nothing is read."""
        markers = markers_of((*texts, *self.stops))
        scanned = self.at
        while True:
            found = markers.pattern.search(self.text, scanned)
            if found is not None:
                return found.start()
            if self.ended:
                return len(self.text)
            scanned = markers.held(self.text, max(self.at, scanned))
            yield None

    def held(self, texts: Sequence[str]) -> int:
        """The place from which on the text may be the beginning of one of these; its end where none is."""
        return markers_of(tuple(texts)).held(self.text, self.at)


# -- layouts ----------------------------------------------------------------------------------------------------------

Hole = Literal["NAME", "KEY", "INDEX", "ID", "TYPE", "ARGUMENTS", "VALUE"]
_HOLES = re.compile(r"\b(NAME|KEY|INDEX|ID|TYPE|ARGUMENTS|VALUE)\b")
_SPACE = re.compile(r"\s*")
_BETWEEN = re.compile(r"\s+|(?<=\|>)|(?=<\|)")
# With an end: what goes on and on is none of these, and would be read again with each token.
_GAP = re.compile(r"\s{0,1000}")
_FILLS = {
    "NAME": re.compile(r"[\w.-]{0,256}"),
    "KEY": re.compile(r"(?:(?!/)[^\s<>\"|=]{1,256}(?: [^\s<>\"|=]{1,64}){0,16})?"),
    "INDEX": re.compile(r"\d{0,32}"),
    "ID": re.compile(r"[\w.:-]{0,256}"),
    "TYPE": re.compile(r"\w{0,32}"),
}


@dataclass(frozen=True, slots=True)
class Match:
    """A layout that was found: where it ends, and what its holes hold."""

    end: int
    holes: Mapping[str, str]


class Partial:
    """The text ends before the layout does; with more of it, it may be one."""


PARTIAL = Partial()


@dataclass(frozen=True, slots=True)
class Layout:
    """A text with holes.

    Attributes:
        parts: literals and names of holes, in turn.
        steps: the same with words of the literals, between which there may be whitespace.
    """

    parts: tuple[tuple[bool, str], ...]
    steps: tuple[tuple[bool, str], ...]

    def match(self, text: str, at: int) -> Match | Partial | None:
        """The layout at a place of a text; some whitespace around its literals is free."""
        holes: dict[str, str] = {}
        for is_hole, part in self.steps:
            found = (_FILLS[part] if is_hole else _GAP).match(text, at)
            assert found is not None
            at = found.end()
            if is_hole:
                holes[part] = found.group()
                if at == len(text):
                    return PARTIAL
                if not holes[part]:
                    return None
            elif text.startswith(part, at):
                at += len(part)
            else:
                return PARTIAL if len(text) - at < len(part) and part.startswith(text[at:]) else None
        return Match(at, holes)

    def write(self, holes: Mapping[str, str]) -> str:
        """The text with its holes filled."""
        return "".join(holes[part] if is_hole else part for is_hole, part in self.parts)


@lru_cache(maxsize=512)
def layout(text: str) -> Layout:
    """The layout that a text with holes in capitals describes."""
    parts = tuple((i % 2 == 1, part) for i, part in enumerate(_HOLES.split(text)) if part)
    steps = ((is_hole, word) for is_hole, part in parts for word in ([part] if is_hole else words_of(part)))
    return Layout(parts, tuple(steps))


def words_of(text: str) -> list[str]:
    """The words and the special tokens of a text."""
    return list(filter(None, _BETWEEN.split(text)))


def around(text: str, hole: Hole) -> tuple[str, str]:
    """The layouts before and behind a hole."""
    before, found, behind = text.partition(hole)
    if not found:
        raise ValueError(f"no {hole} in {text!r}")
    return before, behind


def skip_space(text: str, at: int) -> int:
    """The place of the next character that is no whitespace."""
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()

"""Layouts: texts with holes, such as `<function=NAME>`, which are matched, written and made into grammars."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

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

r"""PEFT's `alpha_pattern` and `rank_pattern`: regular expressions for the ends of layers' names.

PEFT runs them with `re`, which can take longer than anyone waits. Here a pattern moves a set of places in the name
forward, all of them at the same time, so that no place is visited twice for the same reason. The syntax is names, `.`,
escapes such as `\.` and `\d`, classes, groups, `|`, `*`, `+`, `?`, `{m,n}`, `^` and `$`; anything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

MAX_LENGTH = 4_096
MAX_DEPTH = 20  # of groups within groups
MAX_REPEATS = 1_000
MAX_MOVES = 20_000  # for one name; a pattern of a real adapter takes a few hundred

_TOKEN = re.compile(
    r"(?P<one>\\[dDwWsS]|\\[^a-zA-Z0-9]|\[\^?\]?(?:\\.|[^\]\\\[])*\]|[^\\()\[\]{}|*+?^$])"
    r"|(?P<repeat>(?:[*+?]|\{(?P<least>\d{1,4})(?P<comma>,(?P<most>\d{0,4}))?\})\??)"
    r"|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<or>\|)|(?P<start>\^)|(?P<end>\$)",
    re.DOTALL,
)


class _Name:
    """A name that is matched, and how many moves its match may still take."""

    def __init__(self, text: str) -> None:
        self.text, self.left = text, MAX_MOVES

    def move(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise ValueError("takes too long")


Step = Callable[[_Name, int], int]
"""Moves places forward: bit i of the set stands for the place before the name's character i."""


class Pattern:
    """One pattern.

    Raises:
        ValueError: the syntax is not supported; says what of it.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > MAX_LENGTH:
            raise ValueError(f"has {len(text)} characters, and {MAX_LENGTH} is the most")
        self._tokens = list(_tokens(text))
        self._at = 0
        self._match = self._alternatives(0)
        if self._at < len(self._tokens):
            raise ValueError("has ')' without '('")
        # Without a choice there is nothing to go back to, and `re` is as quick as it is for plain names.
        plain = all(token.lastgroup not in ("or", "repeat") for token in self._tokens)
        self._plain = re.compile(rf"(?:.*\.)?(?:{text})$") if plain else None

    def fits(self, layer: str) -> bool:
        r"""True if PEFT's `re.match(rf"(.*\.)?({pattern})$", layer)` finds something.

        Raises:
            ValueError: the match takes too long.
        """
        if self._plain is not None:
            return self._plain.match(layer) is not None
        starts = 1 | sum(2 << i for i, character in enumerate(layer) if character == ".")
        return bool(self._match(_Name(layer), starts) >> len(layer) & 1)

    def _alternatives(self, depth: int) -> Step:
        if depth > MAX_DEPTH:
            raise ValueError(f"has more than {MAX_DEPTH} groups within each other")
        branches = [self._sequence(depth)]
        while self._at < len(self._tokens) and self._tokens[self._at].lastgroup == "or":
            self._at += 1
            branches.append(self._sequence(depth))

        def match(name: _Name, places: int) -> int:
            found = 0
            for branch in branches:
                found |= branch(name, places)
            return found

        return branches[0] if len(branches) == 1 else match

    def _sequence(self, depth: int) -> Step:
        steps = list[Step]()
        while self._at < len(self._tokens) and self._tokens[self._at].lastgroup not in ("or", "close"):
            steps.append(self._repeated(depth))

        def match(name: _Name, places: int) -> int:
            for step in steps:
                if not places:
                    return 0
                places = step(name, places)
            return places

        return match

    def _repeated(self, depth: int) -> Step:
        token = self._tokens[self._at]
        self._at += 1
        if token.lastgroup == "start":
            return lambda name, places: places & 1
        if token.lastgroup == "end":
            return lambda name, places: places & 1 << len(name.text)
        if token.lastgroup == "repeat":
            raise ValueError(f"has nothing before '{token[0]}'")
        if token.lastgroup == "open":
            step = self._alternatives(depth + 1)
            if self._at == len(self._tokens):
                raise ValueError("has '(' without ')'")
            self._at += 1
        else:
            step = _one(token[0])
        if self._at < len(self._tokens) and self._tokens[self._at].lastgroup == "repeat":
            self._at += 1
            return _repeat(step, *_bounds(self._tokens[self._at - 1]))
        return step


def _tokens(text: str) -> Iterator[re.Match[str]]:
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None or (text.startswith("(?", at) and token[0] == "("):
            raise ValueError(f"has {text[at : at + 3]!r}, which is not supported")
        yield token
        at = token.end()


def _bounds(token: re.Match[str]) -> tuple[int, int | None]:
    if token["least"] is None:
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[token[0][0]]
    least = int(token["least"])
    most = least if token["comma"] is None else int(token["most"]) if token["most"] else None
    if max(least, most or 0) > MAX_REPEATS or (most is not None and most < least):
        raise ValueError(f"has '{token[0]}', whose bounds are out of range")
    return least, most


def _one(text: str) -> Step:
    """One character of a kind; `re` says which they are."""
    if text.startswith("[") and any(operator in text for operator in ("--", "&&", "||", "~~")):
        raise ValueError(f"has {text!r}, which another version of Python may read otherwise")
    try:
        kind = re.compile(text)
    except re.error as error:
        raise ValueError(f"has {text!r}: {error}") from None

    def match(name: _Name, places: int) -> int:
        name.move()
        return (places & sum(1 << i for i, character in enumerate(name.text) if kind.match(character))) << 1

    return match


def _repeat(step: Step, least: int, most: int | None) -> Step:
    def match(name: _Name, places: int) -> int:
        for _ in range(least):
            name.move()
            places = step(name, places)
        found = new = places
        for _ in range(len(name.text) if most is None else most - least):
            name.move()
            new = step(name, new) & ~found
            if not new:
                break
            found |= new
        return found

    return match

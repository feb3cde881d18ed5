"""Collects the rules of a grammar in llguidance's Lark dialect, each body once and under its own name."""

from __future__ import annotations

from collections.abc import Iterable

from .compile import lark
from .vocabulary import Vocabulary, literal


def times(low: int, high: int | None) -> str:
    """Repetition of the preceding element, in Lark's notation."""
    return f"{{{low},{'' if high is None else high}}}"


def other_than(texts: Iterable[str]) -> str:
    """Takes texts out of the terminal before this."""
    return "".join(f" & ~{literal(text)}" for text in texts)


class LarkRules:
    """The rules of one grammar.

    An expression is the content of a rule: names of rules and terminals, literals, special tokens. The body of a
    terminal is a regular expression in Lark's notation; it holds no special tokens.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._bodies: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._embedded: dict[str, str] = {}

    def marker(self, text: str) -> str:
        """An expression of a text that is always the same, special tokens in it included."""
        return self.vocabulary.lark(text)

    def rule(self, body: str) -> str:
        """The name of a rule."""
        return self._name("r", body)

    def terminal(self, body: str) -> str:
        """The name of a terminal."""
        return self._name("T", body)

    def reserve(self) -> str:
        """The name of a rule that is defined later, as recursion needs it."""
        name = f"r{len(self._bodies)}"
        self._bodies[name] = ""
        return name

    def define(self, name: str, body: str) -> None:
        """Give a reserved rule its body."""
        self._bodies[name] = body

    def one_of(self, expressions: list[str]) -> str:
        """An expression for any of several."""
        unique = list(dict.fromkeys(expressions))
        return unique[0] if len(unique) == 1 else self.rule(" | ".join(unique))

    def until(self, text: str, end: str, *, lazy: bool = False) -> str:
        """An expression of a text and the marker that ends it.

        Lexemes are greedy, so the beginning of the marker must not be left for a separate lexeme: it would be taken
        for text.

        Args:
            text: the body of a terminal; unless lazy, it should not match texts that the marker occurs in.
            end: the marker.
            lazy: the text ends where the marker first occurs; other texts may replace it.
        """
        head, *others = self.vocabulary.split(end)
        if isinstance(head, int):
            return f"{self.terminal(text)} {self.marker(end)}"
        if lazy and not others:  # a special token ends a text by itself
            name = f"lazy{len(self._bodies)}"
            self._bodies[f"{name}[lazy]"] = f"{self.terminal(text)} {literal(head)}"
        else:
            name = self.terminal(f"{text} {literal(head)}")
        rest = end[len(head) :]
        return f"{name} {self.marker(rest)}" if rest else name

    def embed(self, definition: str) -> str:
        """An expression of a whole grammar that a caller wrote."""
        name = f"embedded{len(self._embedded)}"
        self._embedded[name] = definition
        return f"@{name}"

    def source(self, start: str) -> str:
        """The source of the grammar whose answer is an expression."""
        text = "\n".join([f"start: {start}", *(f"{name}: {body}" for name, body in self._bodies.items())])
        return lark(text, self._embedded, forced=not self._embedded)

    def _name(self, prefix: str, body: str) -> str:
        if body not in self._names:
            self._names[body] = f"{prefix}{len(self._bodies)}"
            self._bodies[self._names[body]] = body
        return self._names[body]

"""Rules of a grammar in llguidance's Lark dialect, and terminals for strings that are written without quotes.

Tool-call formats that look like XML, and Gemma's, put a string between two markers as it is. JSON Schema's keywords
for strings become regular expressions over that text, joined with `&`, and what would end the string too early is
taken out with `~`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from llguidance import regex_to_lark

from . import GrammarError
from .compile import Vocabulary, check, lark, literal
from .schema import FORMATS, size_at
from .subschemas import Schema


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


ANY = "/(?s:.*)/"


def text(schema: Schema, excluding: Sequence[str] = (), *, lenient: bool = False) -> str:
    """The body of a terminal: texts that satisfy a string schema.

    Args:
        schema: of which `minLength`, `maxLength`, `pattern` and `format` count.
        excluding: further terminal bodies that no text may match.
        lenient: ignore formats that are not known.

    Raises:
        GrammarError: no text satisfies it, or a keyword's value cannot be followed.
    """
    parts = list(_keywords(schema, lenient=lenient))
    body = " & ".join([ANY, *parts, *(f"~{other}" for other in excluding)])
    if parts:
        check(lark(f"start: TEXT\nTEXT: {body}"), f"No text satisfies {shown(schema)}")
    return f"({body})"


def containing(*markers: str) -> str:
    """The body of a terminal: texts in which one of these occurs."""
    return holding(map(re.escape, markers))


def holding(patterns: Iterable[str]) -> str:
    """The body of a terminal: texts in which something matches one of these."""
    return regex(f"(?s:.*)(?:{'|'.join(patterns)})(?s:.*)")


def regex(pattern: str) -> str:
    """The body of a terminal: texts that match a pattern as a whole."""
    return f"/{regex_to_lark(pattern, 'dw')}/"


JSON_BEGUN = regex(r"[ \t\r\n]*[\[{](?s:.*)")
"""The body of a terminal: texts that begin like an object or an array."""


def without(marker: str) -> str:
    """A pattern of JSON Schema that every text matches in which a marker does not occur.

    JSON Schema has no complement, so this is the marker's automaton written out. Its first character must not recur.
    """
    first, rest = re.escape(marker[0]), [re.escape(c) for c in marker[1:]]
    begun = ["".join(rest[:n]) for n in range(len(rest))]
    again = "|".join(f"{prefix}{first}" for prefix in begun)
    left = "|".join(f"{prefix}[^{c}{first}]" for prefix, c in zip(begun, rest, strict=True))
    inside = f"{first}(?:{again})*"
    return f"^(?:[^{first}]|{inside}(?:{left}))*(?:{inside}(?:{'|'.join(begun)}))?$"


def _keywords(schema: Schema, *, lenient: bool) -> Iterator[str]:
    low, high = size_at(schema, "minLength") or 0, size_at(schema, "maxLength")
    if low or high is not None:
        yield f"/(?s:.{times(low, high)})/"
    if (pattern := schema.get("pattern")) is not None:
        yield regex(_as_a_whole(str(pattern)))
    if (name := schema.get("format")) is not None:
        if name in FORMATS:
            yield regex(FORMATS[str(name)])
        elif not lenient:
            raise GrammarError(f"Unknown format: {name}. Formats are {', '.join(FORMATS)}.")


def _as_a_whole(pattern: str) -> str:
    """A pattern that is searched for, as one that is matched as a whole."""
    options = []
    for option in _alternatives(pattern):
        at_start = option.startswith("^")
        at_end = re.search(r"(?<!\\)(?:\\\\)*\$$", option) is not None
        core = option[at_start : len(option) - at_end]
        options.append(("" if at_start else "(?s:.*)") + f"(?:{core})" + ("" if at_end else "(?s:.*)"))
    return "|".join(options)


def _alternatives(pattern: str) -> Iterator[str]:
    """The parts of a pattern between the `|` outside of its groups and classes."""
    start = depth = 0
    in_class = False
    for found in re.finditer(r"\\.|\[\^?\]?|[]()|]", pattern, re.DOTALL):
        token = found.group()
        if in_class:
            in_class = token != "]"
        elif token.startswith("["):
            in_class = True
        elif token in "()":
            depth += 1 if token == "(" else -1
        elif token == "|" and depth == 0:
            yield pattern[start : found.start()]
            start = found.end()
    yield pattern[start:]


def shown(schema: Schema) -> str:
    """Text for errors of what a schema demands of strings."""
    return ", ".join(f"{k} {schema[k]!r}" for k in ("minLength", "maxLength", "pattern", "format") if k in schema)

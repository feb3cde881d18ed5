"""Strings that are written without quotes, as terminals of llguidance's Lark dialect.

Tool-call formats that look like XML, and Gemma's, put a string between two markers as it is. JSON Schema's keywords
for strings become regular expressions over that text, joined with `&`, and what would end the string too early is
taken out with `~`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from llguidance import regex_to_lark

from . import GrammarError
from .compile import check, lark
from .lark_rules import times
from .schema import FORMATS, size_at
from .subschemas import Schema

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

"""Reading arguments that are keywords of a Python call."""

from __future__ import annotations

import ast
import json
import re

from .source import Reading, Source, UnreadableError
from .tagged import pairs

_KEY = re.compile(r"([^\W\d]\w*)\s*=\s*")
_JSON_NAMES = {"true": True, "false": False, "null": None}
_LEADING_ZEROS = re.compile(r"^0+(?=\d)")
MAX_DEPTH = 100  # of brackets in a value


def python_arguments(source: Source) -> Reading[None]:
    """Emit the keywords of a call as one JSON object, up to its bracket.

    Raises:
        UnreadableError: they are no keywords with literals.
    """

    def keyword() -> Reading[tuple[str, object]]:
        key = yield from _key(source)
        text = yield from _value(source)
        return key, _literal(text)

    yield from pairs(source, ")", keyword)


def _key(source: Source) -> Reading[str]:
    while True:
        found = _KEY.match(source.text, source.at)
        if found is not None and found.end() < len(source.text):
            source.at = found.end()
            return found[1]
        if not re.fullmatch(r"([^\W\d]\w*\s*(=\s*)?)?", source.rest):
            raise UnreadableError("no keyword")
        yield from source.more()


def _value(source: Source) -> Reading[str]:
    """The text of a value, up to the comma or bracket behind it."""
    at, depth, quote = source.at, 0, ""
    while True:
        text = source.text
        while at < len(text):
            char = text[at]
            if quote:
                if char == "\\":
                    at += 2
                elif not text.startswith(quote, at):
                    if len(quote) == 3 and char == quote[0] and len(text) - at < 3 and not source.ended:
                        break
                    at += 1
                elif (closes := _closes(source, at + len(quote))) is None:
                    break
                else:
                    at += len(quote) if closes else 1
                    quote = "" if closes else quote
                continue
            if char in "'\"":
                if len(text) - at < 3 and not source.ended:
                    break
                quote = char * 3 if text.startswith(char * 3, at) else char
                at += len(quote)
                continue
            if depth == 0 and char in ",)":
                return source.take(at)
            depth += (char in "([{") - (char in ")]}")
            if not 0 <= depth <= MAX_DEPTH:
                raise UnreadableError("brackets that do not match")
            at += 1
        yield from source.more()


def _closes(source: Source, at: int) -> bool | None:
    """A quote in front of this place ends its string: models write quotes in quotes. None: not known yet."""
    rest = source.text[at:].lstrip()
    if not rest:
        return True if source.ended else None
    return rest[0] in ",)]}:'\""


def _literal(text: str) -> object:
    """The value of a Python literal, in which JSON's names may stand.

    Raises:
        UnreadableError: it is none.
    """
    text = _LEADING_ZEROS.sub("", text.strip()) if text.strip().isdigit() else text.strip()
    try:
        tree = ast.parse(text, mode="eval")
        value: object = json.loads(json.dumps(ast.literal_eval(_AsJson().visit(tree))))
        return value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":  # with quotes of its own kind in it
        return text[1:-1]
    raise UnreadableError("no literal")


class _AsJson(ast.NodeTransformer):
    """Puts values for JSON's names, and lists for sets, which have no order of their own."""

    def visit_Set(self, node: ast.Set) -> ast.AST:
        return self.generic_visit(ast.List(node.elts, ast.Load()))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(_JSON_NAMES[node.id]) if node.id in _JSON_NAMES else node

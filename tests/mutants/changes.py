"""Small changes of a module's code that its tests should notice."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Swaps that only negate a condition are left out: any test notices them.
SWAPPED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
RELEASES = {"cancel", "close", "aclose", "release", "free", "clear", "stop", "unlink", "discard", "shutdown", "set"}
"""Methods that give something back: a mutant without such a call leaks."""
LOGS = re.compile(r"\b(log|logger|_log|warnings|warn|print)\b")
UNCHANGED = (
    ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef  # a function inside another is visited by itself
    | ast.Raise | ast.Import | ast.ImportFrom | ast.Assert
)  # fmt: skip
Located = ast.expr | ast.stmt


@dataclass(frozen=True)
class Change:
    """A text that replaces a node's text."""

    kind: str
    node: Located
    text: str


class Source:
    """A module's text, and its syntax tree."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self._bytes = self.text.encode()
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: Located) -> tuple[int, int]:
        """Where a node begins and ends, in bytes."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def between(self, start: int, end: int) -> str:
        return self._bytes[start:end].decode()

    def of(self, node: Located) -> str:
        return self.between(*self.span(node))

    def changed(self, change: Change) -> str:
        """The module's text with this change."""
        start, end = self.span(change.node)
        return self.between(0, start) + change.text + self.between(end, len(self._bytes))

    def swapped(self, node: Located, one: ast.expr, two: ast.expr, operator: tuple[str, str]) -> str:
        """A node's text with another operator between these two operands."""
        (start, end), (_, before), (behind, _) = self.span(node), self.span(one), self.span(two)
        old, new = operator
        pattern = rf"(?<![<>=!*/]){re.escape(old)}(?![<>=*/])"
        between = re.sub(pattern, new, self.between(before, behind), count=1)
        return self.between(start, before) + between + self.between(behind, end)


def changes(source: Source) -> Iterator[Change]:
    """Every change in the body of a function. Docstrings, logs, exceptions, and annotations stay as they are."""
    for function in ast.walk(source.tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                yield from _below(source, statement)


def _below(source: Source, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, UNCHANGED) or _is_words(source, node):
        return
    if isinstance(node, ast.stmt):
        yield from _of_statement(source, node)
    elif isinstance(node, ast.expr):
        yield from _of_expression(source, node)
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "type_comment"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and getattr(child, "arg", None) != "strict":  # zip's: equivalent
                    yield from _below(source, child)


def _is_words(source: Source, node: ast.AST) -> bool:
    """A docstring or a log line."""
    return isinstance(node, ast.Expr) and (
        isinstance(node.value, ast.Constant) or LOGS.search(source.of(node)[:40]) is not None
    )


def _of_statement(source: Source, node: ast.stmt) -> Iterator[Change]:
    match node:
        case ast.Expr() | ast.AugAssign():
            yield Change("drop release" if _releases(node) else "drop statement", node, "pass")
        case ast.Assign(targets=[target, *_]) if not isinstance(target, ast.Name):
            yield Change("drop statement", node, "pass")
        case ast.Return(value=ast.expr()) if source.of(node) not in ("return None", "return False"):
            yield Change("return None", node, "return None")
        case ast.Continue():
            yield Change("continue", node, "break")


def _releases(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    call = call.value if isinstance(call, ast.Await) else call
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in RELEASES


def _of_expression(source: Source, node: ast.expr) -> Iterator[Change]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in SWAPPED:
            yield Change("compare", node, source.swapped(node, left, right, SWAPPED[type(op)]))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPPED and not (_text(left) or _text(right)):
            yield Change("arithmetic", node, source.swapped(node, left, right, SWAPPED[type(op)]))
        case ast.BoolOp(op=op, values=[one, two, *_]):
            yield Change("and/or", node, source.swapped(node, one, two, SWAPPED[type(op)]))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield Change("not", node, f"({source.of(operand)})")
        case ast.Constant(value=bool() as value):
            yield Change("True/False", node, str(not value))
        case ast.Constant(value=int() as value):
            yield Change("constant", node, str(value + 1))
        case ast.Call(func=ast.Attribute(attr="get" | "pop" | "setdefault"), args=[_, default]):
            yield Change("default", default, "None" if source.of(default) != "None" else "0")
        case ast.Call(args=[first, second, *_]) if _exchangeable(source, node, first, second):
            yield Change("arguments", node, _exchanged(source, node, first, second))


def _text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _exchangeable(source: Source, call: ast.Call, first: ast.expr, second: ast.expr) -> bool:
    """Whether two arguments are of one kind. Others would only be a TypeError, whatever the tests say."""
    return (
        type(first) is type(second)
        and not isinstance(first, ast.Starred)
        and source.of(call.func) not in ("isinstance", "issubclass")
        and source.of(first) != source.of(second)
    )


def _exchanged(source: Source, call: ast.Call, first: ast.expr, second: ast.expr) -> str:
    (start, end), (before, _), (_, behind) = source.span(call), source.span(first), source.span(second)
    return f"{source.between(start, before)}{source.of(second)}, {source.of(first)}{source.between(behind, end)}"

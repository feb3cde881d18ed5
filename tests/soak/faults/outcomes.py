"""Ends of requests that may have met a fault."""

from __future__ import annotations

from typing import Any

from tests.soak.faults.load import Load
from tests.soak.faults.table import Gets


def attempt(load: Load, kind: str, caller: str, timeout: float | None = None) -> Any:
    """The answer to a request, or what it raised."""
    try:
        return load.play(kind, caller, timeout)
    except Exception as error:
        return error


def gets(load: Load, kind: str, outcome: Any) -> Gets:
    """Kind of what a caller got."""
    if isinstance(outcome, Exception):
        return type(outcome)
    if load.is_right(kind, outcome):
        return "right"
    if outcome[0] == "failed":
        return "failed"
    assert outcome[0] == "completed" and outcome.count(500), outcome
    assert {a for a, b in zip(outcome, load.expected[kind], strict=True) if a != b} == {500}
    return "line"


def said(error: BaseException | None) -> str:
    """Messages of an error and of its causes."""
    return "" if error is None else f"{error!r} {error} {said(error.__cause__)}"

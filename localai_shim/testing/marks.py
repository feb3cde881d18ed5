"""Answers that are refusals, or were cut by a content filter: what is different in the endpoints' chunks and events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ..endpoints.responses.assembler import ResponseAssembler
from ..endpoints.turn import AnyAssembler
from .answers import Mark

T = TypeVar("T")


def apply_marks(assembler: AnyAssembler, marks: Mapping[int, Mark]) -> None:
    """Have an answer's choices with these indexes come out as refusals, or as cut by a content filter."""
    if isinstance(assembler, ResponseAssembler) and marks.get(0) == "refusal":
        assembler.refuses = True
        return
    reasons = assembler.finish_reasons

    def marked_reasons() -> tuple[str, ...]:
        is_cut = [marks.get(i) == "content_filter" and reason == "length" for i, reason in enumerate(reasons())]
        return tuple("content_filter" if cut else reason for cut, reason in zip(is_cut, reasons(), strict=True))

    assembler.__dict__["finish_reasons"] = marked_reasons
    change_answers(assembler, lambda answer: _mark(answer, marks))


def change_answers(assembler: AnyAssembler, change: Callable[[object], None]) -> None:
    """Have a function change an answer's events and the whole answer, from which what is stored is made, too."""
    begin, feed, result, next_round = assembler.begin, assembler.feed, assembler.result, assembler.next_round

    def changed(events: Sequence[T]) -> Sequence[T]:
        for event in events:
            change(event)
        return events

    assembler.__dict__.update(
        begin=lambda: changed(begin()),
        feed=lambda index, token: changed(feed(index, token)),
        result=lambda: changed([result()])[0],
        next_round=lambda: (made := next_round())._replace(events=changed(made.events)),
    )


def _mark(answer: object, marks: Mapping[int, Mark]) -> None:
    """A chunk or a whole completion; or a response that is incomplete, as it has a content filter."""
    if (details := getattr(answer, "incomplete_details", None)) is not None:
        details.reason = "content_filter"
    for choice in getattr(answer, "choices", ()):
        mark, part = marks.get(choice.index), getattr(choice, "message", None) or getattr(choice, "delta", None)
        if mark == "refusal" and part is not None and part.content is not None:
            part.refusal, part.content = part.content or None, None
        elif mark == "content_filter" and choice.finish_reason == "length":
            choice.finish_reason = "content_filter"

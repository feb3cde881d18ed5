"""Running one reader on a text, whole and by characters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from localai_shim.formats.source import Event, Reading, Source


def run(
    reader: Callable[[Source], Reading[Any]], text: str, *, stops: Sequence[str] = (), cut: bool = False
) -> tuple[list[Event], Any, str]:
    """What a reader emits, what it returns, and what it leaves; the same in any pieces.

    Raises:
        UnreadableError: as the reader does.
    """
    first: tuple[list[Event], Any, str] | None = None
    for pieces in ([text], list(text)):
        source = Source(stops)
        steps, events, waiting = reader(source), [], list(reversed(pieces))
        result = None
        source.text += waiting.pop() if waiting else ""
        while True:
            try:
                event = next(steps)
            except StopIteration as stop:
                result = stop.value
                break
            if event is not None:
                events.append(event)
            elif waiting:
                source.text += waiting.pop()
            else:
                source.ended, source.cut = True, cut
        found = (joined(events), result, source.text[source.at :] + "".join(reversed(waiting)))
        assert first is None or found == first
        first = found
    assert first is not None
    return first


def joined(events: Sequence[Event]) -> list[Event]:
    """The events, arguments that follow each other as one."""
    out: list[Event] = []
    for event in events:
        if out and out[-1].kind == event.kind == "arguments":
            out[-1] = Event("arguments", out[-1].text + event.text)
        else:
            out.append(event)
    return out


def arguments(events: Sequence[Event]) -> str:
    """All arguments' text."""
    return "".join(event.text for event in events if event.kind == "arguments")

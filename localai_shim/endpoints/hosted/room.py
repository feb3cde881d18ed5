"""Room that results of hooks leave in the context."""

from __future__ import annotations

import json
from collections.abc import Iterable

ANSWER_SHARE = 16
"""Part of the context that is left for the answer: a sixteenth."""
TAGS_BYTES = 1024
"""More than templates write around a result."""


def answer_room(context_length: int, most: int | None) -> int:
    """Number of tokens that results leave for the answer.

    Args:
        most: maximum number of output tokens; None: any number.
    """
    room = max(1, context_length // ANSWER_SHARE)
    return room if most is None else max(1, min(room, most))


def are_short(texts: Iterable[str], before: int, context_length: int | None) -> bool:
    """True if the context surely has room for these results: no token is shorter than a byte of its longest spelling.

    Args:
        before: tokens of the context so far.
    """
    if context_length is None:
        return True
    room = context_length - context_length // ANSWER_SHARE - before
    return sum(len(json.dumps(text)) + TAGS_BYTES for text in texts) < room

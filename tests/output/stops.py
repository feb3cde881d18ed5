"""What stop strings mean."""

from __future__ import annotations

from collections.abc import Sequence


def cut_at_first_stop(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The plain definition: read on until the text ends with a stop string, and take that away."""
    for end in range(1, len(text) + 1):
        said = [stop for stop in stops if text[:end].endswith(stop)]
        if said:
            return text[: end - max(map(len, said))], True
    return text, False

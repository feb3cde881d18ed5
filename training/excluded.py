"""Prompts that training must not contain: those of the test set of first tries, by their hashes.

``excluded.txt`` has a line for each; ``python -m tests.builtin.tries exclude`` writes it anew.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("excluded.txt")
FEWEST_WORDS: Final = 7
"""Of a last message that no dialogue may have at all; a shorter one ("What is my name?") only not as the whole prompt."""


def _key(text: str) -> str:
    """A hash that case and marks do not change."""
    words = re.findall(r"\w+", text.lower())
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:16]


def keys(messages: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Hashes of the whole prompt, and of its last user message if that is not short."""
    last = next((one["content"] for one in reversed(messages) if one["role"] == "user"), "")
    whole = _key("\n".join(one["content"] for one in messages))
    return (whole, _key(last)) if len(last.split()) >= FEWEST_WORDS else (whole,)


@cache
def excluded() -> frozenset[str]:
    """The hashes."""
    return frozenset(FILE.read_text(encoding="utf-8").split())


def is_excluded(messages: Sequence[Mapping[str, str]]) -> bool:
    """Tell if training must not contain these messages."""
    return not excluded().isdisjoint(keys(messages))

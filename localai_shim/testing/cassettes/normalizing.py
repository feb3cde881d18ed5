"""Normalising of what differs from run to run in requests: dates, ids, paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ...types import Json, map_texts

Normalize = Callable[[str], str] | Mapping[str, str]
"""A function of a text, or regular expressions and their replacements."""

_UNTOUCHED = frozenset({"model", "file"})
"""Names, many of which end in a date; and the hash of a file."""


def normalizer(*rules: Normalize | None) -> Callable[[Json], Json]:
    """A function that applies rules, one after the other, to all texts of a request but the model's name and its file.

    Raises:
        TypeError: a rule is neither a function nor a mapping.
        re.error: a pattern is no regular expression.
    """
    steps = [_function(rule) for rule in rules if rule is not None]

    def apply(text: str) -> str:
        for step in steps:
            text = step(text)
            if not isinstance(text, str):
                raise TypeError(f"it returned {text!r}, and not a text")
        return text

    def request(body: Json) -> Json:
        return {name: value if name in _UNTOUCHED else map_texts(value, apply) for name, value in body.items()}

    return request if steps else lambda body: body


def _function(rule: Normalize) -> Callable[[str], str]:
    if callable(rule):
        return rule
    if not isinstance(rule, Mapping):
        raise TypeError(f"`normalize` must be a function of a text or a dict of patterns, not {rule!r}")
    patterns = [(re.compile(pattern), text) for pattern, text in rule.items()]

    def replace(text: str) -> str:
        for pattern, new in patterns:
            text = pattern.sub(new, text)
        return text

    return replace

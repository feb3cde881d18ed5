"""Tokens of a text that follows another one."""

from __future__ import annotations

from collections.abc import Callable

_BEFORE = ("\x02", "\N{WHITE SMILING FACE}")  # hardly any token joins these to what stands behind them


def encode_within(encode: Callable[[str], list[int]], text: str) -> list[int]:
    """The tokens of a text without the space that tokenizers of sentencepiece put before one.

    Args:
        encode: text to ids, no special token put around it.
    """
    for before in _BEFORE:
        known, ids = encode(before), encode(before + text)
        if ids[: len(known)] == known:
            return ids[len(known) :]
    return encode(text)

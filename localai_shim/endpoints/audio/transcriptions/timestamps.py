"""Rules of timestamps in the output of a Whisper model, as a constraint of its row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....speech import Transcribing

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_FIRST_SECONDS = 1.0
"""The first timestamp of a window is at most this: OpenAI's `max_initial_timestamp`."""


class TimestampRules:
    """Sets of tokens of one model, as packed bits. The rows of a request share them.

    Args:
        settings: of the model.
    """

    def __init__(self, settings: Transcribing) -> None:
        first, end = settings.first_timestamp, settings.end
        never = {*settings.suppressed, settings.no_timestamps}
        self.first, self.last = first, settings.last_timestamp
        self.latest_first = first + round(MAX_FIRST_SECONDS / settings.timestamp_seconds)
        self.text = _packed(0, first, never)
        """All but timestamps."""
        self.special = _packed(end, first, never)
        """The end, and tokens between it and the timestamps."""


class TimestampConstraint:
    """One row's `GrammarConstraint`: timestamps come in pairs around text, ascend, and are the first token.

    These are OpenAI's rules except one, which `SamplingParams.group_from` is for: a timestamp is sampled if all of them
    together are likelier than any other token.
    """

    idle = False
    escape = None

    def __init__(self, rules: TimestampRules) -> None:
        self._rules = rules
        self._count = 0
        self._latest: int | None = None  # timestamp
        self._stamps = (True, True)  # the token before the last one is a timestamp, and the last one

    def mask(self, out: NDArray[np.int32]) -> bool:
        rules = self._rules
        before, last = self._stamps
        if not self._count:
            _allow(out, rules.first, min(rules.latest_first, rules.last))
        elif last and before:  # text, or the end, follows the timestamp that opens a segment
            out[: len(rules.text)] |= rules.text
        else:  # one that closes a segment is followed by one that opens the next, or by the end
            words = rules.special if last else rules.text
            out[: len(words)] |= words
            after = rules.first if self._latest is None else self._latest + (not last)
            _allow(out, after, rules.last)
        return True

    def accept(self, token_id: int) -> bool:
        is_stamp = token_id >= self._rules.first
        self._stamps = (self._count == 0 or self._stamps[1], is_stamp)
        self._count += 1
        if is_stamp:
            self._latest = token_id
        return False

    def forced(self) -> Sequence[int]:
        return ()


def _packed(low: int, high: int, never: Iterable[int]) -> NDArray[np.int32]:
    """Words whose bits are set for the token ids from `low` to `high`, that one excluded, but not for `never`."""
    bits = np.zeros(-(-high // 32) * 32, np.uint8)
    bits[low:high] = 1
    bits[[token for token in never if token < high]] = 0
    return np.packbits(bits, bitorder="little").view(np.int32)


def _allow(out: NDArray[np.int32], low: int, high: int) -> None:
    """Set the bits of all ids from `low` to `high`."""
    if low > high:
        return
    words = out.view(np.uint32)
    first, last = low // 32, high // 32
    head, tail = np.uint32(0xFFFFFFFF << (low % 32) & 0xFFFFFFFF), np.uint32(0xFFFFFFFF >> (31 - high % 32))
    if first == last:
        words[first] |= head & tail
        return
    words[first] |= head
    words[first + 1 : last] = 0xFFFFFFFF
    words[last] |= tail

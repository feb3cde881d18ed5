"""Maximum number of prompt tokens in a pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt

from .pace import CHUNK_STEP_TOKENS

MIN_LIMIT_TOKENS = CHUNK_STEP_TOKENS  # that a pass may have however long the context is
# Next to running rows, also on slow machines. On a CPU, 64 tokens took 4.3 steps of 173 ms, and 16 took 1.7.
MIN_CHUNK_TOKENS, MIN_GPU_CHUNK_TOKENS = 16, 64
WATCHED_SCORES = 2**30  # of one layer: 2,048 queries of 32 heads at 15,000 tokens take an M1 about half a second


@dataclass(frozen=True, slots=True)
class Scores:
    """Bound of the scores `[heads, queries, keys]` that a pass has in an attention layer.

    Attributes:
        most: their number, or their bytes: a function, as memory changes.
        each: what one query and one key add, in all heads.
        window: keys that a layer looks back; None: all.
    """

    most: Callable[[], float]
    each: int
    window: int | None = None

    def queries(self, start: int, share: float) -> int:
        """Maximum number of queries after `start` keys. Each query adds a key."""
        before = start if self.window is None else min(start, self.window)
        return (isqrt(before * before + 4 * int(share * self.most() / self.each)) - before) // 2


class ChunkLimit:
    """Maximum number of prompt tokens in a pass of a model, as long as it stays loaded.

    Fewer tokens fit at long contexts, since each has a score with every earlier one: a system that watches its GPU ends
    what runs too long (macOS), and attention that no kernel fuses holds the scores of a layer in memory.

    Args:
        most: tokens of any pass.
        least: minimum number of tokens in a pass next to running rows, unless the maximum is lower.
        scores: what bounds passes at long contexts.

    Attributes:
        share: of what a pass may have otherwise; below 1 after a GPU stopped passes that took too long.
    """

    def __init__(self, most: int, least: int = MIN_CHUNK_TOKENS, scores: Sequence[Scores] = ()) -> None:
        self.least, self.share = least, 1.0
        self._most, self._scores = most, scores

    def tokens(self, start: int = 0) -> int:
        """Maximum number of tokens in the next pass of a prompt after its first `start` tokens."""
        return self.bound(self._most, start)

    def bound(self, most: int, start: int) -> int:
        """Lower a number of tokens to what may run in one pass behind `start` others."""
        tokens = min([int(most * self.share), *(scores.queries(start, self.share) for scores in self._scores)])
        if tokens < most:
            tokens = max(MIN_LIMIT_TOKENS, tokens // CHUNK_STEP_TOKENS * CHUNK_STEP_TOKENS)
        return min(most, tokens)

    def halve(self) -> bool:
        """Halve all later passes, also those of texts. False if they cannot be smaller."""
        if self.tokens() <= MIN_LIMIT_TOKENS:
            return False
        self.share /= 2
        return True

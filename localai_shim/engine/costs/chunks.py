"""Sizes of chunks of prompts: how many tokens fit into a given time, and the maximum number in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt

FIRST_CHUNK_TOKENS = 64  # that are taken to fit into a stall before anything was measured
EARLY_TOKENS = 256  # of a prompt, up to which attention to earlier ones costs little
PACE_DECAY = 0.9  # weight of a pass, relative to the one after it
MIN_SIZE_SPREAD = 0.2  # of the mean size; passes of more similar sizes do not tell what one without tokens would take
MAX_DELAY_FACTOR = 3  # a pass that took more than so many times what was expected counts as if it had taken that
CHUNK_STEP_TOKENS = 32  # chunks are multiples: GPUs load kernels and lay out buffers for each size anew
PASS_FACTOR, MAX_PASS_STALLS = 3, 2  # a pass may take so many times a pass without tokens, within so many stalls
STALL_STEPS = 2.5  # decode steps that a pass may always take: a shorter one would mostly read the weights once more


class Pace:
    """A model of a pass's time: a fixed part, and a part per token, which grows with the length of the prompt.

    Both are a line fitted to the latest passes; the time per token also follows the last ones directly.

    Args:
        stall: seconds that a pass should take while rows run.
        step: seconds of a decode step as measured, 0 before; if steps are long, so is the stall.
    """

    def __init__(self, stall: float, step: Callable[[], float] = lambda: 0.0) -> None:
        self._stall, self._step = stall, step
        self._fixed = 0.0
        self._measured_per_token = 0.0
        self._sums = [0.0] * 5  # of the passes' weights, tokens, seconds, and products of these

    def note(self, tokens: int, seconds: float, end: int) -> None:
        """Note the tokens and seconds of a pass, after which its prompt has run up to `end`."""
        if self._sums[0]:
            seconds = min(seconds, MAX_DELAY_FACTOR * (self._fixed + tokens * self._per_token))
        if end <= max(EARLY_TOKENS, tokens):
            self._fit(tokens, seconds)
        now = max(seconds - self._fixed, 0.2 * seconds) / tokens
        self._measured_per_token = 0.3 * self._per_token + 0.7 * now

    def _fit(self, tokens: int, seconds: float) -> None:
        new = (1.0, tokens, seconds, tokens * tokens, tokens * seconds)
        self._sums = [PACE_DECAY * a + b for a, b in zip(self._sums, new, strict=True)]
        weight, x, y, xx, xy = self._sums
        x, y = x / weight, y / weight
        variance = xx / weight - x * x
        if variance > (MIN_SIZE_SPREAD * x) ** 2:
            slope = (xy / weight - x * y) / variance
            self._fixed = y - x * min(max(slope, y / x / 8), y / x)

    @property
    def _per_token(self) -> float:
        return self._measured_per_token or self.stall / FIRST_CHUNK_TOKENS

    @property
    def stall(self) -> float:
        """Seconds for which running rows may wait."""
        return max(self._stall, STALL_STEPS * self._step())

    def chunk(self, left: float | None = None) -> int:
        """Tokens for what is left of a stall, in seconds, or for all of it.

        Where the fixed part is long, a pass may take longer than the stall: a smaller one would hardly be shorter.
        """
        stall = self.stall
        longest = max(stall, min(PASS_FACTOR * self._fixed, MAX_PASS_STALLS * self._stall))
        seconds = longest if left is None else longest * min(1.0, left / stall)
        tokens = max(0, round((seconds - self._fixed) / self._per_token))
        return tokens // CHUNK_STEP_TOKENS * CHUNK_STEP_TOKENS or tokens

    @property
    def pass_tokens(self) -> int:
        """Tokens that take as long as a pass takes in itself, whatever it holds."""
        return int(self._fixed / self._per_token)

    def is_enough(self, left: float) -> bool:
        """True if what is left of a stall, in seconds, is worth another pass."""
        return left > max(self.stall / 4, 2 * self._fixed)


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

"""How long prefill takes on this machine, and so how many tokens fit into a time."""

from __future__ import annotations

_FIRST = 64  # tokens that are taken to fit into a stall before anything is known
_EARLY = 256  # tokens of a prompt up to which what attention to earlier ones costs does not count for much
_MEMORY = 0.9  # what a pass counts for, as a share of the one after it
_SPREAD = 0.2  # of their mean; passes whose sizes differ by less do not say what a pass without tokens takes
_DELAYED = 3  # times what was foreseen; a pass that took longer counts as if it had taken so long
_ROUND = 32  # chunks are multiples of so many tokens: GPUs load kernels and lay out buffers for each size anew
_SHARE, _MOST = 3, 2  # a pass may take so many times what it takes without tokens, but no more than so many stalls


class Pace:
    """A pass takes a time of its own and one for each token, the more the longer its prompt has become.

    Both are a line fitted to the latest passes; the time per token follows the last ones.

    Args:
        stall: seconds that a pass should take beside running rows.
    """

    def __init__(self, stall: float) -> None:
        self._stall = stall
        self._fixed = 0.0
        self._per_token = stall / _FIRST
        self._sums = [0.0] * 5  # of the passes' weights, tokens, seconds, and products of these

    def note(self, tokens: int, seconds: float, end: int) -> None:
        """A pass of so many tokens, which took so long, brought a prompt to this length."""
        if self._sums[0]:
            seconds = min(seconds, _DELAYED * (self._fixed + tokens * self._per_token))
        if end <= max(_EARLY, tokens):
            self._fit(tokens, seconds)
        now = max(seconds - self._fixed, 0.2 * seconds) / tokens
        self._per_token = 0.3 * self._per_token + 0.7 * now

    def _fit(self, tokens: int, seconds: float) -> None:
        new = (1.0, tokens, seconds, tokens * tokens, tokens * seconds)
        self._sums = [_MEMORY * a + b for a, b in zip(self._sums, new, strict=True)]
        weight, x, y, xx, xy = self._sums
        x, y = x / weight, y / weight
        variance = xx / weight - x * x
        if variance > (_SPREAD * x) ** 2:
            slope = (xy / weight - x * y) / variance
            self._fixed = y - x * min(max(slope, y / x / 8), y / x)

    def chunk(self, left: float) -> int:
        """Tokens for what is left of a stall, in seconds.

        Where a pass without tokens takes long, one with tokens may take longer than the stall: small ones would hardly
        be shorter.
        """
        whole = max(self._stall, min(_SHARE * self._fixed, _MOST * self._stall)) * min(1.0, left / self._stall)
        tokens = max(0, round((whole - self._fixed) / self._per_token))
        return tokens // _ROUND * _ROUND or tokens

    def is_enough(self, left: float) -> bool:
        """Whether what is left of a stall is worth another pass."""
        return left > max(self._stall / 4, 2 * self._fixed)

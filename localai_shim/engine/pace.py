"""How long prefill takes on this machine, and so how many tokens fit into a time."""

from __future__ import annotations

_FIRST = 64  # tokens that are taken to fit into a stall before anything is known
_EARLY = 1024  # tokens of a prompt up to which what attention costs does not count for much
_SHARE = 3  # passes take at least so many times what they take without tokens


class Pace:
    """A pass takes a time of its own and one for each token, the more the longer its prompt has become.

    Args:
        stall: seconds that a pass should take beside running rows.
    """

    def __init__(self, stall: float) -> None:
        self._stall = stall
        self._fixed = 0.0
        self._per_token = stall / _FIRST
        self._least_per_token = float("inf")

    def note(self, tokens: int, seconds: float, end: int) -> None:
        """A pass of so many tokens, which took so long, brought a prompt to this length."""
        if end <= _EARLY:
            self._least_per_token = min(self._least_per_token, seconds / tokens)
            beyond = seconds - self._least_per_token * tokens - self._fixed
            # A pass that something else delayed says too much, one that was fast never too little.
            self._fixed = max(0.0, self._fixed + (beyond if beyond < 0 else 0.2 * beyond))
        now = max(seconds - self._fixed, 0.2 * seconds) / tokens
        self._per_token = max(min(self._least_per_token, now), 0.3 * self._per_token + 0.7 * now)

    def chunk(self, left: float) -> int:
        """Tokens for what is left of a stall, in seconds.

        Where a pass without tokens takes long, one with tokens may take longer than the stall: small ones would hardly
        be shorter.
        """
        whole = max(self._stall, _SHARE * self._fixed) * min(1.0, left / self._stall)
        return int((whole - self._fixed) / self._per_token)

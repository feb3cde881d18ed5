"""Maximum number of prompt tokens in a pass."""

from __future__ import annotations

MIN_LIMIT_TOKENS = 32  # that a pass may have after any number of time-outs


class ChunkLimit:
    """Maximum number of prompt tokens in a pass of a model, as long as it stays loaded.

    Args:
        most: tokens of any pass.

    Attributes:
        share: of what a pass may hold otherwise; below 1 after a GPU stopped passes that took too long.
    """

    def __init__(self, most: int) -> None:
        self.most, self.share = most, 1.0

    def tokens(self) -> int:
        """Maximum number of tokens in the next pass of a prompt."""
        return max(min(self.most, MIN_LIMIT_TOKENS), int(self.most * self.share))

    def halve(self) -> bool:
        """Halve all later passes, also those of texts. False if they cannot be smaller."""
        if self.tokens() <= MIN_LIMIT_TOKENS:
            return False
        self.share /= 2
        return True

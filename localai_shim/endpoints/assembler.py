"""What every endpoint's assembler has in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Assembler:
    """Makes an answer of tokens: `feed` for streams, `collect` and `result` for whole ones.

    Attributes:
        keep: stores the finished answer; may block. None: it is not to be kept.
    """

    keep: Callable[[Any], None] | None = None

    @property
    def keeps(self) -> bool:
        """`save` has something to do."""
        return self.keep is not None

    def begin(self) -> Sequence[Any]:
        """A stream's events before the first token."""
        return ()

    def fail(self, error: Exception) -> Sequence[Any] | None:
        """End a stream with an error; its last events, or None where the consumer gets an exception."""
        return None

    def result(self) -> Any:
        """The whole answer, once all of it is there."""
        raise NotImplementedError

    def save(self) -> None:
        """Keep the answer, if it is to be kept."""
        if self.keep is not None:
            self.keep(self.result())

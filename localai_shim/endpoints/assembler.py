"""Parts that every endpoint's assembler has in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from openai import BaseModel

from ..types import Token, Work

Answer = TypeVar("Answer", bound=BaseModel | str, covariant=True)


class Round(NamedTuple):
    """Continuation of a turn behind a round, see `Assembler.next_round`."""

    events: Sequence[BaseModel] = ()
    """Events of a stream that were made since the round ended."""
    works: Sequence[Work] = ()
    """Works of the next round; empty: the answer has ended, or `next_round` is called again for more events."""
    ends: bool = False
    """The answer has ended: it has `finished` when its reader takes the events."""


class Assembler(Generic[Answer]):
    """Makes an answer of tokens: `begin`, `feed` and `fail` for streams, `collect` and `result` for whole ones.

    Args:
        keep: stores the finished answer; may block. None: it is not to be stored.

    Attributes:
        finished: the answer has ended, and no token is taken any more.
        decoded: what the SDK would decode of the answer is made as it would be then.
        media_type: type of the bytes that the answer is, and whose pieces are the events; None: it is an object.
    """

    finished = False
    decoded = False
    media_type: str | None = None

    def __init__(self, keep: Callable[[Answer], None] | None = None) -> None:
        self._keep = keep

    @property
    def keeps(self) -> bool:
        """`save` does something."""
        return self._keep is not None

    def begin(self) -> Sequence[BaseModel]:
        """A stream's events before the first token."""
        return ()

    def feed(self, index: int, token: Token) -> Sequence[BaseModel]:
        """Take the next token of a choice; returns a stream's events that it makes."""
        raise NotImplementedError

    def collect(self, index: int, token: Token) -> None:
        """Take the next token of a choice, when the answer is wanted whole."""
        raise NotImplementedError

    def next_round(self) -> Round:
        """Go on when all works of a round have ended and the answer has not `finished`.

        Runs on a thread that may wait. What it raises fails the answer. It must not set `finished`: the reader, on
        another thread, would miss the events. `Round.ends` says so.
        """
        raise RuntimeError("all rows of this request have ended, and its answer has not")

    def fail(self, error: Exception) -> Sequence[BaseModel] | None:
        """End a stream with an error; its last events, or None where the consumer gets an exception."""
        return None

    def finish_reasons(self) -> tuple[str, ...]:
        """Endings of the answer's choices, in the words of chat.completions; empty before it has ended."""
        return ()

    @property
    def reasoning_tokens(self) -> int:
        """Output tokens so far that are no part of the content."""
        return 0

    def result(self) -> Answer:
        """The whole answer, once `finished`."""
        raise NotImplementedError

    def save(self) -> None:
        """Store the answer, if it is to be stored."""
        if self._keep is not None:
            self._keep(self.result())

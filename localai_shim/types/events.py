"""Events of work, and the sinks that get them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

FinishReason = Literal["stop", "length"]


class Token(NamedTuple):
    """One generated token of one row."""

    id: int
    logprob: float | None = None
    """Natural logarithm, of the model's own distribution: before temperature, bias and penalties."""
    top: Sequence[tuple[int, float]] = ()
    """The likeliest (token id, logprob), best first."""
    finish_reason: FinishReason | None = None
    """Set on a row's last token."""
    is_eos: bool = False
    """The token marks the end of a sequence and is not part of the text, also if the row continues."""


class Failure(NamedTuple):
    """A row's last event when it could not be finished."""

    error: Exception


Event = Token | Failure


class Waker(Protocol):
    """Wakes the consumers on one event loop; called once per engine step however many streams they have."""

    def wake(self) -> None:
        """Raises RuntimeError when the event loop has ended."""


class Sink(Protocol):
    """Receiver of the events of the requests that were submitted together."""

    @property
    def waker(self) -> Waker | None: ...

    def put(self, index: int, event: Event) -> None:
        """Take an event of the request with this index. Runs on the engine thread and must not block."""


class Recipient(Protocol):
    """A row, as far as its events' way to the consumer goes."""

    @property
    def sink(self) -> Sink: ...

    @property
    def index(self) -> int:
        """The request's place in its submission."""

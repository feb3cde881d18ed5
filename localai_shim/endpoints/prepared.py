"""Prepared requests: the result of every endpoint that runs a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from openai import BaseModel

from ..types import Waker, Work
from .assembler import Assembler


class Follower(Protocol):
    """Sink of a consumer for the events of a response, with None behind the last one."""

    @property
    def waker(self) -> Waker | None: ...

    def put(self, index: int, event: Any) -> None: ...


class BackgroundRun(Protocol):
    """A response that goes on without its caller: see `responses.background.Run`."""

    ended_with: Callable[[BaseException | None], None] | None

    @property
    def queued(self) -> BaseModel: ...

    @property
    def events(self) -> Sequence[BaseModel]: ...

    def follow(self, sink: Follower, after: int) -> None: ...

    def leave(self, sink: Follower) -> None: ...


AnyAssembler = Assembler[BaseModel]


@dataclass(slots=True)
class Prepared:
    """A validated request: the work to run, and what makes an answer of its events."""

    assembler: AnyAssembler
    works: Sequence[Work] = ()
    stream: bool = False
    run: BackgroundRun | None = None
    """The response that goes on without its caller; None: the caller takes the tokens."""

"""An engine and its model, as clients need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from .events import Sink
from .work import Task, Work

if TYPE_CHECKING:
    from ..stats import EngineStats


class Ticket:
    """Key to cancel with, which `EngineLike.submit` takes or returns."""

    __slots__ = ()


class LoadedModel(Protocol):
    """Model of an engine, as clients need it; may be read on any thread."""

    name: str
    """Name for `response.model`."""
    created: int
    """Seconds since 1970; 0 if unknown."""
    fingerprint: str
    """Changes with whatever its answers, and the contents of a row's cache, depend on."""
    context_length: int | None
    """Most tokens of prompt and output together; None when the model does not say."""
    eos_token_ids: frozenset[int]
    tokenizer: Any
    """mlx-lm's `TokenizerWrapper`, or what plays one."""

    @property
    def tasks(self) -> Sequence[Task]:
        """Tasks that it serves."""

    @property
    def settings(self) -> Mapping[Task, object]:
        """Settings for the kinds of work that have some: `vectors.Embedding`, `vectors.Reranking`."""

    @property
    def generation_defaults(self) -> Mapping[str, object]:
        """The checkpoint's generation_config.json."""

    @property
    def text(self) -> Any:
        """Makes its prompts: see `prompt.tokenizing.Tokenizing`."""


class EngineLike(Protocol):
    """Engine as clients need it; `engine/engine.py` has the docs of each method."""

    @property
    def model(self) -> LoadedModel: ...

    @property
    def ready(self) -> Future[None]: ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def is_closed(self) -> bool: ...

    def wait(self) -> None: ...

    def submit(self, works: Sequence[Work], sink: Sink, ticket: Ticket | None = None) -> Ticket: ...

    def cancel(self, ticket: Ticket) -> None: ...

    def stats(self, *, plans: bool = False) -> EngineStats: ...

    def close(self) -> None: ...

    def check_process(self) -> None: ...

"""An engine and its model, as clients need them, with the events of its work and the errors that it reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from .work import Task, Work

if TYPE_CHECKING:
    from ..stats import EngineStats


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


class EngineError(Exception):
    """Base of what the engine reports; `errors.py` maps it to the SDK's exception classes."""


class QueueFullError(EngineError):
    """More requests wait than may."""


class TooManyRowsError(EngineError):
    """A request asks for more rows than may ever run and wait together."""


class AdapterGoneError(EngineError):
    """The adapter that a request names was unloaded before the request reached the engine."""


class EngineClosedError(EngineError):
    """The engine was closed, or belongs to the process that this one was forked from."""


class ModelLoadError(EngineError):
    """The model could not be loaded."""

    def __init__(self, message: str, *, missing: bool = False, transient: bool = False) -> None:
        super().__init__(message)
        self.missing = missing
        """There is no such model, as opposed to one that is broken."""
        self.transient = transient
        """It may go better next time: the network failed, or others held the memory."""

    def again(self) -> ModelLoadError:
        """The same, to be raised once more: an exception that is raised twice keeps what its first callers held."""
        made = ModelLoadError(str(self), missing=self.missing, transient=self.transient)
        made.__cause__ = self.__cause__
        return made


class RowError(EngineError):
    """One row failed. The other rows of its batch did not."""


class BackendMissingError(ImportError):
    """MLX has no back end on this machine. The message names the extra to install."""

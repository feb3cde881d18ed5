"""Errors that an engine reports."""

from __future__ import annotations


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

"""Code of mlx-audio that runs without the Hugging Face Hub: nothing is fetched in silence."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

from ...threads.system import Lock, get_ident
from ...types import ModelLoadError
from .families import missing_package

_REPOSITORY = re.compile(r"https?://[^/\s]+/(?:api/models/)?([\w.-]+/[\w.-]+)")
_lock = Lock()
_threads: list[int] = []
"""Threads that are offline now, once for each time."""
_before: list[Callable[[], bool]] = []
"""The hub's own function, while it is replaced."""


@contextlib.contextmanager
def offline(name: str) -> Iterator[None]:
    """Let this thread use only files of the hub's cache, whatever a model's code asks for.

    Args:
        name: the model's, for errors.

    Raises:
        ModelLoadError: a file or a package is missing; names it.
    """
    _enter()
    try:
        yield
    except ModelLoadError:
        raise
    except Exception as error:
        found = _missing(name, error)
        if found is None:
            raise
        raise found from error
    finally:
        _leave()


def _enter() -> None:
    from huggingface_hub import constants

    with _lock:
        if not _before:
            before = constants.is_offline_mode
            _before.append(before)
            constants.is_offline_mode = lambda: get_ident() in _threads or before()
        _threads.append(get_ident())


def _leave() -> None:
    from huggingface_hub import constants

    with _lock:
        _threads.remove(get_ident())
        if not _threads:
            constants.is_offline_mode = _before.pop()


def _missing(name: str, error: Exception) -> ModelLoadError | None:
    """The error that says what is missing; None: something else is wrong."""
    from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

    chain = [*_causes(error)]
    packages = [each for each in chain if isinstance(each, ImportError)]
    if packages:
        module = next((each.name for each in packages if each.name), None)
        return missing_package(name, module) if module else ModelLoadError(f"the model '{name}': {packages[0]}")
    if not any(isinstance(each, LocalEntryNotFoundError | OfflineModeIsEnabled) for each in chain):
        return None
    found = next((match for each in chain if (match := _REPOSITORY.search(str(each))) is not None), None)
    if found is None:
        return ModelLoadError(f"the model '{name}' needs files that are not on this machine: {error}", transient=True)
    return ModelLoadError(
        f"the model '{name}' needs files of '{found[1]}' that are not on this machine. Run `hf download {found[1]}`.",
        transient=True,
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An exception, and those that led to it."""
    seen: set[int] = set()
    pending = [error]
    while pending:
        each = pending.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            pending += [cause for cause in (each.__cause__, each.__context__) if cause is not None]

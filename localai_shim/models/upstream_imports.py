"""Guards of what must stay as it is while upstream's code is imported and loads."""

from __future__ import annotations

import contextlib
import logging
import resource
from collections.abc import Iterator

from ..threads.system import Lock

LOADING = Lock()
"""Lock of imports and loading: what these change is put back by one engine's thread before the next one changes it."""

_MLX_LM_FILES = (2048, 4096)


@contextlib.contextmanager
def keeping_file_limits() -> Iterator[None]:
    """Let mlx-lm, at its import, raise the number of files that the process may open, and not lower it.

    It sets 2,048, and 4,096 as the hard limit, which only root could raise again and which fails where that is lower.
    """
    set_limit = resource.setrlimit

    def raise_limit(which: int, limits: tuple[int, int]) -> None:
        soft, hard = resource.getrlimit(which)
        if which != resource.RLIMIT_NOFILE or limits != _MLX_LM_FILES:
            set_limit(which, limits)
        elif soft not in (resource.RLIM_INFINITY, hard) and soft < limits[0]:
            set_limit(which, (limits[0] if hard == resource.RLIM_INFINITY else min(limits[0], hard), hard))

    resource.setrlimit = raise_limit
    try:
        yield
    finally:
        resource.setrlimit = set_limit


@contextlib.contextmanager
def without_advice() -> Iterator[None]:
    """Keep transformers from calling an argument deprecated that mlx-vlm passes to SmolVLM's processor."""
    log = logging.getLogger("transformers.models.auto.image_processing_auto")

    def keep(record: logging.LogRecord) -> bool:
        return "`use_fast` parameter is deprecated" not in record.getMessage()

    log.addFilter(keep)
    try:
        yield
    finally:
        log.removeFilter(keep)

"""Ray itself: joined where it runs already, started on this machine otherwise, and ended by whoever started it."""

from __future__ import annotations

import logging
import os
import threading

import ray

OBJECT_STORE_BYTES = 200 << 20  # answers are small, and come in pieces

_lock = threading.Lock()
_holders = 0
_own: str | None = None
"""Connection of this process to the Ray that a client has started."""


def connection() -> str | None:
    """Id of this process's connection to Ray, which another one does not have; None: it has none.

    What was made under one connection ends the process where it is used under another.
    """
    return ray.get_runtime_context().get_worker_id() if ray.is_initialized() else None


def join() -> None:
    """Connect this process to Ray: as it is connected, to the cluster of `RAY_ADDRESS`, or to one that is started."""
    global _holders, _own
    with _lock:
        _holders += 1
        if ray.is_initialized():
            return
        try:
            if os.environ.get("RAY_ADDRESS"):
                ray.init(logging_level=logging.WARNING)
                return
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            os.environ.setdefault("RAY_worker_niceness", "0")  # replicas are what the program waits for; Ray has 15
            ray.init(
                "local",
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                logging_level=logging.WARNING,
            )
            _own = connection()
        except BaseException:
            _holders -= 1
            raise


def leave() -> None:
    """End Ray with the last client, if a client has started it."""
    global _holders, _own
    with _lock:
        _holders -= 1
        if not _holders:
            own, _own = _own, None
            if own is not None and own == connection():
                ray.shutdown()

"""Ray itself: joined where it runs already, started on this machine otherwise, and ended by whoever started it."""

from __future__ import annotations

import logging
import os
import threading

import ray

OBJECT_STORE_BYTES = 200 << 20  # answers are small, and come in pieces

_lock = threading.Lock()
_holders = 0
_is_ours = False


def join() -> None:
    """Connect this process to Ray: as it is connected, to the cluster of `RAY_ADDRESS`, or to one that is started."""
    global _holders, _is_ours
    with _lock:
        _holders += 1
        if ray.is_initialized():
            return
        try:
            if os.environ.get("RAY_ADDRESS"):
                ray.init(logging_level=logging.WARNING)
                return
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            ray.init(
                "local",
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                logging_level=logging.WARNING,
            )
            _is_ours = True
        except BaseException:
            _holders -= 1
            raise


def leave() -> None:
    """End Ray with the last client, if a client has started it."""
    global _holders, _is_ours
    with _lock:
        _holders -= 1
        if _is_ours and not _holders:
            _is_ours = False
            ray.shutdown()

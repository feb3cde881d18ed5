"""Ray itself: joined if it runs already, otherwise started on this machine, and then ended by the same process."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import ray
from ray._private import ray_constants

OBJECT_STORE_BYTES = 200 << 20  # answers are small, and come in pieces

LOOPBACK = ("127.0.0.1", "::1")
_MANY_MACHINES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Without it Ray listens on the loopback alone, on every system; its processes read the variable, too."""

log = logging.getLogger("localai_shim")

_lock = threading.Lock()
_holders = 0
_own: str | None = None
"""Connection of this process to the Ray that a client has started."""


def connection() -> str | None:
    """Id of this process's connection to Ray, which no other connection has; None without a connection.

    An object made under one connection ends the process if it is used under another.
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
            if os.environ.get("RAY_ADDRESS") not in (None, "", "local"):
                ray.init(logging_level=logging.WARNING)
                return
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            os.environ.setdefault("RAY_worker_niceness", "0")  # replicas are what the program waits for; Ray has 15
            with _on_this_machine():
                ray.init(
                    "local",
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE_BYTES,
                    logging_level=logging.WARNING,
                )
            _own = connection()
            if (address := ray.util.get_node_ip_address()) not in LOOPBACK:
                log.warning("Ray listens on %s, where other machines may reach it", address)
        except BaseException:
            _holders -= 1
            raise


@contextmanager
def _on_this_machine() -> Iterator[None]:
    """Make a Ray that is started within this listen on the loopback alone, whatever the environment says."""
    before, constant = os.environ.get(_MANY_MACHINES), ray_constants.ENABLE_RAY_CLUSTER
    os.environ[_MANY_MACHINES], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = constant
        if before is None:
            del os.environ[_MANY_MACHINES]
        else:
            os.environ[_MANY_MACHINES] = before


def leave() -> None:
    """End Ray with the last client, if a client has started it."""
    global _holders, _own
    with _lock:
        _holders -= 1
        if not _holders:
            own, _own = _own, None
            if own is not None and own == connection():
                ray.shutdown()

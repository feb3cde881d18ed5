"""MLX's memory limits. They belong to the process, and are set to what all its engines need together.

They are changed, and free buffers are given back, only while no engine has an evaluation in flight: Metal's wired
limit must not change during one, and the CPU back end would wait for it and hold the GIL meanwhile.
`docs/memory.md` lists what mlx-lm and mlx-vlm do at these places.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
from collections.abc import Callable, Hashable
from types import ModuleType

import mlx.core as mx

from ..threads.system import Lock
from .machine import on_cuda

log = logging.getLogger("localai_shim")

kept = threading.local()
"""State that models' code keeps of its last step, by thread; dropped with the engine."""

running_python = Lock()
"""Held while MLX's threads run Python code: setting a limit waits for them on the CPU, and holds the GIL meanwhile."""

WARN_SHARE = 0.9  # of the recommended working set: from there on mlx-lm warns
WIRED_EXTRA_BYTES = 2**30  # of an engine, wired with its weights: caches and the arrays of its steps


class _Limit:
    """One of MLX's limits.

    Args:
        set: sets it, and returns the one before.
        choose: takes the limit that is wanted and the one that was found; returns the one that holds.
    """

    def __init__(self, set: Callable[[int], int], choose: Callable[[int, int], int]) -> None:
        self._set, self._choose = set, choose
        self._found: int | None = None
        self._wanted: int | None = None

    def want(self, limit: int | None) -> bool:
        """Set the limit, or the one that was found; returns False if that is so already."""
        if limit == self._wanted:
            return False
        self._wanted = limit
        if limit is not None:
            before = self._set(limit)
            self._found = before if self._found is None else self._found
            if (chosen := self._choose(limit, self._found)) != limit:
                self._set(chosen)
        elif self._found is not None:
            self._set(self._found)
            self._found = None
        return True


class DeviceMemory:
    """Counts the engines of a process. Each calls the methods from its own thread, with itself as `engine`.

    An engine works, rests for some seconds after its last request, and then sleeps. Wired memory holds the weights of
    all engines, and something for their steps; none is wired while all of them sleep.
    """

    def __init__(self, mlx: ModuleType) -> None:
        self._mlx = mlx
        self._lock = Lock()
        self._working: set[Hashable] = set()
        self._awake: set[Hashable] = set()
        """Those that work or rest."""
        self._weights: dict[Hashable, int] = {}
        """By engine; all that have entered are here."""
        self._free: dict[Hashable, int] = {}
        self._wired = _Limit(lambda limit: self._mlx.set_wired_limit(limit), max)
        self._cache = _Limit(lambda limit: self._mlx.set_cache_limit(limit), min)
        self._cannot_wire = False
        self._clear = False

    def enter(self, engine: Hashable) -> None:
        """Add an engine that begins to load."""
        with self._lock:
            self._weights[engine] = 0
            self._awake.add(engine)
            self._working.add(engine)

    def loaded(self, engine: Hashable, weights: int) -> None:
        """Note the bytes of an engine's weights; warns where those of all models come close to what is recommended."""
        with self._lock:
            if self._weights.get(engine) == weights:
                return
            self._weights[engine] = weights
            recommended, total = self._recommended(), sum(self._weights.values())
            second = len([size for size in self._weights.values() if size]) == 2
        if second and on_cuda() and self._mlx.device_count(self._mlx.gpu) > 1:
            log.warning(
                "several models run in this process, which sees several GPUs: MLX computes on the first, and "
                "requests may fail (cudaMemcpy: invalid argument). Set CUDA_VISIBLE_DEVICES to one before the program "
                "starts"
            )
        if recommended is not None and total > WARN_SHARE * recommended:
            log.warning(
                "the weights take %d MB, and this machine recommends at most %d MB for all that its GPU uses: decoding "
                "may be slow. `sudo sysctl iogpu.wired_limit_mb=<megabytes>` raises that",
                total // 2**20,
                recommended // 2**20,
            )

    def rest(self, engine: Hashable, *, free: int | None = None, clear: bool = False) -> None:
        """Note that an engine has nothing in flight any more.

        Args:
            free: bytes of free buffers that MLX may hold for it; None: no limit is known.
            clear: return free buffers to the system.
        """
        self._mlx.synchronize()  # a step may have been launched for rows that are gone
        with self._lock:
            if free is not None:
                self._free[engine] = free
            self._working.discard(engine)
            self._clear = self._clear or clear
            self._settle()

    def sleep(self, engine: Hashable) -> None:
        """Note that an engine rests for good, until it works again."""
        with self._lock:
            self._awake.discard(engine)
            self._settle()

    def work(self, engine: Hashable) -> None:
        """Note that an engine works again."""
        with self._lock:
            self._awake.add(engine)
            self._settle()
            self._working.add(engine)

    def leave(self, engine: Hashable) -> None:
        """Remove an engine that has released its model. After the last one, limits are as before the first."""
        kept.__dict__.clear()
        self._mlx.synchronize()
        with self._lock:
            self._working.discard(engine)
            self._awake.discard(engine)
            self._weights.pop(engine, None)
            self._free.pop(engine, None)
            self._clear = True
            self._settle()

    # -----------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Apply what is due, unless an engine works: then it stays due."""
        if self._working:
            return
        self._limit_wired()
        self._limit_cache()
        if self._clear:
            self._mlx.clear_cache()
            return_free_memory()
            self._clear = False

    def _limit_wired(self) -> None:
        """Wire what all engines need, up to what is recommended; nothing while all of them sleep."""
        recommended = self._recommended()
        sizes = [size + WIRED_EXTRA_BYTES for size in self._weights.values() if size]
        if recommended is None or self._cannot_wire:
            return
        try:
            self._wired.want(min(sum(sizes), recommended) if sizes and self._awake else None)
        except (RuntimeError, ValueError) as error:
            self._cannot_wire = True
            log.warning("the model may be paged out: its memory cannot be wired (%s)", error)

    def _limit_cache(self) -> None:
        """Limit free buffers to what all engines allow together."""
        with running_python:
            is_changed = self._cache.want(sum(self._free.values()) if self._free else None)
        if is_changed:
            self._clear = True  # otherwise what is beyond it goes with the next allocation only

    def _recommended(self) -> int | None:
        size = self._mlx.device_info().get("max_recommended_working_set_size")
        return None if size is None else int(size)


def return_free_memory() -> None:
    """Return memory that was freed to the system: glibc keeps much of it, MLX's buffers on the CPU included."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library, or Windows' loader
        ctypes.CDLL(None).malloc_trim(0)


process = DeviceMemory(mx)
"""Memory of this process."""

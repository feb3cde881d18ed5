"""Where the engine's and the consumer's threads are while streams run, by looking at their stacks every millisecond."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType, FrameType

_INTERVAL = 0.001  # seconds
_SWITCH = 5e-5  # seconds after which a thread that computes lets the sampling thread look; Python's default is 5e-3

_Stack = list[tuple[CodeType, int]]


class StackSampler:
    """A context manager that samples the stacks of two threads.

    Stacks are seen where Python code runs or where native code waits; a native call that does not let go of the GIL
    counts for the line that made it. Sampling itself slows both threads.

    Args:
        threads: name -> identifier.
    """

    def __init__(self, threads: dict[str, int]) -> None:
        self._threads = threads
        self._samples: list[tuple[float, dict[str, _Stack]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> StackSampler:
        self._switch = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        sys.setswitchinterval(self._switch)

    def innermost(self, thread: str, window: tuple[float, float]) -> list[tuple[str, float]]:
        """(`file function:line`, share of the samples) of the ends of the stacks, most frequent first."""
        counted = Counter(stack[0] for stack in self._stacks(thread, window))
        return [(f"{_name(code)}:{line}", n / counted.total()) for (code, line), n in counted.most_common()]

    def inclusive(self, thread: str, window: tuple[float, float]) -> list[tuple[str, float]]:
        """(`file function`, share) of what was anywhere on the stack."""
        stacks = self._stacks(thread, window)
        counted = Counter(code for stack in stacks for code in {code for code, _ in stack})
        return [(_name(code), n / len(stacks)) for code, n in counted.most_common()]

    def _stacks(self, thread: str, window: tuple[float, float]) -> list[_Stack]:
        begin, end = window
        return [stacks[thread] for at, stacks in self._samples if begin < at <= end and thread in stacks]

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL):
            frames = sys._current_frames()
            now = time.perf_counter()
            stacks = {name: _stack(frames[ident]) for name, ident in self._threads.items() if ident in frames}
            del frames
            self._samples.append((now, stacks))


def _stack(frame: FrameType | None) -> _Stack:
    """Innermost first."""
    out = []
    while frame is not None:
        out.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return out


def _name(code: CodeType) -> str:
    return f"{'/'.join(Path(code.co_filename).parts[-2:])} {code.co_qualname}"


def cpu_clock(thread: int) -> Callable[[], float] | None:
    """Reads a thread's CPU seconds, where the system lets others do that."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return None
    return partial(time.clock_gettime, time.pthread_getcpuclockid(thread))


def engine_thread() -> int:
    """Identifier of the thread that runs the engine's model."""
    for thread in threading.enumerate():
        if thread.name.startswith("localai_shim:") and thread.ident is not None:
            return thread.ident
    raise RuntimeError("no engine runs in this process")

"""Memory, threads, descriptors and files of a process, its longest waits, and what it told OpenTelemetry."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from localai_shim.backends.memory import return_free_memory
from localai_shim.engine.kv.shared import Prefix
from localai_shim.engine.prefix import sharing
from localai_shim.engine.row import Row

from .setting import Pair

WAITED_SECONDS = 0.02  # in the queue, which a row that has a place never waits
IDLE_SECONDS = 60.0  # within which engines finish what nobody reads any more


@dataclass(frozen=True, slots=True)
class Reading:
    """Resources that a process holds while nothing runs."""

    rss: int
    active: int
    """Bytes of MLX's arrays."""
    cache: int
    """Bytes of MLX's free buffers."""
    threads: int
    descriptors: int
    temporary: int
    """Files and folders, but for the kernels that MLX compiles, each once."""

    def json(self) -> dict[str, int]:
        return asdict(self)


def read(pairs: Mapping[str, Pair]) -> Reading:
    """Wait until nothing runs, and look."""
    _wait_until_idle(pairs)
    gc.collect()
    active, cache = mx.get_active_memory(), mx.get_cache_memory()
    mx.clear_cache()  # as engines that rest do every so many steps: now few are free, now many
    return_free_memory()
    root = Path(tempfile.gettempdir())
    files = [path for path in root.rglob("*") if "mlx" not in path.relative_to(root).parts]
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    return Reading(resident(), active, cache, threading.active_count(), len(os.listdir(folder)), len(files))


def _wait_until_idle(pairs: Mapping[str, Pair]) -> None:
    end = time.monotonic() + IDLE_SECONDS
    while time.monotonic() < end:
        found = [pair.sync.stats() for pair in pairs.values()]
        if not any(each.running or each.waiting for each in found):
            return
        time.sleep(0.05)


def resident() -> int:
    """Bytes of the process that are in memory."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        done = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], stdout=subprocess.PIPE, check=True)
        return int(done.stdout) * 1024


class Clocks:
    """The longest gap between two chunks of a stream, and by which a beat of each loop came too late."""

    def __init__(self) -> None:
        self.gaps: dict[int, float] = {}
        """The longest, by the priority of the stream."""
        self.beats: dict[str, float] = {}

    def gap(self, priority: int, last: float | None) -> float:
        """Note a chunk of a stream that came after another one, if one did; returns when."""
        now = time.monotonic()
        if last is not None:
            self.gaps[priority] = max(self.gaps.get(priority, 0.0), now - last)
        return now

    def now(self) -> tuple[float, float]:
        """Time, and what of it this process has computed for."""
        return time.monotonic(), time.process_time()

    def beat(self, name: str, before: tuple[float, float], seconds: float) -> None:
        """Note a beat of a loop: what other programs take of the processor keeps no loop of ours."""
        wall, own = (now - then for now, then in zip(self.now(), before, strict=True))
        self.beats[name] = max(self.beats.get(name, 0.0), min(wall - seconds, own))


class Spans(SpanProcessor):
    """Counts the spans of requests, and those whose rows have waited for a place."""

    def __init__(self) -> None:
        self.ended = self.waited = 0
        self._lock = threading.Lock()

    def on_end(self, span: ReadableSpan) -> None:
        at = {event.name.rpartition(".")[2]: event.timestamp for event in span.events}
        queued, begun = at.get("queued"), at.get("prefill_started")
        with self._lock:
            self.ended += 1
            self.waited += queued is not None and begun is not None and begun - queued > WAITED_SECONDS * 1e9


class Complaints(logging.Handler):
    """Log lines of a warning or worse, and exceptions that nobody takes: no request gives a reason for one."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))

    def untaken(self, what: Any) -> None:
        """Note what a thread ended with, or what a destructor raised."""
        self.texts.append("".join(traceback.format_exception(what.exc_type, what.exc_value, what.exc_traceback)))


def listen() -> Complaints:
    """Collect them, from now on and for good."""
    made = Complaints()
    for name in ("localai_shim", "asyncio"):
        logging.getLogger(name).addHandler(made)
    sys.unraisablehook = threading.excepthook = made.untaken
    return made


def trace_all() -> Spans:
    """Have OpenTelemetry collect spans and metrics, in this process and for good."""
    spans, tracers = Spans(), TracerProvider()
    tracers.add_span_processor(spans)
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
    return spans


@contextlib.contextmanager
def temporary_files(folder: Path) -> Iterator[None]:
    """Have all temporary files of the process in this folder meanwhile."""
    old: tuple[Any, Any] = tempfile.tempdir, os.environ.get("TMPDIR")
    folder.mkdir(parents=True)
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = old[0]
        if old[1] is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = old[1]


@contextlib.contextmanager
def short_beginnings_shared() -> Iterator[list[None]]:
    """Rows share beginnings that are as short as the soak's; the list has an item for each row that did."""
    found, choose = list[None](), sharing.Sharing.choose
    least = sharing.MIN_SHARED_TOKENS, sharing.MOST_SAVED_TOKENS

    def counted(self: sharing.Sharing, *given: Any) -> dict[Row, Prefix]:
        chosen = choose(self, *given)
        found.extend([None] * len(chosen))
        return chosen

    made: Any = sharing
    made.MIN_SHARED_TOKENS, made.MOST_SAVED_TOKENS, made.Sharing.choose = 12, 0, counted
    try:
        yield found
    finally:
        (made.MIN_SHARED_TOKENS, made.MOST_SAVED_TOKENS), made.Sharing.choose = least, choose

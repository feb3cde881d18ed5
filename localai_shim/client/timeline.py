"""Timelines of a client's engines: files that show when which request did what."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from ..runtime.engines import Runtime
from ..telemetry.trace import write_trace


class Timelines:
    """Methods of both clients."""

    _runtime: Runtime

    def timeline(self, path: str | os.PathLike[str]) -> None:
        """Write a timeline of everything since the client was created with `record_timeline=True`.

        The file is a Chrome trace; open it at https://ui.perfetto.dev, which uploads nothing. See docs/agents.md.

        Args:
            path: File to write, such as `"run.json"`.

        Raises:
            OSError: The file cannot be written.
            RuntimeError: The client was created without `record_timeline=True`.

        Example:
            >>> from localai_shim import LocalOpenAI
            >>> with LocalOpenAI(record_timeline=True) as client:
            ...     answer = client.responses.create(model="any", input="Hello")
            ...     client.timeline("run.json")
        """
        recording = self._runtime.timelines.whole
        if recording is None:
            raise RuntimeError(
                "nothing was recorded: create the client with `record_timeline=True`, or record a part of the program "
                f"in `with client.record_timeline({os.fspath(path)!r}):`"
            )
        write_trace(path, recording.read())

    @contextlib.contextmanager
    def record_timeline(self, path: str | os.PathLike[str]) -> Iterator[None]:
        """Record a timeline in a `with` block, and write it at the end of the block, also after an exception.

        Args:
            path: File to write, such as `"run.json"`. See `timeline`.

        Raises:
            OSError: The file cannot be written. A missing folder is found before the block runs.

        Example:
            >>> from localai_shim import LocalOpenAI
            >>> with LocalOpenAI() as client, client.record_timeline("run.json"):
            ...     answer = client.responses.create(model="any", input="Hello")
        """
        folder = Path(path).absolute().parent
        if not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, "there is no such folder", os.fspath(folder))
        timelines = self._runtime.timelines
        recording = timelines.start()
        try:
            yield
        finally:
            timelines.end(recording)
            write_trace(path, recording.read())

"""Ctrl-C at a chosen line of the package, in the thread that calls it."""

from __future__ import annotations

import ast
import functools
import sys
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import localai_shim

PACKAGE = str(Path(localai_shim.__file__).parent)


class InterruptAt:
    """Raises KeyboardInterrupt at the n-th line of the package that its thread comes to; n < 0: only counts them.

    A signal's handler runs between two lines, too. Left out are the lines of `with` and `try`, on which Python looks at
    no signal: a tracer sees the first once more before the context ends, and no handler covers the second. And what the
    garbage collector calls, since Python prints and drops what is raised there.

    Attributes:
        seen: lines so far.
        where: file and line that were interrupted; "": none was.
    """

    def __init__(self, n: int = -1) -> None:
        self._n, self.seen, self.where = n, 0, ""

    def __enter__(self) -> InterruptAt:
        sys.settrace(self._call)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE) or _is_of_collector(frame):
            return None
        return self._line

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        name, line = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and line not in _unsignalled(name):
            self.seen += 1
            if self.seen == self._n + 1:
                self.where = f"{name}:{line}"
                raise KeyboardInterrupt
        return self._line


def _is_of_collector(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


@functools.cache
def _unsignalled(name: str) -> set[int]:
    """The lines of a file on which a `with` or a `try` stands."""
    tree = ast.parse(Path(name).read_text(encoding="utf-8"))
    return {node.lineno for node in ast.walk(tree) if isinstance(node, ast.With | ast.AsyncWith | ast.Try)}

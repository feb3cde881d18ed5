"""Waking event loops on a thread of its own, so that the engine's keeps the GIL until its next step is on its way."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from ..core import Waker


class Courier:
    """Calls `Waker.wake` on another thread.

    To call into an event loop is to let go of the GIL for a moment. A reader that gets hold of it then keeps it for as
    long as it has something to do, up to `sys.getswitchinterval()`, and the device has nothing to do meanwhile. Handing
    a waker to this thread lets go of nothing: it runs as soon as the engine waits for MLX, and so do the readers.

    Args:
        ended: is told of wakers whose event loop has ended, on that thread.
    """

    def __init__(self, ended: Callable[[Waker], None]) -> None:
        self._wakers: queue.SimpleQueue[Waker | None] = queue.SimpleQueue()
        self._ended = ended
        self._thread = threading.Thread(target=self._run, name="localai_shim-courier", daemon=True)
        self._thread.start()

    def wake(self, waker: Waker) -> None:
        """Have a waker called soon. Does not block and does not fail."""
        self._wakers.put(waker)

    def close(self) -> None:
        """Call the wakers that are left, and end the thread."""
        self._wakers.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (waker := self._wakers.get()) is not None:
            try:
                waker.wake()
            except RuntimeError:
                self._ended(waker)

"""Connects to ports of this machine, from a separate process, which runs this file.

MLX waits for a connection with the GIL held: no thread of the same process can make it.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

HOST = "127.0.0.1"
_POLL_SECONDS = 0.001
_FILE = Path(__file__)


class Visitor:
    """The side of the process that needs the connections."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_FILE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def visit(self, port: int) -> None:
        """Connect to a port as soon as a process listens there.

        Raises:
            OSError: the visitor has ended.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(b"%d\n" % port)
        self._process.stdin.flush()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # of what was not written
            self._process.stdin.close()


def _visit(port: int) -> None:
    """Connect until a connection has been accepted and closed again."""
    while True:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port)) as connection:
            connection.recv(1)
            return
        time.sleep(_POLL_SECONDS)


def main() -> None:
    """Visit the ports that are read, until the end of what is."""
    for line in sys.stdin:
        threading.Thread(target=_visit, args=(int(line),), daemon=True).start()


if __name__ == "__main__":
    main()

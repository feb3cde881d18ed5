"""Interpreters that have imported what scripts need: a script runs in a fork of one, and need not import it again.

Importing the SDK takes a second, and what models need three more. A script ends as it does in an interpreter of its
own: its threads, exit handlers and the interpreter's end are real, and so are its exit status and what it shows.
Scripts about importing itself need `sys.executable`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import io
import marshal
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from tests import machines

ROOT = Path(__file__).parents[1]
SDK = (
    "localai_shim.client.local",
    "localai_shim.testing.model.engine",
    "localai_shim.testing.clients",
    "trio",
    "sqlite3",
)
MLX = (
    "localai_shim.models.text",
    "localai_shim.engine.engine",
    "mlx_lm.models.qwen3",
    "mlx_lm.models.gemma3_text",
    "mlx_lm.models.qwen3_next",
    "transformers.models.qwen3.configuration_qwen3",
    "transformers.tokenization_utils_tokenizers",
)

LAUNCH = """
import _socket, marshal, os, signal, sys
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect(sys.argv[1])
asked = marshal.dumps((sys.argv[2:], os.getcwd(), dict(os.environ)))
ours = b"".join(fd.to_bytes(4, sys.byteorder) for fd in range(3))
server.sendmsg([len(asked).to_bytes(8, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, ours)])
server.sendall(asked)
script = int(server.recv(100))
for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, lambda number, _: os.kill(script, number))
status = int(server.recv(100))
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
    os.kill(os.getpid(), -status)
os._exit(status)
"""
"""Stands for the script: it is killed with the script, and the script with it."""


def python(kind: str = "sdk") -> list[str]:
    """What to write for `sys.executable` in a command that goes on with `-c CODE ...` or `-W error -c CODE ...`.

    Args:
        kind: "sdk" knows nothing of MLX; "mlx" has imported what models need.
    """
    if sys.platform != "linux" and not machines.ASKED_FOR:  # elsewhere a fork may not use Metal
        return [sys.executable]
    return [sys.executable, "-I", "-S", "-c", LAUNCH, f"{_serving()}/{kind}"]


@functools.cache
def _serving() -> str:
    """The folder of the sockets of servers that live as long as this process does."""
    folder = tempfile.mkdtemp(prefix="localai_shim-warm-")
    alone = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # a fork has one thread
    server: Any = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", folder],
        cwd=ROOT,
        env={**os.environ, **alone},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdout.readline() == b"ready\n"
    atexit.register(server.communicate)  # it ends with its input
    return folder


# -- the servers -----------------------------------------------------------------------------------------------------

Asked = tuple[list[str], str, dict[str, str], list[int]]
"""Arguments, folder, environment, and the descriptors of input, output and errors."""


def main(folder: str) -> None:
    sdk, mlx = (listening(f"{folder}/{kind}") for kind in ("sdk", "mlx"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest, which ends this one
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module in SDK:
            import_module(module)
        use_the_sdk()
    print("ready", flush=True)  # noqa: T201
    asked = serve(sdk, mlx)
    if asked == "mlx":
        import_module("localai_shim.backends.machine").require_backend()
        for module in MLX:
            import_module(module)
        asked = serve(mlx)
    if asked is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        run(*asked)


def listening(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    return listener


def use_the_sdk() -> None:
    """Its models are built at their first use."""
    from localai_shim import LocalOpenAI
    from localai_shim.testing import ScriptedEngine

    with ScriptedEngine(["Hi"] * 3) as engine, LocalOpenAI(engine=engine) as client:
        messages: Any = [{"role": "user", "content": "Hi"}]
        client.chat.completions.create(model="m", messages=messages)
        list(client.chat.completions.create(model="m", messages=messages, stream=True))
        list(client.responses.create(model="m", input="Hi", stream=True))


def serve(listener: socket.socket, other: socket.socket | None = None) -> Asked | Literal["mlx"] | None:
    """Fork for whoever asks, until there is nobody any more.

    Returns in a fork: what is to be run, or "mlx" in the one that is to listen to the other socket.
    """
    assert threading.active_count() == 1, threading.enumerate()
    gc.collect()
    gc.freeze()
    wake, woken = socket.socketpair()
    woken.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken.fileno())
    running: dict[socket.socket, int] = {}
    while True:
        ready = select.select([sys.stdin, listener, wake, *filter(None, [other]), *running], [], [])[0]
        if sys.stdin in ready:
            return None
        for connection in running.keys() & set(ready):  # who asked was killed
            os.kill(running[connection], signal.SIGKILL)
        if wake in ready:
            wake.recv(4096)
            tell_ends(running)
        if other in ready:
            if not os.fork():
                signal.set_wakeup_fd(-1)
                for each in (listener, wake, woken, *running):
                    each.close()
                return "mlx"
            other.close()
            other = None
        if listener in ready:
            connection, _ = listener.accept()
            asked = receive(connection)
            child = os.fork()
            if not child:
                signal.set_wakeup_fd(-1)
                for each in (listener, wake, woken, connection, *filter(None, [other]), *running):
                    each.close()
                return asked
            for fd in asked[-1]:
                os.close(fd)
            running[connection] = child
            connection.send(str(child).encode())


def receive(connection: socket.socket) -> Asked:
    head, fds, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as file:
        arguments, folder, environment = marshal.loads(file.read(int.from_bytes(head, "little")))
    return arguments, folder, environment, fds


def tell_ends(running: dict[socket.socket, int]) -> None:
    """Say how those ended that did."""
    for connection, child in list(running.items()):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            del running[connection]
            with connection, contextlib.suppress(BrokenPipeError):
                connection.send(str(os.waitstatus_to_exitcode(status)).encode())


# -- a fork ----------------------------------------------------------------------------------------------------------


def run(arguments: list[str], folder: str, environment: dict[str, str], fds: list[int]) -> None:
    """What an interpreter does with such arguments."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threads = import_module("localai_shim.engine.threads")
    assert threads._lost == ("mlx" in sys.modules)
    threads._lost = False  # MLX was imported, but nothing was run, so that it has no threads
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = sys.__stdout__ = writer(1, os.isatty(1))
    sys.stderr = sys.__stderr__ = writer(2, True)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if arguments[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        del arguments[:2]
    assert arguments[0] == "-c"
    sys.argv, sys.path[0] = ["-c", *arguments[2:]], ""
    script = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(arguments[1], "<string>", "exec"), script.__dict__)


def writer(fd: int, line_buffering: bool) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(io.FileIO(fd, "w", closefd=False)), line_buffering=line_buffering)


if __name__ == "__main__":
    main(*sys.argv[1:])

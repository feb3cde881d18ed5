"""macOS on Apple silicon, as far as Python code can tell on Linux."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import platform
import resource
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

OPEN_FILES = 256  # macOS's limit for a new process

NOT_THERE = ("/proc", "/sys", "/dev/shm")

CHOSE_FOR_LINUX = (
    "anyio._backends._asyncio",
    "anyio._backends._trio",
    "asyncio",
    "huggingface_hub",
    "mlx.core",
    "mlx_lm.generate",
    "mlx_lm.utils",
    "mlx_vlm",
    "multiprocessing.util",
    "openai",
    "PIL.Image",
    "psutil",
    "pypdfium2",
    "shutil",
    "ssl",
    "subprocess",
    "sysconfig",
    "tqdm",
    "transformers",
    "trio",
    "urllib.request",
    "xdist",
)
"""Libraries that choose by platform when they are imported. Their choices for macOS do not exist here."""

LINUX_ONLY = {
    os: "eventfd fdatasync getrandom memfd_create pidfd_open pipe2 posix_fadvise posix_fallocate sched_getaffinity "
    "sched_setaffinity sched_setscheduler setns splice unshare",
    resource: "RUSAGE_THREAD prlimit",
    select: "epoll",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo",
}
"""Names of the standard library that Python does not define on macOS."""


def imitate() -> None:
    """Turn this process into one on a Mac, for good."""
    for module in CHOSE_FOR_LINUX:
        if find_spec(module.partition(".")[0]) is not None:
            import_module(module)
    _without_linux_files()
    _without_linux_calls()
    _with_a_macs_name()
    _with_a_linked_temporary_folder()
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def _without_linux_files() -> None:
    builtins = import_module("builtins")
    io = import_module("io")
    for module, names in ((builtins, "open"), (io, "open"), (os, "open stat lstat listdir scandir readlink")):
        for name in names.split():
            setattr(module, name, _refusing(getattr(module, name)))
    access = os.access
    os.access = lambda path, *rest, **options: not _is_linux_file(path) and access(path, *rest, **options)


def _refusing(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def without(path: Any = ".", *rest: Any, **options: Any) -> Any:
        if _is_linux_file(path):
            raise FileNotFoundError(2, "No such file or directory", os.fspath(path))
        return call(path, *rest, **options)

    return without


def _is_linux_file(path: Any) -> bool:
    if not isinstance(path, (str, bytes, os.PathLike)):
        return False
    name = os.fsdecode(path)
    return name.startswith("/") and any(name == folder or name.startswith(folder + "/") for folder in NOT_THERE)


def _without_linux_calls() -> None:
    # Trio waits with epoll here. It keeps the module that it has; no Mac would miss it.
    import_module("trio._core._io_epoll").select = SimpleNamespace(**vars(select))  # type: ignore[attr-defined]
    for module, names in LINUX_ONLY.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    sysconf = os.sysconf

    def without_free_pages(name: str | int) -> int:
        if name == "SC_AVPHYS_PAGES":
            raise ValueError("unrecognized configuration name")
        return sysconf(name)

    os.sysconf = without_free_pages
    os.sysconf_names = {name: number for name, number in os.sysconf_names.items() if name != "SC_AVPHYS_PAGES"}

    class WithoutLinuxFunctions(ctypes.CDLL):
        def __getattr__(self, name: str) -> Any:
            if name in ("malloc_trim", "mallopt", "prctl"):
                raise AttributeError(name)
            return super().__getattr__(name)

    ctypes.CDLL = WithoutLinuxFunctions  # type: ignore[misc]


def _with_a_macs_name() -> None:
    here = os.uname()
    there = os.uname_result(("Darwin", here.nodename, "24.5.0", "Darwin Kernel Version 24.5.0", "arm64"))
    os.uname = lambda: there
    platform.system = lambda: "Darwin"
    platform.machine = lambda: "arm64"
    platform.processor = lambda: "arm"
    platform.release = lambda: there.release
    platform.libc_ver = lambda *_, **__: ("", "")  # type: ignore[assignment]
    platform.mac_ver = lambda *_, **__: ("15.5", ("", "", ""), "arm64")
    platform.platform = lambda *_, **__: "macOS-15.5-arm64-arm-64bit"
    sys.platform = "darwin"


def _with_a_linked_temporary_folder() -> None:
    """On macOS temporary files are in /var/folders, and /var is a link to /private/var."""
    if os.path.realpath(tempfile.gettempdir()) != tempfile.gettempdir():
        return  # a worker of pytest-xdist has its parent's
    folder = tempfile.mkdtemp(prefix="mac-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chmod(folder, 0o755)
    os.mkdir(os.path.join(folder, "private"))
    link = os.path.join(folder, "var")
    os.symlink("private", link)
    tempfile.tempdir = os.environ["TMPDIR"] = link

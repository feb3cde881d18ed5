"""Identity of processes: the system gives a number to another process once the first one has ended."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_KERN_PROC_PID = (1, 14, 1)  # CTL_KERN, KERN_PROC, KERN_PROC_PID, as in <sys/sysctl.h>
_KINFO_BYTES = 1024  # room for macOS's `kinfo_proc`, which takes 648 on 64-bit systems


def start_time(pid: int) -> str:
    """When a process started, as its system says; "" if it does not say, or has no such process.

    Only equality means something: on Linux these are ticks since the machine started, on macOS a date.
    """
    try:
        if sys.platform == "darwin":
            return _macos_start(_kinfo(pid))
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, AttributeError):
        return ""


def is_running(pid: int, started: str) -> bool:
    """True if this process runs, and started then; if either time is unknown, its number decides."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return not started or (start_time(pid) or started) == started


def _kinfo(pid: int) -> bytes:
    """A process's entry in macOS's process table; empty if there is none."""
    size, entry = ctypes.c_size_t(_KINFO_BYTES), ctypes.create_string_buffer(_KINFO_BYTES)
    name = (ctypes.c_int * 4)(*_KERN_PROC_PID, pid)
    failed = ctypes.CDLL(None).sysctl(name, 4, entry, ctypes.byref(size), None, ctypes.c_size_t(0))
    return b"" if failed else entry.raw[: size.value]


def _macos_start(kinfo: bytes) -> str:
    """Start time in a `kinfo_proc`: it begins with a `timeval`, `p_starttime`."""
    if len(kinfo) < 16:
        return ""
    seconds, microseconds = struct.unpack_from("<qi", kinfo)
    return f"{seconds}.{microseconds:06}"

"""Memory as macOS reports it.

The calls fill buffers of C structs; functions of bytes read them, which any system runs. Layouts
are those of `mach/vm_statistics.h` and `mach/host_info.h`, and levels those of `sys/event_private.h`.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from typing import Literal

Pressure = Literal["normal", "warning", "critical"]

PRESSURE_NAME = b"kern.memorystatus_vm_pressure_level"
_HOST_VM_INFO64 = 4
_VM_STATISTICS64_BYTES = 152  # up to the compressor's counts; newer systems add fields behind these
_LEVELS: dict[int, Pressure] = {1: "normal", 2: "warning", 4: "critical"}


def free_memory() -> int | None:
    """Bytes that programs may take without having others paged out; None if this is not macOS."""
    statistics = _vm_statistics64()
    return None if statistics is None else free_pages(statistics) * os.sysconf("SC_PAGE_SIZE")


def pressure() -> Pressure:
    """The system's shortage of memory; "normal" if this is not macOS."""
    return level_of(_sysctl(PRESSURE_NAME))


def free_pages(statistics: bytes) -> int:
    """Free and inactive pages of a `vm_statistics64`, which begins with four 32-bit counts: free, active, inactive, and
    wired pages. The free ones include speculative pages, and purgeable ones are in one of these lists, too.
    """
    free, _, inactive, _ = struct.unpack_from("<4I", statistics)
    return int(free + inactive)


def level_of(value: bytes) -> Pressure:
    """The level in a 32-bit integer; one that is not known, or not there, counts as normal."""
    return _LEVELS.get(struct.unpack("<i", value)[0], "normal") if len(value) == 4 else "normal"


# -- calls -----------------------------------------------------------------------------------------------------------


def _vm_statistics64() -> bytes | None:
    try:
        libc, host = _libc(), _host()
        buffer = ctypes.create_string_buffer(_VM_STATISTICS64_BYTES)
        count = ctypes.c_uint(_VM_STATISTICS64_BYTES // 4)  # of 32-bit integers
        failed = libc.host_statistics64(ctypes.c_uint(host), ctypes.c_int(_HOST_VM_INFO64), buffer, ctypes.byref(count))
    except (AttributeError, OSError, TypeError):
        return None
    return None if failed else buffer.raw


def _sysctl(name: bytes) -> bytes:
    """A value of the system's by its name, of at most 8 bytes; empty if there is none."""
    try:
        buffer, size = ctypes.create_string_buffer(8), ctypes.c_size_t(8)
        failed = _libc().sysctlbyname(name, buffer, ctypes.byref(size), None, ctypes.c_size_t(0))
    except (AttributeError, OSError, TypeError):
        return b""
    return b"" if failed else buffer.raw[: size.value]


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


@functools.cache
def _host() -> int:
    """Mach's port of this machine: each call would count one more reference to it."""
    call = _libc().mach_host_self
    call.restype = ctypes.c_uint
    return int(call())

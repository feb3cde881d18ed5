"""What macOS says about memory, read from bytes as its calls leave them."""

from __future__ import annotations

import ctypes
import struct
import sys

import pytest

from localai_shim.backends import machine, macos

PAGE = 16384


class Statistics(ctypes.Structure):
    """`vm_statistics64` up to macOS 15, in the order of `mach/vm_statistics.h`."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("free", "active", "inactive", "wired")),
        *((name, ctypes.c_uint64) for name in ("zero_fill", "reactivations", "pageins", "pageouts", "faults", "cow")),
        *((name, ctypes.c_uint64) for name in ("lookups", "hits", "purges")),
        *((name, ctypes.c_uint32) for name in ("purgeable", "speculative")),
        *((name, ctypes.c_uint64) for name in ("decompressions", "compressions", "swapins", "swapouts")),
        *((name, ctypes.c_uint32) for name in ("compressor", "throttled", "external", "internal")),
        ("uncompressed", ctypes.c_uint64),
    )


def test_the_buffer_has_the_size_of_the_struct() -> None:
    assert ctypes.sizeof(Statistics) == macos._VM_STATISTICS64_BYTES
    assert macos._VM_STATISTICS64_BYTES // 4 == 38, "HOST_VM_INFO64_COUNT"


def test_free_memory_is_free_and_inactive_pages() -> None:
    """Speculative pages are among the free ones, purgeable ones in one of the lists."""
    counts = Statistics(free=1000, active=7, inactive=20, wired=9, purgeable=3, speculative=500)
    assert macos.free_pages(bytes(counts)) == 1020
    assert macos.free_pages(bytes(Statistics(free=2**32 - 1, inactive=2**32 - 1))) == 2**33 - 2


def test_free_memory_counts_pages_of_the_systems_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(macos, "_vm_statistics64", lambda: bytes(Statistics(free=10, inactive=5)))
    monkeypatch.setattr(macos.os, "sysconf", lambda name: {"SC_PAGE_SIZE": PAGE}[name])
    assert macos.free_memory() == 15 * PAGE


@pytest.mark.parametrize(
    ("value", "level"),
    [
        (struct.pack("<i", 1), "normal"),
        (struct.pack("<i", 2), "warning"),
        (struct.pack("<i", 4), "critical"),
        (struct.pack("<i", 3), "normal"),
        (b"", "normal"),
        (bytes(8), "normal"),
    ],
)
def test_levels_of_memory_pressure(value: bytes, level: str) -> None:
    assert macos.level_of(value) == level


def test_pressure_is_asked_of_macos_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def sysctl(name: bytes) -> bytes:
        asked.append(name)
        return struct.pack("<i", 4)

    monkeypatch.setattr(macos, "_sysctl", sysctl)
    monkeypatch.setattr(sys, "platform", "linux")
    assert (machine.memory_pressure(), asked) == ("normal", [])
    monkeypatch.setattr(sys, "platform", "darwin")
    assert (machine.memory_pressure(), asked) == ("critical", [b"kern.memorystatus_vm_pressure_level"])


@pytest.mark.skipif(hasattr(ctypes.CDLL(None), "host_statistics64"), reason="a system without Mach")
def test_a_system_without_these_calls_says_nothing() -> None:
    assert macos.free_memory() is None
    assert macos.pressure() == "normal"


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "host_statistics64"), reason="a Mac")
def test_a_mac_says_how_much_is_free() -> None:
    free = machine.free_memory()
    assert free is not None and 0 < free < machine.total_memory()

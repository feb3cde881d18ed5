"""Memory that is free, the machine's or a container's share of it, and what tells one machine from another."""

from __future__ import annotations

import os
import plistlib
from pathlib import Path

import mlx.core as mx
import pytest

from localai_shim.backends import machine as backend

tells_memory = pytest.mark.skipif("SC_AVPHYS_PAGES" not in os.sysconf_names, reason="this system does not tell")

MIB = 2**20


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A container's folder of limits, as version 2 of Linux's control groups has it."""
    monkeypatch.setattr(backend, "CGROUP", tmp_path)
    (tmp_path / "memory.current").write_text(f"{30 * MIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {10 * MIB}\nactive_file 7\n")
    return tmp_path


@tells_memory
def test_a_containers_limit_is_what_is_free_in_it_with_the_files_that_it_has_read(group: Path) -> None:
    (group / "memory.max").write_text(f"{100 * MIB}\n")
    assert backend.free_memory() == 80 * MIB


@tells_memory
def test_a_container_that_is_full_has_nothing_free(group: Path) -> None:
    (group / "memory.max").write_text(f"{15 * MIB}\n")
    assert backend.free_memory() == 0


@tells_memory
@pytest.mark.parametrize("limit", ["max", "1" + 18 * "0"], ids=["none", "more than the machine has"])
def test_a_container_without_a_limit_has_what_the_machine_has(group: Path, limit: str) -> None:
    (group / "memory.max").write_text(f"{limit}\n")
    free = backend.free_memory()
    assert free is not None and 100 * MIB < free <= backend.total_memory()


# -- what the results of trials depend on ----------------------------------------------------------------------------


def test_a_machine_is_known_by_its_chip_its_system_and_the_wheels_of_mlx() -> None:
    found = backend.identity.__wrapped__()
    assert str(mx.device_info().get("device_name")) in found
    assert f"mlx {mx.__version__}" in found
    assert backend.mlx_build().count(mx.__version__) >= 2, "the back end comes in a wheel of its own"


def test_macos_is_known_by_its_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"ProductVersion": "15.5", "ProductBuildVersion": "24F74"}
    monkeypatch.setattr(backend, "MACOS_VERSION", tmp_path / "SystemVersion.plist")
    backend.MACOS_VERSION.write_bytes(plistlib.dumps(facts))
    monkeypatch.setattr(mx, "device_info", lambda: {"device_name": "Apple M2"})
    assert backend.identity.__wrapped__().startswith("Apple M2, macOS 15.5 (24F74), mlx ")
    backend.MACOS_VERSION.write_bytes(b"not a list of properties")
    assert backend.identity.__wrapped__().startswith("Apple M2, "), "a file that cannot be read is no reason to fail"


def test_a_gpu_s_driver_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "MACOS_VERSION", tmp_path / "none")
    monkeypatch.setattr(backend, "NVIDIA_DRIVER", tmp_path / "version")
    backend.NVIDIA_DRIVER.write_text("NVRM version: NVIDIA UNIX Open Kernel Module 570.1\nGCC version: 13\n")
    assert "570.1, " in backend.identity.__wrapped__() and "GCC" not in backend.identity.__wrapped__()

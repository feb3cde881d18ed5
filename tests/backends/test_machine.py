"""Free memory of a machine or a container, what tells one machine from another, and settings that slow MLX down."""

from __future__ import annotations

import os
import plistlib
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.backends import machine as backend

MIB = 2**20


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A container's folder of limits, as version 2 of Linux's control groups has it."""
    if "SC_AVPHYS_PAGES" not in os.sysconf_names:
        pytest.skip("a system without containers")
    monkeypatch.setattr(backend, "CGROUP", tmp_path)
    (tmp_path / "memory.current").write_text(f"{30 * MIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {10 * MIB}\nactive_file 7\n")
    return tmp_path


def test_a_containers_limit_is_what_is_free_in_it_with_the_files_that_it_has_read(group: Path) -> None:
    (group / "memory.max").write_text(f"{100 * MIB}\n")
    assert backend.free_memory() == 80 * MIB


def test_a_container_that_is_full_has_nothing_free(group: Path) -> None:
    (group / "memory.max").write_text(f"{15 * MIB}\n")
    assert backend.free_memory() == 0


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


@pytest.mark.parametrize(
    ("gpu", "settings", "said"),
    [
        (True, {"MLX_MAX_OPS_PER_BUFFER": "500"}, "MLX_MAX_OPS_PER_BUFFER is set"),
        (True, {"MLX_MAX_MB_PER_BUFFER": "1000"}, "MLX_MAX_MB_PER_BUFFER is set"),
        (
            True,
            {"MLX_MAX_OPS_PER_BUFFER": "500", "MLX_MAX_MB_PER_BUFFER": "1000"},
            "MLX_MAX_OPS_PER_BUFFER and MLX_MAX_MB_PER_BUFFER are set",
        ),
        (True, {"MLX_MAX_OPS_PER_BUFFER": ""}, None),
        (True, {}, None),
        (False, {"MLX_MAX_OPS_PER_BUFFER": "500"}, None),
    ],
)
def test_settings_that_make_a_gpu_copy_all_slots_are_warned_of_once(
    gpu: bool,
    settings: dict[str, str],
    said: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in backend.COMMAND_BUFFER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(backend, "has_gpu", lambda: gpu)
    backend._warn_of_command_buffers.cache_clear()
    try:
        backend.require_backend()
        backend.require_backend()
    finally:
        backend._warn_of_command_buffers.cache_clear()
    lines = [record.getMessage() for record in caplog.records if "command buffers" in record.getMessage()]
    assert len(lines) == (said is not None)
    assert said is None or lines[0].startswith(said)


def test_a_buffer_that_a_launched_step_still_reads_is_copied_when_it_is_written_to() -> None:
    """Why the settings matter, on any device: a second holder of the buffer is what an unfinished step is."""
    index, row = mx.zeros((1, 64), dtype=mx.int32), mx.ones((1, 64))

    def address(array: mx.array) -> int:
        return int(np.array(array, copy=False).__array_interface__["data"][0])

    flat = mx.zeros((4096, 64))
    mx.eval(flat)
    before = address(flat)
    flat = mx.put_along_axis(flat, index, row, axis=0)
    mx.eval(flat)
    assert address(flat) == before, "in place"
    held = flat.reshape(64, 64, 64)
    mx.eval(held)
    flat = mx.put_along_axis(flat, index, row, axis=0)
    mx.eval(flat)
    assert address(flat) != before, "a copy"

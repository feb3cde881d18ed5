"""Memory that is free: the machine's, or a container's share of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localai_shim.backends import machine as backend

pytestmark = pytest.mark.skipif("SC_AVPHYS_PAGES" not in os.sysconf_names, reason="this system does not tell")

MIB = 2**20


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A container's folder of limits, as version 2 of Linux's control groups has it."""
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

"""Whether a process that worked on something still runs, or only its number does."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.state import processes
from localai_shim.state.processes import is_running, start_time
from tests import inside
from tests.tiny import tiny

needs_times = pytest.mark.skipif(not start_time(os.getpid()), reason="this system does not say when a process started")


def kinfo(seconds: int, microseconds: int) -> bytes:
    """A `kinfo_proc` of macOS: a `timeval` of 8 and 4 bytes and 4 of padding, then much else."""
    return struct.pack("<qi4x", seconds, microseconds) + bytes(632)


@needs_times
def test_a_process_is_known_by_its_number_and_its_start() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        started = start_time(child.pid)
        assert started and is_running(child.pid, started)
        assert not is_running(child.pid, started + "1"), "its number was another process's before"
    finally:
        child.communicate(b"\n")
    assert not is_running(child.pid, started)
    assert start_time(child.pid) == ""


def test_a_process_whose_start_is_not_known_is_known_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_running(os.getpid(), "")
    monkeypatch.setattr(processes, "start_time", lambda pid: "")
    assert is_running(os.getpid(), "17"), "it cannot be told apart"
    assert not is_running(2**22 + 1, "17")


def test_the_start_is_the_first_field_of_macos_entry() -> None:
    assert processes._macos_start(kinfo(1764298211, 4711)) == "1764298211.004711"
    assert processes._macos_start(b"") == "", "no such process"


def test_on_macos_a_process_is_told_from_one_that_had_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {os.getppid(): kinfo(1764298211, 5)}
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(processes, "_kinfo", lambda pid: table.get(pid, b""))
    started = start_time(os.getppid())
    assert is_running(os.getppid(), started)
    table[os.getppid()] = kinfo(1764298999, 5)
    assert not is_running(os.getppid(), started)


def test_a_system_without_process_table_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(pid: int) -> bytes:
        raise AttributeError("sysctl")

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(processes, "_kinfo", missing)
    assert start_time(os.getpid()) == ""


@needs_times
def test_a_response_of_a_dead_process_is_not_in_progress_though_its_number_was_given_away(tmp_path: Any) -> None:
    """The parent of these tests has the number now, and started at another time than the dead process."""
    options: Any = {"store": tmp_path / "store.db", "keep_alive": 0}
    with LocalOpenAI(tiny("qwen3"), **options) as client:
        store = inside.store(client)
        made = client.responses.create(model="any", input="Hello", max_output_tokens=16)
        kept = store.get("response", made.id)
        assert kept is not None
        for owner, status in (
            (f"{os.getppid()}:x:{start_time(os.getppid())}", "in_progress"),
            (f"{os.getppid()}:x:{start_time(os.getppid())}9", "failed"),
        ):
            store.save("response", made.id, {**kept, "status": "in_progress"}, owner=owner)
            assert client.responses.retrieve(made.id).status == status

"""The watchdog of a leader hears of a follower's end and of its leader's in any order; `test_faults` has its work."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from localai_shim.scale.parallel.watchdog import Watchdog

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="NCCL is on Linux only")


@pytest.fixture
def follower() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("order", ["none is lost", "lost, ending", "ending, lost", "lost, alive, ending"])
def test_a_leader_that_closes_the_group_as_it_ends_is_not_held_up(
    order: str, follower: subprocess.Popen[bytes]
) -> None:
    watchdog = Watchdog([follower], frozen_seconds=60)
    for event in order.split(", "):
        if event == "lost":
            follower.kill()
            follower.wait()
            time.sleep(0.3)  # which it most likely hears of before the rest
        elif event == "alive":
            watchdog.beat()
        elif event == "ending":
            watchdog._exiting()
    began = time.monotonic()
    watchdog.close()
    assert time.monotonic() - began < 8
    assert watchdog._process.returncode == 0

"""One Ray for all tests here, as a program would have it that uses Ray already, and one client of two replicas."""

from __future__ import annotations

import os

os.environ["RAY_AUTH_MODE"] = "disabled"  # Ray would write a token into the home folder
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  # its spelling

from collections.abc import Iterator

import pytest
import ray

from localai_shim.ray import RayOpenAI
from tests.scale.ray.kit import until


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    ray.init("local", include_dashboard=False, object_store_memory=200 << 20)
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def shared(cluster: None) -> Iterator[RayOpenAI]:
    with RayOpenAI(replicas=2) as client:
        yield client


@pytest.fixture
def replicas(shared: RayOpenAI) -> RayOpenAI:
    """A client of two replicas that take requests and have nothing to do."""
    until(lambda: all(each.state == "ready" for each in shared.stats().replicas))
    until(lambda: not any(each.in_flight for each in shared.stats().replicas))
    until(lambda: not shared.stats().total.running)
    return shared

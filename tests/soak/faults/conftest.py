"""Clients that all tests of faults share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.soak.faults.load import Load


@pytest.fixture(scope="session")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    made = Load(tmp_path_factory.mktemp("faults"))
    yield made
    made.close()

"""Clients that all tests of faults share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localai_shim.engine.prefix import sharing
from tests.soak.faults.load import Load


@pytest.fixture(scope="session", autouse=True)
def _short_prompts_share() -> Iterator[None]:
    """Rows share beginnings as short as those of the load."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "MIN_SHARED_TOKENS", 8)
        patch.setattr(sharing, "MOST_SAVED_TOKENS", 0)
        yield


@pytest.fixture(scope="session")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    made = Load(tmp_path_factory.mktemp("faults"))
    yield made
    made.close()

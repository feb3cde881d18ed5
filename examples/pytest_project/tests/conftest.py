"""What all tests of this project share."""

from __future__ import annotations

import pytest

from localai_shim.testing import LocalOpenAIConfig


@pytest.fixture(scope="session")
def local_openai_config() -> LocalOpenAIConfig:
    return {"model": "gpt-4o-2024-08-06", "client": {"max_retries": 2}}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"

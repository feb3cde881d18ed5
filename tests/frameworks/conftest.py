"""Frameworks' own settings, which are the process's: each test leaves them as it found them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _default_client_of_agents() -> Iterator[None]:
    """The page's block for openai-agents sets a default client, which later tests with clients of theirs would get."""
    yield
    shared: Any = sys.modules.get("agents.models._openai_shared")
    if shared is not None:
        shared.set_default_openai_client(None)

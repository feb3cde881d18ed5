"""What tests of scripts share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localai_shim.testing import ScriptedOpenAI


@pytest.fixture
def client() -> Iterator[ScriptedOpenAI]:
    """It has no script yet."""
    with ScriptedOpenAI() as made:
        yield made

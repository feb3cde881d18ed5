"""A model with its vision encoder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.gguf.seeing import NAME, unpack_both


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return unpack_both(NAME, tmp_path)

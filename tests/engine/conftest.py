"""What several tests of the engine share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.engine.recording import MakeWorld, World


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """What was warned of so far."""
    told: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    handler = Keeping(logging.WARNING)
    logging.getLogger("localai_shim").addHandler(handler)
    yield told
    logging.getLogger("localai_shim").removeHandler(handler)


@pytest.fixture
def world() -> MakeWorld:
    """Makes a `World`."""
    return World

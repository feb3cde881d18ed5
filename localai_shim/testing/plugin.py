"""The pytest plugin: fixtures and hooks. It imports nothing that a test has not asked for."""

from __future__ import annotations

import pytest

from . import guard


def pytest_addoption(parser: pytest.Parser) -> None:
    guard.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    guard.configure(config)

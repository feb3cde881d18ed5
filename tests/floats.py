"""Comparison of answers whose numbers a model computed in passes of different shapes."""

from __future__ import annotations

from typing import Any

import openai
import pytest

TOLERANCE = 1e-4
"""Logprobs of float32: their last digits depend on the processor, and on which tokens and rows share a pass."""


def nearly(made: Any) -> Any:
    """Value that equals an answer, or a part of one, whose floats have other last digits."""
    value = made.to_dict() if isinstance(made, openai.BaseModel) else made
    if isinstance(value, float):
        return pytest.approx(value, abs=TOLERANCE)
    if isinstance(value, dict):
        return {name: nearly(each) for name, each in value.items()}
    return [nearly(each) for each in value] if isinstance(value, list | tuple) else value


def plain(made: Any) -> Any:
    """An answer, or a part of one, in the form that `nearly` compares."""
    value = made.to_dict() if isinstance(made, openai.BaseModel) else made
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value

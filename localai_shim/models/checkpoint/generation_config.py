"""Sampling that a checkpoint recommends: its generation_config.json, or a GGUF file's metadata."""

from __future__ import annotations

import logging
import math
from pathlib import Path

from ...types import Json
from ..gguf.checkpoint import SAMPLING
from ..gguf.detection import is_gguf
from .files import read_json

log = logging.getLogger("localai_shim")

_RANGES = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "top_k": (-1, math.inf),
    "repetition_penalty": (0.001, 100),
    "max_new_tokens": (1, math.inf),
}
"""The settings that are used here, and their least and largest values: those of requests."""


def generation_defaults(path: Path, config: Json) -> Json:
    """The settings of a folder or a GGUF file, without those that mean nothing, which the log names."""
    file = path if is_gguf(path) else path / "generation_config.json"
    return usable_settings(config[SAMPLING] if is_gguf(path) else read_json(file), str(file))


def usable_settings(given: Json, file: str) -> Json:
    """Settings without those that mean nothing, which the log names."""
    usable = dict(given)
    for name, (least, most) in _RANGES.items():
        value = given.get(name)
        known = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None or (known and least <= value <= most):
            continue
        log.warning(
            "'%s': %s is %.100r, and not a number from %g to %g; requests get OpenAI's default instead",
            file,
            name,
            value,
            least,
            most,
        )
        del usable[name]
    return usable

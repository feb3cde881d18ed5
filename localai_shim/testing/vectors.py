"""Vectors of texts, made up: the same for the same text in every process, and near each other for texts with words in
common."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_ORDER_WEIGHT = 0.1  # of the text as a whole, so that other orders of the same words differ a little


def make_up_vectors(texts: Sequence[str], dimensions: int) -> npt.NDArray[np.float32]:
    """`[texts, dimensions]`, rows of length 1: the sum of a vector for each of a text's words."""
    import numpy as np

    made = np.empty((len(texts), dimensions), np.float32)
    for row, text in zip(made, texts, strict=True):
        words = re.findall(r"\w+", text.lower())
        row[:] = _ORDER_WEIGHT * _direction(text, dimensions) + sum(_direction(word, dimensions) for word in words)
        row /= np.linalg.norm(row)
    return made


@functools.lru_cache(maxsize=4096)
def _direction(text: str, dimensions: int) -> npt.NDArray[np.float32]:
    """What a text alone stands for. Nobody writes to it."""
    import numpy as np

    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).standard_normal(dimensions, np.float32)

"""Vectors of texts and scores of documents, made up: the same in every process, and by the words that texts share."""

from __future__ import annotations

import functools
import hashlib
import math
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
        words = _words(text)
        row[:] = _ORDER_WEIGHT * _direction(text, dimensions) + sum(_direction(word, dimensions) for word in words)
        row /= np.linalg.norm(row)
    return made


class Pair(list[int]):
    """Token ids of a query and a document, which know the texts."""

    def __init__(self, query: str, document: str, tokens: Sequence[int]) -> None:
        super().__init__(tokens)
        self.query, self.document = query, document


def make_up_relevance(pairs: Sequence[Pair]) -> npt.NDArray[np.float32]:
    """`[pairs, 1]`: 0 where a document has none of the query's words, 1 where it has all of them and no others."""
    import numpy as np

    words = [(set(_words(pair.query)), set(_words(pair.document))) for pair in pairs]
    made = [[len(a & b) / math.sqrt(len(a) * len(b)) if a and b else 0.0] for a, b in words]
    return np.array(made, np.float32)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


@functools.lru_cache(maxsize=4096)
def _direction(text: str, dimensions: int) -> npt.NDArray[np.float32]:
    """Direction of a text on its own. It is never written to."""
    import numpy as np

    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).standard_normal(dimensions, np.float32)

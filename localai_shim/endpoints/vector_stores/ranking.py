"""Ranks of chunks by the similarity of vectors and by words, combined by reciprocal rank fusion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

RANK_CONSTANT = 60  # as in the paper: https://plg.uwaterloo.ca/~gvcormac/cormacksigir09-rrf.pdf
MOST_CANDIDATES = 200
"""Chunks of each ranking that are combined."""


class Weights(NamedTuple):
    """Weights of the two rankings."""

    embedding: float
    text: float


EVEN = Weights(1.0, 1.0)


class Ranking(NamedTuple):
    """Chunks of one query, in two orders."""

    similarities: npt.NDArray[np.float32]
    """Cosine of each chunk."""
    by_words: Sequence[int]
    """Places of the chunks with words of the query, the most relevant first."""


def by_similarity(similarities: npt.NDArray[np.float32], most: int) -> list[tuple[int, float]]:
    """(place, score) of the most similar chunks, the best first: the score is the cosine, at least 0."""
    return [(place, min(1.0, max(0.0, float(similarities[place])))) for place in _best(similarities, most)]


def fused(rankings: Sequence[Ranking], weights: Weights, most: int) -> list[tuple[int, float]]:
    """(place, score) of the best chunks for all queries together, the best first.

    The score is 1 for a chunk that is the first in each ranking.
    """
    scores: dict[int, float] = {}
    top = len(rankings) * (weights.embedding + weights.text) / (RANK_CONSTANT + 1)
    for ranking in rankings:
        for weight, places in (
            (weights.embedding, _best(ranking.similarities, max(MOST_CANDIDATES, most))),
            (weights.text, ranking.by_words),
        ):
            for rank, place in enumerate(places, 1):
                scores[place] = scores.get(place, 0.0) + weight / (RANK_CONSTANT + rank) / top
    best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [(place, min(1.0, score)) for place, score in best[:most] if score > 0]


def _best(similarities: npt.NDArray[np.float32], most: int) -> list[int]:
    """Places of the largest numbers, the largest first; equal ones in their order."""
    import numpy as np

    if most < len(similarities):
        found = np.sort(np.argpartition(similarities, -most)[-most:])
    else:
        found = np.arange(len(similarities))
    order = np.argsort(-similarities[found], kind="stable")
    return [int(i) for i in found[order]]

"""A step that is built before its tokens are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx


@dataclass(slots=True)
class Built:
    """The graph of a step whose tokens are not known yet."""

    tokens: Any
    """A view of its input, `[rows when it was built]` int32."""
    places: list[int]
    """Where the tokens of the present rows go."""
    logits: Any
    """`[rows, vocabulary]`, nothing of which is computed yet."""

    def take(self, indices: Sequence[int]) -> Built:
        """For these of the present rows; the others run to no purpose."""
        return Built(self.tokens, [self.places[i] for i in indices], self.logits[mx.array(list(indices))])

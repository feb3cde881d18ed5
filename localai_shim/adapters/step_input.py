"""What a model is asked to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mlx.core as mx


@dataclass(frozen=True, slots=True)
class StepInput:
    """One forward pass: k tokens of each row. Decode is k = 1; a chunk of a prompt is all of its tokens."""

    tokens: mx.array
    """`[rows, k]` int32."""
    layers: list[Any]
    """The rows' caches, an object per layer: the pass writes what its tokens leave into them."""
    counts: Sequence[int] | None = None
    """How many of a row's k tokens count, per row: the others are padding on the right, and whoever asks for the pass
    takes what they leave out of the caches. None: all count."""
    positions: mx.array | None = None
    """`[rows, k]` int32, each token's position in its row; None: they go on from the layers' own `offset`."""
    state: Sequence[object] | None = None
    """What the model keeps of each row beside the caches, such as an MRoPE delta or the embeddings of its images; None
    for a row of text. None: all rows are text."""

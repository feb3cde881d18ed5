"""What a model is asked to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..media import MediaSpan
from .contents import RowCache

if TYPE_CHECKING:
    import mlx.core as mx


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """What a model's tower made of one item: rows that stand in its placeholders' places."""

    rows: mx.array
    """`[n, hidden]`, evaluated."""
    deep: tuple[mx.array, ...] = ()
    """`[n, hidden]` each, for models that add such rows in their first layers (deepstack)."""

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes) + sum(int(rows.nbytes) for rows in self.deep)


@dataclass(frozen=True, slots=True)
class StepInput:
    """One forward pass: k tokens of each row. Decode is k = 1; a chunk of a prompt is all of its tokens."""

    tokens: mx.array
    """`[rows, k]` int32."""
    layers: RowCache
    """The rows' caches, an object per layer: the pass writes what its tokens leave into them."""
    counts: Sequence[int] | None = None
    """How many of a row's k tokens count, per row: the others are padding on the right, and whoever asks for the pass
    takes what they leave out of the caches. None: all count."""
    state: Sequence[object] | None = None
    """What `Model.row_state` made for each row, None where that is nothing. None: it is for all rows."""
    media: Sequence[tuple[MediaSpan, Features]] = ()
    """Of a chunk of one row's prompt: the items of which placeholders are among its tokens, with their features."""
    ends: bool = False
    """Its tokens end their rows' prompts: `Model.prefill` returns the logits after the last one that counts of each."""

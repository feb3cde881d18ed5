"""Positions of rows in models that count an image's rows and columns (MRoPE): three numbers per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx import nn

from ...engine.cache_contents import LayerCache
from ...engine.ports import StepInput
from ...media import MediaSpan

_GRIDS = (("image", "image_grid_thw"), ("video", "video_grid_thw"))


@dataclass(frozen=True, slots=True, eq=False)
class RowPositions:
    """The positions of a prompt with media. Its array is never written to."""

    ids: npt.NDArray[np.int32]
    """`[3, tokens of the prompt]`"""
    delta: int
    """Number that is added to the place of a token behind the prompt."""

    def span(self, start: int, k: int) -> npt.NDArray[np.int32]:
        """`[3, k]`: of k tokens from this place on, behind the prompt's end as well."""
        known = self.ids[:, start : start + k]
        behind = np.arange(start + known.shape[1], start + k, dtype=np.int32) + np.int32(self.delta)
        return np.concatenate([known, np.broadcast_to(behind, (3, len(behind)))], axis=1)


def offset_of(layers: Sequence[LayerCache]) -> int | mx.array:
    """Number of tokens that caches hold: an int, or an array of it for the rows of a batch."""
    parts = (part for layer in layers for part in getattr(layer, "caches", (layer,)))
    found: int | mx.array = next(part.offset for part in parts if hasattr(part, "offset"))
    return found


def row_positions(language: nn.Module, tokens: Sequence[int], spans: Sequence[MediaSpan]) -> RowPositions:
    """The positions that the model's own code computes for a prompt; the model keeps nothing of it.

    Args:
        language: mlx-vlm's `LanguageModel`, which has a `get_rope_index`.
    """
    grids: dict[str, mx.array] = {}
    for kind, name in _GRIDS:
        inputs = [span.media.inputs for span in spans if span.media.kind == kind]
        found = [each[name] for each in inputs if name in each]  # MiniCPM-V has none, and counts tokens
        if found:
            grids[name] = mx.array(np.concatenate(found))
    ids = mx.array([list(tokens)])
    made, _ = language.get_rope_index(ids, attention_mask=mx.ones_like(ids), **grids)
    positions = np.array(made).astype(np.int32)
    # [3, 1, tokens], or [1, tokens, 3], or for text [1, tokens]
    if positions.ndim == 3:
        positions = positions[:, 0] if positions.shape[1] == 1 else positions[0].T
    positions = np.broadcast_to(positions, (3, len(tokens)))
    positions.flags.writeable = False
    return RowPositions(positions, int(positions.max()) + 1 - len(tokens))


class StepPositions:
    """Makes the positions of a pass, of what its layers and its rows' states say.

    Args:
        last: the three numbers are the last axis, and not the first.
        one: there is one number per token.
    """

    def __init__(self, last: bool = False, one: bool = False) -> None:
        self._last, self._one = last, one
        self._states: tuple[object, ...] | None = None  # what the deltas were made of
        self._deltas: mx.array | None = None

    def of(self, step: StepInput, rows: int, k: int) -> tuple[mx.array, int | mx.array | None]:
        """`[3, rows, k]` int32 (`[rows, k, 3]` for `last`, `[rows, k]` for `one`), lazy; and the first position of each
        row, or of all: None for tokens with three positions, or with gaps.
        """
        offset, state = offset_of(step.layers), step.state[0] if step.state else None
        starts: int | mx.array | None
        if rows == 1 and not isinstance(offset, mx.array) and isinstance(state, RowPositions):
            ids = state.span(int(offset), k)
            first = int(ids[0, 0])
            made, starts = mx.array(ids[:, None]), first if (ids == np.arange(first, first + k)).all() else None
        else:
            places = offset.reshape(-1, 1) if isinstance(offset, mx.array) else mx.array([[offset]], mx.int32)
            if k > 1:
                places = places + mx.arange(k, dtype=mx.int32)
            deltas = self._of_states(tuple(step.state or ()), rows)
            made = mx.broadcast_to(places if deltas is None else places + deltas, (3, rows, k))
            starts = offset if deltas is None else offset + deltas[:, 0]
        return made.transpose(1, 2, 0) if self._last else made[0] if self._one else made, starts

    def _of_states(self, states: tuple[object, ...], rows: int) -> mx.array | None:
        """`[rows, 1]` int32: what is added to the places of each row; None where that is nothing."""
        if not any(isinstance(state, RowPositions) for state in states):
            return None
        if states != self._states or self._deltas is None or self._deltas.shape[0] != rows:
            deltas = np.zeros((rows, 1), np.int32)
            for row, state in enumerate(states):
                deltas[row] = state.delta if isinstance(state, RowPositions) else 0
            self._states, self._deltas = states, mx.array(deltas)
        return self._deltas

"""Cache of what a row's first pass computes, and no later one changes, such as keys and values of a sound."""

from __future__ import annotations

from mlx_lm.models.cache import ArraysCache


class ConstantArrays(ArraysCache):  # type: ignore[misc]
    """Arrays of one row, or of several, that stay as they are."""

"""Norms of Qwen's heads: Hugging Face's files hold what is added to 1, MLX's the factors themselves.

A head whose norms are off by 1 computes, and guesses nothing right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .files import Form

if TYPE_CHECKING:
    import mlx.core as mx

MAX_DELTA_MEAN = 1.3  # of the norms of queries and keys: about 0.8 as what is added to 1, and 1.8 as factors
MAX_FACTOR_MEAN = 2.4  # of a model's norms of queries: above, 1 was added twice
_DECIDING = ("q_norm.weight", "k_norm.weight")


def as_factors(tensors: dict[str, mx.array], form: Form) -> tuple[dict[str, mx.array], bool]:
    """A head's tensors with norms as MLX multiplies by them, and whether 1 was added.

    Args:
        tensors: of a head.
        form: of the file. If it does not say, the norms of queries and keys decide: their means are apart. Those of
            `pre_fc_norm_*` are below 0.5 in both forms.
    """
    adds = form == "hf" or (form is None and _are_deltas(tensors))
    if not adds:
        return tensors, False
    return {name: array + 1 if _is_norm(name, array) else array for name, array in tensors.items()}, True


def mean_of(norm: mx.array) -> float:
    """Mean of a norm's factors."""
    import mlx.core as mx

    mean = norm.astype(mx.float32).mean().item()
    assert isinstance(mean, float)
    return mean


def _are_deltas(tensors: dict[str, mx.array]) -> bool:
    means = [mean_of(array) for name, array in tensors.items() if name.endswith(_DECIDING)]
    return bool(means) and sum(means) / len(means) < MAX_DELTA_MEAN


def _is_norm(name: str, array: mx.array) -> bool:
    return array.ndim == 1 and "norm" in name.rpartition(".")[0].rpartition(".")[2]

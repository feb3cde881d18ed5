"""Forms that a model needs on a CUDA GPU; `docs/backends.md` says why, and when each goes."""

from __future__ import annotations

import mlx.nn as nn

from .attention import use_attention
from .dense import use_dense_kernels
from .one_position import use_one_position
from .quantised import batch_quantised_layers
from .tower_widths import fill_widths


def prepare_for_cuda(model: nn.Module) -> dict[str, int]:
    """Give a model's layers the forms for CUDA; returns how many have each."""
    return {
        "products with quantised weights": batch_quantised_layers(model),
        "widths of towers filled up": fill_widths(model),
        "products with half precision": use_dense_kernels(model),
        "attention": use_attention(model),
        "one position per token": use_one_position(model),
    }

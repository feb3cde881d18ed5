"""Has a model compute in the forms that its machine is best at.

All that changes is the model's own objects: weights, and classes of layers. No class, module or global of others is
touched, so no other model in the process notices, and nothing has to be undone when the model goes.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.nn as nn

from .machine import has_gpu, on_cuda
from .patches import Function
from .tower_windows import use_windows

Applied = dict[str, int]
"""Forms that were applied, and to how many layers or blocks."""


def prepare(model: nn.Module, memory_limit: int | None = None) -> Applied:
    """Prepare a model that was loaded.

    Args:
        model: mlx-lm's or mlx-vlm's; changed in place.
        memory_limit: bytes for the model and its rows together.
    """
    if on_cuda():
        from .cuda.prepare import prepare_for_cuda

        applied = prepare_for_cuda(model)
    elif not has_gpu():
        from .x86.prepare import prepare_for_cpu

        applied = prepare_for_cpu(model, memory_limit)
    else:
        applied = {}  # MLX's forms are best on Metal
    applied["attention of towers in windows"] = use_windows(model)
    return {name: count for name, count in applied.items() if count}


def attention_form() -> Callable[[Function], Function] | None:
    """Return what makes this machine's form of the libraries' attention; None if it is used as it is."""
    if on_cuda():
        from .cuda.attention import attending

        return attending
    if not has_gpu():
        from .x86.forms import attending as attending_on_cpu

        return attending_on_cpu
    return None

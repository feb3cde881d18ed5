"""Custom kernels of MLX, whose functions are in a file next to the module that calls them.

MLX copies and hashes a kernel's source for each call, so the source is short: it calls a function of an included file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

Compiled = Callable[..., list[mx.array]]
"""A kernel of MLX, which is called with arrays, a grid, and the shapes of its outputs."""


def type_name(half: bool) -> str:
    """The CUDA type of float16, or of bfloat16."""
    return "__half" if half else "__nv_bfloat16"


def include_line(module: str) -> str:
    """The source line that includes the `.cuh` file of a module, whose `__file__` is given."""
    return f'#include "{Path(module).with_suffix(".cuh")}"\n'


def cuda_kernel(
    module: str,
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    source: str,
    *,
    ensure_row_contiguous: bool = True,
    shared_memory: int = 0,
) -> Compiled:
    """Make a kernel that calls functions in the `.cuh` file of a module.

    Args:
        module: the module's `__file__`.
        ensure_row_contiguous: MLX copies inputs that are no contiguous rows.
        shared_memory: bytes for each block.
    """
    make: Any = mx.fast.cuda_kernel  # which is declared to return an object
    made: Compiled = make(
        name,
        inputs,
        outputs,
        source,
        include_line(module),
        ensure_row_contiguous=ensure_row_contiguous,
        shared_memory=shared_memory,
    )
    return made

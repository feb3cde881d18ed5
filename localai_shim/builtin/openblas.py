"""OpenBLAS for MLX's CPU build."""

import ctypes
from contextlib import suppress


def load_openblas() -> None:
    """Loads OpenBLAS where it is installed: MLX multiplies matrices many times faster with its symbols there first."""
    with suppress(OSError):
        ctypes.CDLL("libopenblas.so.0", mode=ctypes.RTLD_GLOBAL)

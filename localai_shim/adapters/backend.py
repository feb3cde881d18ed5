"""Finding MLX's back end, and on Linux a fast BLAS for it."""

from __future__ import annotations

import ctypes
import ctypes.util
import logging
import sys
import threading

from ..core import BackendMissingError

log = logging.getLogger("localai_shim")

# Libraries that export plain cblas_* names, fastest first. The mlx-cpu wheel links the reference BLAS, whose float32
# products are 18 times as slow on two cores; a library loaded globally before MLX takes its place.
_BLAS = ("libmkl_rt.so.2", "libopenblas.so.0", "libblis.so.4", "libopenblas.so")

_lock = threading.Lock()
_blas: str | None = None


def require_backend() -> None:
    """Import MLX, or say what to install.

    Raises:
        BackendMissingError: MLX is absent or has no back end.
    """
    with _lock:
        if "mlx.core" in sys.modules:
            return
        if sys.platform == "linux":
            _load_blas()
        try:
            import mlx.core  # noqa: F401
        except ImportError as error:
            raise BackendMissingError(_advice(error)) from error


def blas() -> str | None:
    """Name of the BLAS that was loaded in place of the one in MLX's wheel, if one was found."""
    return _blas


def _load_blas() -> None:
    global _blas
    for name in _BLAS:
        try:
            library = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        if hasattr(library, "cblas_sgemm"):
            _blas = name
            log.debug("MLX's CPU products go through %s", name)
            return


def _advice(error: ImportError) -> str:
    if sys.platform == "darwin":
        return f"MLX could not be imported ({error}). Install it with: pip install mlx"
    return (
        f"MLX has no back end here ({error}). On Linux install one of localai_shim's extras: "
        "pip install 'localai-shim[cpu]' or, with an NVIDIA GPU, pip install 'localai-shim[cuda13]'"
    )

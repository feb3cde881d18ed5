"""Selects the forms in which this machine computes models fastest."""

from __future__ import annotations

from .machine import has_gpu, on_cuda
from .own_forms import OwnForms


def forms() -> OwnForms:
    """Forms of the device that MLX computes on now."""
    if on_cuda():
        from .cuda.forms import CudaForms

        return CudaForms()
    if not has_gpu():
        from .x86.forms import CpuForms

        return CpuForms()
    return OwnForms()

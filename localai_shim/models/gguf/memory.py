"""MLX arrays for NumPy to write to, in memory that is not cleared before."""

from __future__ import annotations

import ctypes
import io
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...backends.machine import has_gpu
from ...backends.memory import running_python

if TYPE_CHECKING:
    import mlx.core as mx

HUGE_PAGE_BYTES = 1 << 21
_MADV_HUGEPAGE = 14


def empty(shape: Sequence[int], kind: type[Any]) -> mx.array:
    """An array of any content.

    MLX itself has only `zeros`, which one thread clears at about 1 GB/s. It also reads arrays from files: this file
    leaves the memory that it is given to as it is.
    """
    import mlx.core as mx

    header = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(np.dtype(kind))
    np.lib.format.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": tuple(shape)})
    with running_python:
        array = mx.load(_Unwritten(header.getvalue()), format="npy")
        assert isinstance(array, mx.array)
        mx.eval(array)
    if not has_gpu():
        _ask_for_huge_pages(np.array(array, copy=False))
    return array


class _Unwritten(io.BytesIO):
    """A file of these bytes, and of as many others as are asked for."""

    def readinto(self, buffer: Any, /) -> int:
        return super().readinto(buffer) if self.tell() < len(self.getvalue()) else len(buffer)


def _ask_for_huge_pages(values: NDArray[Any]) -> None:
    """Linux gives memory in pages of 4 KB, which takes longer than to fill them; it may decline larger ones."""
    if sys.platform == "linux" and values.nbytes >= 2 * HUGE_PAGE_BYTES:
        start = -(-values.ctypes.data // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
        size = (values.ctypes.data + values.nbytes - start) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_HUGEPAGE)

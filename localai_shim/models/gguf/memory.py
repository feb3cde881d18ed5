"""MLX arrays for NumPy to write to: in memory that is not cleared before, or that the CPU keeps writing to."""

from __future__ import annotations

import ctypes
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ...backends.machine import has_gpu, on_cuda
from ...backends.memory import running_python

HUGE_PAGE_BYTES = 1 << 21
_MADV_HUGEPAGE = 14
_ON_HOST, _CPU = {"set": (3, 5), "unset": (4, 6)}, -1
"""CUDA's numbers: to prefer a place for memory and to let a GPU read it there, to undo both, and for the CPU."""


def empty(shape: Sequence[int], kind: type[np.generic]) -> mx.array:
    """An array of any content.

    MLX itself has only `zeros`, which one thread clears at about 1 GB/s. It also reads arrays from files: this file
    leaves the memory that it is given to as it is.
    """
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


def compute(*arrays: mx.array) -> None:
    """Begin to compute arrays; their inputs are freed then."""
    begin: Callable[..., None] = mx.async_eval
    begin(arrays)


class Staging:
    """A buffer that the CPU fills again and again, and a GPU reads.

    Attributes:
        array: the buffer, `[bytes]` uint8.
        users: arrays that are computed from its content.
    """

    def __init__(self, size: int) -> None:
        self.array = empty((size,), np.uint8)
        self.users: Sequence[mx.array] = ()
        self.memory = np.array(self.array, copy=False)

    def free(self) -> NDArray[np.uint8]:
        """The buffer's memory, as soon as its content is no longer needed."""
        mx.eval(self.users)
        self.users = ()
        return self.memory


@contextmanager
def staging(size: int) -> Iterator[tuple[Staging, Staging]]:
    """Two buffers, one of which can be filled while the other is read.

    CUDA moves memory to where it is used, and back when the CPU writes to it, which takes longer than reading a file.
    These buffers stay in the host's memory: a load took 0.5 s instead of 1.15 s (H200). If the driver refuses that,
    they are moved.
    """
    both = Staging(size), Staging(size)
    for buffer in both:
        _advise(buffer.memory, "set")
    try:
        yield both
    finally:
        for buffer in both:
            buffer.free()
            _advise(buffer.memory, "unset")  # MLX uses the memory for other arrays later


def _advise(values: NDArray[np.generic], what: str) -> None:
    if on_cuda():
        preferred, accessed = _ON_HOST[what]
        advise, start, size = ctypes.CDLL("libcuda.so.1").cuMemAdvise, values.ctypes.data, values.nbytes
        advise(ctypes.c_uint64(start), ctypes.c_size_t(size), ctypes.c_int(preferred), ctypes.c_int(_CPU))
        advise(ctypes.c_uint64(start), ctypes.c_size_t(size), ctypes.c_int(accessed), ctypes.c_int(0))


class _Unwritten(io.BytesIO):
    """A file of these bytes, and of as many others as are asked for."""

    def readinto(self, buffer: Any, /) -> int:
        return super().readinto(buffer) if self.tell() < len(self.getvalue()) else len(buffer)


def _ask_for_huge_pages(values: NDArray[np.generic]) -> None:
    """Linux gives memory in pages of 4 KB, which takes longer than to fill them; it may decline larger ones."""
    if sys.platform == "linux" and values.nbytes >= 2 * HUGE_PAGE_BYTES:
        start = -(-values.ctypes.data // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
        size = (values.ctypes.data + values.nbytes - start) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_HUGEPAGE)

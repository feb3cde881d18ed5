"""A fast BLAS for MLX on Linux CPUs: finding it, and loading it before MLX binds its calls."""

from __future__ import annotations

import _ctypes
import ctypes
import importlib.metadata
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger("localai_shim")

# Libraries that export plain cblas_* names, fastest first. The mlx-cpu wheel links the reference BLAS, whose float32
# products are 18 times as slow on two cores; a library loaded globally before MLX takes its place, for LAPACK as well
# where it has that. Large products are as fast in MKL as in OpenBLAS; those of one row, a lone stream's decoding, take
# MKL 0.14 ms where OpenBLAS takes 0.36 (2,048 x 768, two cores of an EPYC).
BLAS_LIBRARIES = ("libmkl_rt.so.3", "libmkl_rt.so.2", "libopenblas.so.0", "libblis.so.4", "libopenblas.so")

BLAS_PRODUCTS = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")  # those that MLX calls

# What OpenBLAS takes a processor for that came after it, and what such a one has that the name's has not.
UNKNOWN_CORE = b"Prescott"
CORES = {"SkylakeX": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}, "Haswell": {"avx2", "fma"}}
"""By OpenBLAS's names, fastest first."""

MKL_SEQUENTIAL = 1  # MKL_THREADING_SEQUENTIAL in mkl_service.h


class _Origin(ctypes.Structure):
    """`Dl_info`: the answer of `dladdr` about a function."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def load_blas() -> None:
    """Load the fastest BLAS that there is for the whole process: MLX's calls are bound to it at its import."""
    path = found()
    if path is not None:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        log.debug("MLX's CPU products go through %s", path)


def blas() -> str | None:
    """File name of the BLAS that serves MLX's products instead of the one in its wheel, if there is one.

    It is the one whose names the whole process sees: loaded by `load_blas`, by LD_PRELOAD, or by others before MLX.
    """
    if sys.platform != "linux":
        return None
    process, origin = ctypes.CDLL(None), _Origin()
    if not hasattr(process, BLAS_PRODUCTS[0]) or not process.dladdr(process[BLAS_PRODUCTS[0]], ctypes.byref(origin)):
        return None
    return Path(os.fsdecode(origin.file)).name


def found() -> str | None:
    """Name or path of the fastest BLAS that the dynamic linker finds, made ready for this machine."""
    for path in _candidates():
        try:
            library = _for_this_core(ctypes.CDLL(path), path)
        except OSError:
            continue
        if not all(hasattr(library, name) for name in BLAS_PRODUCTS):
            continue
        if hasattr(library, "MKL_Set_Threading_Layer"):
            _settle_threads(library, path)
        return path
    return None


def _for_this_core(library: ctypes.CDLL, path: str) -> ctypes.CDLL:
    """OpenBLAS, loaded once more with a name for the processor where it is older than that.

    It takes one that it does not know for one of 2004: OpenBLAS 0.3.21 (Debian 12) multiplies on an Emerald Rapids at
    24 GFLOP/s a core, and at 120 once it is told.
    """
    if "OPENBLAS_CORETYPE" in os.environ or not hasattr(library, "openblas_get_corename"):
        return library
    library.openblas_get_corename.restype = ctypes.c_char_p
    core = next((name for name, needed in CORES.items() if needed <= _processor_flags()), None)
    if core is None or library.openblas_get_corename() != UNKNOWN_CORE:
        return library
    _ctypes.dlclose(library._handle)  # it asks once, when it is loaded
    os.environ["OPENBLAS_CORETYPE"] = core
    try:
        return ctypes.CDLL(path)
    finally:
        del os.environ["OPENBLAS_CORETYPE"]


def _processor_flags() -> set[str]:
    """Instructions that the processor has, as Linux names them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())


def _candidates() -> Iterator[str]:
    """Paths and names for the dynamic linker, best first."""
    # PyPI's mkl puts its libraries into the environment's own lib folder, where the linker does not look.
    try:
        files = importlib.metadata.files("mkl") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    yield from (str(file.locate()) for file in files if file.name.startswith("libmkl_rt.so"))
    yield from BLAS_LIBRARIES


def _settle_threads(library: ctypes.CDLL, path: str) -> None:
    """Let MKL run without threads where Intel's OpenMP is missing: it would end the process at the first product.

    GNU's OpenMP is no way out: its threads wait for each other so busily that products take 20 times as long when the
    cores have other work.
    """
    if "MKL_THREADING_LAYER" in os.environ:
        return
    for name in (str(Path(path).with_name("libiomp5.so")), "libiomp5.so"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return
    library.MKL_Set_Threading_Layer(MKL_SEQUENTIAL)

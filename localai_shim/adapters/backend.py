"""MLX's back end: finding it, a fast BLAS for it on Linux, and what it can do."""

from __future__ import annotations

import _ctypes
import ctypes
import importlib.metadata
import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from ..types import BackendMissingError

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

UNKNOWN_MEMORY_BYTES = 8 * 2**30  # the least that a Mac with Apple's chips has

# In the messages of MLX's allocators, Metal's command buffers and CUDA.
OUT_OF_MEMORY_TEXTS = ("Unable to allocate", "Insufficient Memory", "out of memory")

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
    """File name of the BLAS that was loaded in place of the one in MLX's wheel, if one was found."""
    return _blas


def describe_backend() -> str:
    """What MLX computes with: 'gpu', or 'cpu' and the BLAS that takes the place of the one in MLX's wheel."""
    import mlx.core as mx

    if mx.default_device() == mx.Device(mx.gpu):
        return "gpu"
    if sys.platform != "linux":
        return "cpu"
    return f"cpu, {_blas or 'the BLAS of its wheel, which is slow: see the README'}"


def gpu_memory() -> int | None:
    """Bytes of memory that MLX may use on a GPU; None where it computes on the CPU."""
    import mlx.core as mx

    if mx.default_device() != mx.Device(mx.gpu):
        return None
    info = mx.device_info()
    sizes = (info.get(name) for name in ("max_recommended_working_set_size", "total_memory", "memory_size"))
    return next((int(size) for size in sizes if size), total_memory())


def on_cuda() -> bool:
    """Whether MLX computes on a CUDA GPU."""
    import mlx.core as mx

    return bool(mx.cuda.is_available() and mx.default_device() == mx.Device(mx.gpu))


def has_gpu() -> bool:
    """Whether MLX computes on a GPU."""
    import mlx.core as mx

    return bool(mx.default_device() == mx.Device(mx.gpu) and mx.is_available(mx.gpu))


def total_memory() -> int:
    """Bytes of the machine's memory."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        import mlx.core as mx

        return int(mx.device_info().get("memory_size") or UNKNOWN_MEMORY_BYTES)


def free_memory() -> int | None:
    """Bytes of unused memory; None where the system does not tell, as on macOS."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is for lack of memory, which may be there later.

    MLX has no exception class for it. A single array that is too large for the device is another matter.
    """
    return isinstance(error, MemoryError) or any(text in str(error) for text in OUT_OF_MEMORY_TEXTS)


def multiplies_packed() -> bool:
    """Whether attention can read quantised keys and values as they are.

    MLX's CUDA back end (0.32.4) has no quantised products of the shapes of attention.
    """
    import mlx.core as mx

    return not mx.cuda.is_available()


def _load_blas() -> None:
    global _blas
    for path in _candidates():
        try:
            library = _for_this_core(ctypes.CDLL(path), path)
            if not all(hasattr(library, name) for name in BLAS_PRODUCTS):
                continue
            if hasattr(library, "MKL_Set_Threading_Layer"):
                _settle_threads(library, path)
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        _blas = Path(path).name
        log.debug("MLX's CPU products go through %s", path)
        return


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


def _advice(error: ImportError) -> str:
    if sys.platform == "darwin":
        return f"MLX could not be imported ({error}). Install it with: pip install mlx"
    return (
        f"MLX has no back end here ({error}). On Linux install one of localai_shim's extras: "
        "pip install 'localai-shim[cpu]' or, with an NVIDIA GPU, pip install 'localai-shim[cuda13]'"
    )

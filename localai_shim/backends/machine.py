"""MLX's back end: finding it, and what it can do."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import logging
import os
import platform
import plistlib
import sys
from pathlib import Path

from ..types import BackendMissingError
from .blas import blas, found

log = logging.getLogger("localai_shim")

UNKNOWN_MEMORY_BYTES = 8 * 2**30  # the least that a Mac with Apple's chips has

CGROUP = Path("/sys/fs/cgroup")
MACOS_VERSION = Path("/System/Library/CoreServices/SystemVersion.plist")
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")

# In the messages of MLX's allocators, Metal's command buffers and CUDA.
OUT_OF_MEMORY_TEXTS = ("Unable to allocate", "Insufficient Memory", "out of memory")


def require_backend() -> None:
    """Import MLX, or say what to install; a slow BLAS that need not be is logged, once.

    Raises:
        BackendMissingError: MLX is absent or has no back end.
    """
    try:
        import mlx.core  # noqa: F401
    except ImportError as error:
        raise BackendMissingError(_advice(error)) from error
    _warn_of_late_blas()


@functools.cache
def _warn_of_late_blas() -> None:
    if (advice := late_blas()) is not None:
        log.warning("%s", advice)  # no Python warning: a suite that has these for errors could load no model


def late_blas() -> str | None:
    """Advice where MLX computes with the slow BLAS of its wheel since it was imported too early; None elsewhere."""
    import mlx.core as mx

    if sys.platform != "linux" or mx.default_device() != mx.Device(mx.cpu) or blas() is not None:
        return None
    path = found()
    if path is None:
        return None
    preload = "" if "mkl" in path else f", or start Python with LD_PRELOAD={path}"  # MKL has to be told its threads
    return (
        "mlx was imported before localai_shim, so it multiplies with the BLAS of its wheel, up to 18 times as slowly: "
        f"import localai_shim first{preload}"
    )


def describe_backend() -> str:
    """Device that MLX computes with: 'gpu', or 'cpu' and the BLAS that takes the place of the one in MLX's wheel."""
    import mlx.core as mx

    if mx.default_device() == mx.Device(mx.gpu):
        return "gpu"
    if sys.platform != "linux":
        return "cpu"
    return f"cpu, {blas() or 'the BLAS of its wheel, which is slow: see the README'}"


def gpu_memory() -> int | None:
    """Bytes of memory that MLX may use on a GPU; None where it computes on the CPU."""
    import mlx.core as mx

    if mx.default_device() != mx.Device(mx.gpu):
        return None
    info = mx.device_info()
    sizes = (info.get(name) for name in ("max_recommended_working_set_size", "total_memory", "memory_size"))
    return next((int(size) for size in sizes if size), total_memory())


def on_cuda() -> bool:
    """True if MLX computes on a CUDA GPU."""
    import mlx.core as mx

    return bool(mx.cuda.is_available() and mx.default_device() == mx.Device(mx.gpu))


def has_gpu() -> bool:
    """True if MLX computes on a GPU."""
    import mlx.core as mx

    return bool(mx.default_device() == mx.Device(mx.gpu) and mx.is_available(mx.gpu))


@functools.cache
def identity() -> str:
    """Chip, build of the operating system and of MLX: what the result of a trial depends on beside the model."""
    import mlx.core as mx

    chip = mx.device_info().get("device_name") or platform.machine()
    return f"{chip}, {_system_build()}, {mlx_build()}"


def mlx_build() -> str:
    """MLX's version, and the wheel of its back end."""
    found = []
    for name in ("mlx", "mlx-metal", "mlx-cuda-13", "mlx-cuda-12", "mlx-cpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return ", ".join(found)


def _system_build() -> str:
    """Build of macOS; elsewhere the kernel, the GPU's driver, and the BLAS of the CPU."""
    with contextlib.suppress(OSError, KeyError, plistlib.InvalidFileException):
        facts = plistlib.loads(MACOS_VERSION.read_bytes())
        return f"macOS {facts['ProductVersion']} ({facts['ProductBuildVersion']})"
    driver = ""
    with contextlib.suppress(OSError):
        driver = NVIDIA_DRIVER.read_text(encoding="utf-8").partition("\n")[0]
    return ", ".join(part for part in (f"{platform.system()} {platform.release()}", driver, blas()) if part)


def total_memory() -> int:
    """Bytes of the machine's memory."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        import mlx.core as mx

        return int(mx.device_info().get("memory_size") or UNKNOWN_MEMORY_BYTES)


def free_memory() -> int | None:
    """Bytes of unused memory, of a container's share where it has one; None where the system does not tell (macOS)."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    share = _container_memory()
    return free if share is None else min(free, share)


def _container_memory() -> int | None:
    """Bytes that this container may still take: more would end the process. None where there is no limit."""
    try:
        most, used, facts = ((CGROUP / name).read_text() for name in ("memory.max", "memory.current", "memory.stat"))
        files = next((line.split()[1] for line in facts.splitlines() if line.startswith("inactive_file ")), "0")
        return max(0, int(most) - int(used) + int(files))  # what it has read of files is given back first
    except (ValueError, OSError):
        return None


def is_out_of_memory(error: BaseException) -> bool:
    """True if an error is for lack of memory, which may be there later.

    MLX has no exception class for it. A single array that is too large for the device is another matter.
    """
    return isinstance(error, MemoryError) or any(text in str(error) for text in OUT_OF_MEMORY_TEXTS)


def multiplies_packed() -> bool:
    """True if attention can read quantised keys and values as they are.

    MLX's CUDA back end (0.32.4) has no quantised products of the shapes of attention.
    """
    import mlx.core as mx

    return not mx.cuda.is_available()


def _advice(error: ImportError) -> str:
    if sys.platform == "darwin":
        return f"MLX could not be imported ({error}). Install it with: pip install mlx"
    return (
        f"MLX has no back end here ({error}). On Linux install one of localai_shim's extras: "
        "pip install 'localai-shim[cpu]' or, with an NVIDIA GPU, pip install 'localai-shim[cuda13]'"
    )

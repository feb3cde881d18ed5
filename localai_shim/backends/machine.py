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
from typing import Literal

from ..types import BackendMissingError
from . import macos
from .blas import blas, found

log = logging.getLogger("localai_shim")

UNKNOWN_MEMORY_BYTES = 8 * 2**30  # the least that a Mac with Apple's chips has

CGROUP = Path("/sys/fs/cgroup")
MACOS_VERSION = Path("/System/Library/CoreServices/SystemVersion.plist")
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")

# Head dims of MLX's attention kernels (0.32.4) for more than 8 queries. Metal has some for 192 and 256, too, which MLX
# uses on few chips only: elsewhere products are faster.
METAL_DIMS = (64, 72, 80, 96, 128)
CUDNN_MOST_DIM = 128
# Maximum queries of Metal's vector kernel, and maximum queries x query heads per key head; more use another kernel.
VECTOR_QUERIES, VECTOR_GROUPED_QUERIES = 8, 32
PRODUCT_ROWS = (4, 8)  # rows of OpenBLAS's small products: a step of 5 tokens takes 1.3 times as long as one of 4

FREE_BUFFERS_SHARE = 0.1  # of what Metal recommends

# In the messages of MLX's allocators, Metal's command buffers and CUDA. The last is Metal's limit on buffers.
OUT_OF_MEMORY_TEXTS = ("Unable to allocate", "Insufficient Memory", "out of memory", "Resource limit")

# In the messages of Metal's command buffers.
GPU_REFUSAL_TEXTS = ("SubmissionsIgnored", "Ignored (for causing prior/excessive GPU errors)")
GPU_TIMEOUT_TEXTS = ("Caused GPU Timeout", "Caused GPU Hang", "Impacting Interactivity", "CallbackErrorTimeout")

COMMAND_BUFFER_VARIABLES = ("MLX_MAX_OPS_PER_BUFFER", "MLX_MAX_MB_PER_BUFFER")


def require_backend() -> None:
    """Import MLX, or say what to install. A slow BLAS and settings that slow down a GPU are logged, once.

    Raises:
        BackendMissingError: MLX is absent or has no back end.
    """
    try:
        import mlx.core  # noqa: F401
    except ImportError as error:
        raise BackendMissingError(_advice(error)) from error
    _warn_of_late_blas()
    _warn_of_command_buffers()


@functools.cache
def _warn_of_late_blas() -> None:
    if (advice := late_blas()) is not None:
        log.warning("%s", advice)  # no Python warning: a suite that has these for errors could load no model


@functools.cache
def _warn_of_command_buffers() -> None:
    if has_gpu() and (names := command_buffer_settings()):
        log.warning(
            "%s set: with larger command buffers than MLX's defaults, each decode step may copy the KV caches of all "
            "requests. Unset %s, or compare both with `localai-shim bench`",
            " and ".join(names) + (" are" if len(names) > 1 else " is"),
            "them" if len(names) > 1 else "it",
        )


def command_buffer_settings() -> list[str]:
    """The environment variables that are set of those that size MLX's command buffers.

    A command buffer holds what it reads until the GPU has run all of it. MLX writes a token into a slot in place if
    nothing else holds the slots' buffer, and copies the buffer otherwise. A step is launched while the one before runs:
    small command buffers of that one have let go of the slots by then.
    """
    return [name for name in COMMAND_BUFFER_VARIABLES if os.environ.get(name)]


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


def on_metal() -> bool:
    """True if MLX computes on a GPU of Apple's."""
    import mlx.core as mx

    return bool(mx.metal.is_available() and mx.default_device() == mx.Device(mx.gpu))


def on_x86_cpu() -> bool:
    """True if MLX computes on a CPU of x86."""
    import mlx.core as mx

    return mx.default_device() == mx.Device(mx.cpu) and platform.machine() in ("x86_64", "AMD64")


def has_gpu() -> bool:
    """True if MLX computes on a GPU."""
    import mlx.core as mx

    return bool(mx.default_device() == mx.Device(mx.gpu) and mx.is_available(mx.gpu))


@functools.cache
def identity() -> str:
    """Chip and builds of the system and of MLX. The result of a trial depends on these and the model."""
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
    """Bytes of unused memory, of a container's share if it has one; None if the system does not tell."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # macOS
        return macos.free_memory()
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


def memory_pressure() -> macos.Pressure:
    """The system's shortage of memory, as macOS says; "normal" on other systems."""
    return macos.pressure() if sys.platform == "darwin" else "normal"


def free_buffers() -> int:
    """Bytes of free buffers that MLX should be allowed at least; 0 if any number will do.

    With fewer, Metal wires and unwires buffers all the time.
    """
    import mlx.core as mx

    recommended = mx.device_info().get("max_recommended_working_set_size")  # Metal alone says it
    return 0 if recommended is None or gpu_memory() is None else int(FREE_BUFFERS_SHARE * int(recommended))


def is_out_of_memory(error: BaseException) -> bool:
    """True if an error is for lack of memory, which may be there later.

    MLX has no exception class for it. A single array that is too large for the device is another matter.
    """
    return isinstance(error, MemoryError) or any(text in str(error) for text in OUT_OF_MEMORY_TEXTS)


def gpu_fault(error: BaseException) -> Literal["refuses", "timeout"] | None:
    """Classify an error of the GPU: it refuses all further work of this process, or work took too long.

    MLX has no exception classes for it; the messages are Metal's.
    """
    text = str(error)
    if any(refusal in text for refusal in GPU_REFUSAL_TEXTS):
        return "refuses"
    return "timeout" if any(timeout in text for timeout in GPU_TIMEOUT_TEXTS) else None


def fuses_attention(dim: int, value_dim: int, /, *, half: bool) -> bool:
    """True if attention of many queries is computed without an array of all scores."""
    if on_cuda():
        return half and max(dim, value_dim) <= CUDNN_MOST_DIM and not (dim % 8 or value_dim % 8)
    return on_metal() and dim == value_dim and dim in METAL_DIMS


def step_jumps(group: int, /) -> tuple[int, ...]:
    """Numbers of tokens of a row above which a step takes much longer."""
    if on_x86_cpu():
        return PRODUCT_ROWS
    if not on_metal():
        return ()
    few = VECTOR_GROUPED_QUERIES // group
    return (few, VECTOR_QUERIES) if 0 < few < VECTOR_QUERIES else (VECTOR_QUERIES,)


def is_watched() -> bool:
    """True if the system ends work of the GPU that takes seconds: macOS does, so that its display never freezes."""
    return on_metal()


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

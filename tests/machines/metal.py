"""MLX on Metal, computed by MLX on the CPU.

MLX says that it computes on an M2. So code takes its branches for GPUs, keeps half-precision weights, and samples on
the device. What Metal's back end refuses is refused, with the errors of mlx/backend/metal. `mx.metal.is_available()`
stays false: upstream would launch kernels that only Metal can compile.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

CHIP = {
    "architecture": "applegpu_g14g",
    "device_name": "Apple M2",
    "max_buffer_length": 9_534_832_640,
    "max_recommended_working_set_size": 11_453_251_584,
    "memory_size": 17_179_869_184,
    "resource_limit": 499_000,
}
"""`mx.device_info()` of a MacBook Air with 16 GB."""

ON_THE_CPU_ONLY = (
    *("cholesky", "cholesky_inv", "eig", "eigh", "eigvals", "eigvalsh", "inv"),
    *("lu", "lu_factor", "pinv", "qr", "solve", "svd", "tri_inv"),
)
"""Functions of `mx.linalg` that refuse a GPU's stream."""

TAKE_A_DTYPE = ["arange", "eye", "full", "identity", "linspace", "ones", "zeros"]


def imitate() -> None:
    """Let MLX say that it computes on Metal, and refuse what Metal refuses, for good."""
    import mlx.core as mx
    import mlx_lm.generate  # noqa: F401  it makes a stream of the default device
    import mlx_vlm  # noqa: F401

    _devices(mx)
    _memory(mx)
    _scatters(mx)
    _doubles(mx)
    _linear_algebra(mx)


class _Device:
    """The device that MLX computes on by default; one for the whole process, as MLX's."""

    on_cpu = False


def _is_cpu(mx: Any, stream: Any) -> bool:
    """True for what an operation takes as its stream if it names the CPU."""
    if stream is None:
        return _Device.on_cpu
    return bool(stream == mx.cpu or stream == mx.Device(mx.cpu))


def _devices(mx: Any) -> None:
    stream, default_stream, new_stream, info = mx.stream, mx.default_stream, mx.new_stream, mx.device_info
    thread_local = mx.new_thread_local_stream
    gpu, cpu = mx.Device(mx.gpu), mx.Device(mx.cpu)

    @contextlib.contextmanager
    def with_stream(on: Any) -> Iterator[None]:
        before = _Device.on_cpu
        _Device.on_cpu = _is_cpu(mx, on) or (before and on not in (gpu, mx.gpu))
        try:
            with stream(here(on)):
                yield
        finally:
            _Device.on_cpu = before

    def here(on: Any) -> Any:
        """A CPU for a GPU, and any stream as it is."""
        return cpu if on in (gpu, mx.gpu) else on

    def set_default_device(device: Any) -> None:
        _Device.on_cpu = _is_cpu(mx, device)

    mx.stream = with_stream
    mx.default_device = lambda: cpu if _Device.on_cpu else gpu
    mx.set_default_device = set_default_device
    mx.is_available = lambda device: True
    mx.device_count = lambda kind: 1
    mx.default_stream = lambda device: default_stream(here(device))
    mx.new_stream = lambda device: new_stream(here(device))
    mx.new_thread_local_stream = lambda device: thread_local(here(device))
    mx.device_info = lambda device=None: info(cpu) if _is_cpu(mx, device) else dict(CHIP)


def _memory(mx: Any) -> None:
    wired = 0

    def set_wired_limit(limit: int) -> int:
        nonlocal wired
        if limit > CHIP["max_recommended_working_set_size"]:
            raise ValueError(
                "[metal::set_wired_limit] Setting a wired limit larger than "
                "the maximum working set size is not allowed."
            )
        before, wired = wired, limit
        return before

    mx.set_wired_limit = set_wired_limit


def _scatters(mx: Any) -> None:
    """Scatters of 8 bytes, which Metal has no atomics for; only sums of complex numbers are two of 4 bytes."""
    set_item, put = mx.array.__setitem__, mx.put_along_axis

    def refuse(dtype: Any, name: str) -> None:
        if dtype.size == 8 and not _Device.on_cpu:
            raise ValueError(f"[{name}::eval_gpu] Does not support {str(dtype).removeprefix('mlx.core.')}")

    def checked_set_item(self: Any, key: Any, value: Any) -> None:
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(each, mx.array) and each.dtype != mx.bool_ for each in keys):
            refuse(self.dtype, "Scatter")
        set_item(self, key, value)

    @functools.wraps(put)
    def checked_put(a: Any, indices: Any, values: Any, axis: int | None = None, *, stream: Any = None) -> Any:
        if not _is_cpu(mx, stream):
            refuse(a.dtype, "ScatterAxis")
        return put(a, indices, values, axis, stream=stream)

    def checked_update(name: str, update: Callable[..., Any]) -> Callable[..., Any]:
        def checked(self: Any, value: Any) -> Any:
            changed = update(self, value)
            if changed.dtype != mx.complex64 or name not in ("add", "subtract"):
                refuse(changed.dtype, "Scatter")
            return changed

        return checked

    mx.array.__setitem__ = checked_set_item
    mx.put_along_axis = checked_put
    at = type(mx.array([0]).at)
    for name in ("add", "divide", "maximum", "minimum", "multiply", "subtract"):
        setattr(at, name, checked_update(name, getattr(at, name)))


def _doubles(mx: Any) -> None:
    """Operations that take or make float64."""

    def refusing(call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def checked(*arguments: Any, **options: Any) -> Any:
            if not _is_cpu(mx, options.get("stream")):
                given = [getattr(each, "dtype", each) for each in (*arguments, *options.values())]
                if any(isinstance(each, mx.Dtype) and each == mx.float64 for each in given):
                    raise ValueError("float64 is not supported on the GPU")
            return call(*arguments, **options)

        return checked

    mx.array.astype = refusing(mx.array.astype)
    for name in TAKE_A_DTYPE:
        setattr(mx, name, refusing(getattr(mx, name)))


def _linear_algebra(mx: Any) -> None:
    def refusing(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def checked(*arguments: Any, stream: Any = None, **options: Any) -> Any:
            if not _is_cpu(mx, stream):
                raise ValueError(
                    f"[linalg::{name}] This op is not yet supported on the GPU. Explicitly pass a CPU stream to run it."
                )
            return call(*arguments, stream=stream, **options)

        return checked

    for name in ON_THE_CPU_ONLY:
        setattr(mx.linalg, name, refusing(name, getattr(mx.linalg, name)))

"""Tensors of a GGUF file as MLX arrays, converted piece by piece while the file is read.

The file is read with `pread`, not mapped into memory: it is read once, and a mapped file that is shortened would kill
the process. A GPU converts what the CPU reads meanwhile. Without one, the CPU's threads convert their pieces, and write
them to the arrays' own memory.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ...backends.machine import has_gpu
from ...threads.workers import CORES, MAX_THREADS, run_all
from ...types import ModelLoadError
from .blocks import GROUP, READABLE, Blocks, Bytes, FloatType
from .device_blocks import CONVERT, Convert, as_floats
from .header import Header, Tensor
from .memory import Staging, compute, empty, staging

log = logging.getLogger("localai_shim")

PIECE_BYTES = 1 << 19  # of a file: larger ones leave a core's cache, and with smaller ones threads wait for the GIL
STAGED_BYTES = 1 << 25  # of a file, converted by the GPU at a time
STAGED_ROUNDED_BYTES = 1 << 23  # of types that are rounded: their numbers take 30 times as much for a moment
READ_BYTES = 1 << 21  # of these, by a thread at a time
KEPT_HEAP_BYTES = 30 << 20  # glibc: less than the 32 MiB from which a block would not be counted
ONE_THREAD_BYTES = 1 << 20  # of a tensor, which more threads would not convert sooner
LEAST_SCALE = 2.0**-16
"""Least root mean square of a tensor's scales in float16: below it their rounding would add 0.2 % to the values."""
MOST_SCALE = 65504.0  # of float16
MOST_NUMBERS = 8192
Array = NDArray[np.generic]
Named = Iterable[tuple[str, Tensor]]


class Weight(NamedTuple):
    """A tensor as a layer's parameters.

    Attributes:
        arrays: by the ending of their names: `weight`, and of a packed one `scales` and mostly `biases`.
        packing: settings of a quantized layer; empty if it is not packed.
    """

    arrays: dict[str, mx.array]
    packing: dict[str, int | str]


def read_tensors(header: Header, skipped: Container[str] = ()) -> Iterator[tuple[str, Weight]]:
    """A file's tensors by name, except some, each read when it is asked for.

    Raises:
        ModelLoadError: the file has become shorter.
    """
    all_single = all(READABLE[each.kind].name == "F32" for each in header.tensors.values())
    floats = np.float32 if all_single else np.float16
    found = ((name, tensor) for name, tensor in header.tensors.items() if name not in skipped)
    tensors = sorted(found, key=lambda item: item[1].offset)
    file = os.open(header.path, os.O_RDONLY)
    try:
        yield from (_read_on_device if has_gpu() else _read_on_cpu)(file, tensors, floats)
    except _Shorter as error:
        raise ModelLoadError(
            f"'{header.path}' became shorter while it was read: tensor '{error}' ends past the end of the file.",
            transient=True,
        ) from error
    finally:
        os.close(file)


class _Shorter(EOFError):
    """The file ends before a tensor does. The text is its name."""


def read_numbers(header: Header, name: str) -> list[float]:
    """Values of a small tensor in float32; none if there is no such tensor.

    Raises:
        ModelLoadError: it is large, or of another type.
    """
    tensor = header.tensors.get(name)
    if tensor is None:
        return []
    if READABLE[tensor.kind].name != "F32" or math.prod(tensor.shape) > MOST_NUMBERS:
        raise ModelLoadError(f"'{header.path}': tensor '{name}' is not a short list of numbers in F32.")
    with header.path.open("rb") as file:
        file.seek(tensor.offset)
        return [float(value) for value in np.frombuffer(file.read(4 * math.prod(tensor.shape)), np.float32)]


def log_rounding(header: Header) -> None:
    """Log which tensors are not stored as the file has them."""
    for kind, blocks in READABLE.items():
        count = sum(tensor.kind == kind for tensor in header.tensors.values())
        if blocks.error and count:
            log.info(
                "'%s': %d of %d tensors are %s, which MLX cannot multiply with. They are stored in %d bits, which adds "
                "an error of about %.1f %% to their values",
                header.path.name,
                count,
                len(header.tensors),
                blocks.name,
                blocks.bits,
                100 * blocks.error,
            )


def _reserve(tensor: Tensor, floats: FloatType) -> list[mx.array]:
    """Arrays for a tensor, in memory that the CPU can write to: the weight, its scales, and its biases."""
    blocks, (*rows, columns) = READABLE[tensor.kind], tensor.shape
    groups = (*rows, columns // GROUP)
    packed = ((*rows, columns * blocks.bits // 32), np.uint32)
    kinds: dict[str, list[tuple[tuple[int, ...], type[np.generic]]]] = {
        "": [(tensor.shape, floats)],
        "affine": [packed, (groups, np.float16), (groups, np.float16)],
        "mxfp4": [packed, (groups, np.uint8)],
    }
    return [empty(shape, dtype) for shape, dtype in kinds[blocks.mode if blocks.bits else ""]]


def _read_on_device(
    file: int, tensors: Iterable[tuple[str, Tensor]], floats: FloatType
) -> Iterator[tuple[str, Weight]]:
    """Read pieces with all threads, and let the GPU convert each while the next one is read.

    A tensor is yielded after the next one has been read, so that waiting for it costs nothing.
    """
    before: Callable[[], tuple[str, Weight]] | None = None
    with staging(STAGED_BYTES) as buffers:
        turns = itertools.cycle(buffers)
        for name, tensor in tensors:
            blocks = READABLE[tensor.kind]
            starts = range(0, math.prod(tensor.shape) // blocks.values, _staged_blocks(blocks))
            convert = CONVERT[tensor.kind] if blocks.bits else partial(as_floats, tensor.kind, floats)
            pieces = [_staged(file, name, tensor, first, next(turns), convert) for first in starts]
            last = before
            before = _concatenated(name, tensor, pieces)
            if last is not None:
                yield last()
    if before is not None:
        yield before()


def _staged_blocks(blocks: Blocks) -> int:
    """Number of blocks that are converted at a time."""
    return (STAGED_ROUNDED_BYTES if blocks.error else STAGED_BYTES) // blocks.size


def _staged(file: int, name: str, tensor: Tensor, first: int, buffer: Staging, convert: Convert) -> list[mx.array]:
    """Parts of a tensor's blocks from one on, as many as are converted at a time; they are being computed."""
    blocks = READABLE[tensor.kind]
    size, count = blocks.size, min(math.prod(tensor.shape) // blocks.values - first, _staged_blocks(blocks))
    content, offset = buffer.free()[: count * size], tensor.offset + first * size
    starts = itertools.count(0, READ_BYTES)

    def work() -> None:
        while (start := next(starts)) < content.size:
            _read_at(file, name, content[start : start + READ_BYTES], offset + start)

    run_all([work] * (min(CORES, MAX_THREADS) if content.size > ONE_THREAD_BYTES else 1))
    parts = convert((buffer.array[: content.size] ^ 0).reshape(count, size))  # a copy: the GPU reads the buffer once
    compute(*parts)
    buffer.users = parts
    return parts


def _concatenated(name: str, tensor: Tensor, pieces: list[list[mx.array]]) -> Callable[[], tuple[str, Weight]]:
    """Put a tensor's pieces together; the function that is returned waits for it."""
    blocks, (*rows, columns) = READABLE[tensor.kind], tensor.shape
    weight, *factors = (
        mx.concatenate(list(parts)) if len(parts) > 1 else parts[0] for parts in zip(*pieces, strict=True)
    )
    if not blocks.bits:
        weight = weight.reshape(tensor.shape)
        compute(weight)
        return lambda: (name, _packed(blocks, [weight]))
    factors = [each.reshape(*rows, columns // GROUP) for each in factors]
    weight = mx.contiguous(weight).view(mx.uint32).reshape(*rows, -1)
    if blocks.mode != "affine":
        compute(weight, *factors)
        return lambda: (name, _packed(blocks, [weight, *factors]))
    halves = [each.astype(mx.float16) for each in factors]
    mean, largest = mx.square(factors[0]).mean().sqrt(), mx.maximum(*(mx.abs(each).max() for each in factors))
    compute(weight, *halves, mean, largest)

    def finish() -> tuple[str, Weight]:
        fit = _fit_float16(name, float(np.array(mean)), float(np.array(largest)))
        return name, _packed(blocks, [weight, *(halves if fit else factors)])

    return finish


def _read_on_cpu(file: int, tensors: Named, floats: FloatType) -> Iterator[tuple[str, Weight]]:
    np.empty(
        KEPT_HEAP_BYTES, np.uint8
    )  # glibc then keeps memory of this size; otherwise each piece would fault it in again
    for name, tensor in tensors:
        blocks, arrays = READABLE[tensor.kind], _reserve(tensor, floats)
        mean, largest = _fill(file, name, tensor, arrays)
        if len(arrays) == 3 and not _fit_float16(name, mean, largest):
            arrays = [arrays[0], *(empty(each.shape, np.float32) for each in arrays[1:])]
            _fill(file, name, tensor, arrays)
        yield name, _packed(blocks, arrays)


def _fit_float16(name: str, mean: float, largest: float) -> bool:
    """True if a tensor's scales can be stored in float16; a log line says that they cannot.

    Args:
        mean: root mean square of its scales.
        largest: of its scales and biases.
    """
    if largest == 0 or (mean >= LEAST_SCALE and largest <= MOST_SCALE):
        return True
    log.info("tensor '%s': its scales are too large or too small for float16, and stay in float32", name)
    return False


def _packed(blocks: Blocks, arrays: list[mx.array]) -> Weight:
    packing: dict[str, int | str] = {"group_size": GROUP, "bits": blocks.bits, "mode": blocks.mode}
    return Weight(dict(zip(("weight", "scales", "biases"), arrays, strict=False)), packing if blocks.bits else {})


def _fill(file: int, name: str, tensor: Tensor, arrays: Sequence[mx.array]) -> tuple[float, float]:
    """Fill arrays with a tensor; returns the root mean square of its scales, and the largest scale or bias."""
    blocks = READABLE[tensor.kind]
    count = math.prod(tensor.shape) // blocks.values
    step = max(1, PIECE_BYTES // blocks.size)
    starts = itertools.count(0, step)  # threads take the next one in turn
    outputs = [np.array(array, copy=False).reshape(count, -1) for array in arrays]
    outputs[0] = outputs[0].view(np.uint8) if blocks.bits else outputs[0]

    def work() -> tuple[float, float]:
        squares = largest = 0.0
        raw = np.empty((step, blocks.size), np.uint8)
        while (start := next(starts)) < count:
            piece = raw[: count - start]
            _read_at(file, name, piece, tensor.offset + start * blocks.size)
            with np.errstate(all="ignore"):  # a damaged file has numbers of any size
                parts = _parts(blocks, piece)
                for output, part in zip(outputs, parts, strict=False):
                    output[start : start + len(piece)] = part.reshape(len(piece), -1)
                for part in parts[1:]:
                    largest = max(largest, float(part.max(initial=0)), -float(part.min(initial=0)))
                if blocks.bits:
                    squares += float(np.dot(parts[1].ravel(), parts[1].ravel()))
        return squares, largest

    threads = min(CORES, MAX_THREADS) if count * blocks.size > ONE_THREAD_BYTES else 1
    squares, largest = zip(*run_all([work] * threads), strict=True)
    return math.sqrt(sum(squares) / outputs[-1].size), max(largest)


def _parts(blocks: Blocks, raw: Bytes) -> Sequence[Array]:
    """Contents of a tensor's arrays for these blocks."""
    if blocks.convert is not None:
        codes, scales, biases = blocks.convert(raw)
        return codes.reshape(len(raw), -1).view(np.uint8), scales, biases
    if blocks.name == "BF16":
        return [(raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)]
    return [raw.view(np.float32 if blocks.name == "F32" else np.float16)]


def _read_at(file: int, name: str, buffer: Bytes, at: int) -> None:
    """Fill a buffer with a tensor's bytes from a position in the file.

    Raises:
        _Shorter: the file ends before.
    """
    left = memoryview(buffer.reshape(-1).data)
    while left:
        size = os.preadv(file, [left], at)
        if not size:
            raise _Shorter(name)
        left, at = left[size:], at + size

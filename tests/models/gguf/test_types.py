"""Types of tensors: MLX's packed layers hold the values that llama.cpp's package reads in the same bytes."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from localai_shim.models.gguf import blocks, device_blocks, reading
from localai_shim.models.gguf.header import read_header
from localai_shim.models.gguf.reading import read_tensors
from localai_shim.types import ModelLoadError
from tests.models.gguf import writing
from tests.models.gguf.random_blocks import FACTORS, dequantized, random_blocks

HALF_SCALES = 8e-4  # what float16 scales add, relative to the values (root mean square)


def write(path: Path, **tensors: tuple[np.ndarray, Type]) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    for name, (raw, type_) in tensors.items():
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=type_)
    return writing.close(writer)


def values(weight: reading.Weight) -> np.ndarray:
    """Values of a weight as MLX's quantized layers multiply with them, in float32."""
    if not weight.packing:
        return np.array(weight.arrays["weight"].astype(mx.float32))
    arrays = {
        name: each.astype(mx.float32) if each.dtype == mx.float16 else each for name, each in weight.arrays.items()
    }
    packed = arrays["weight"], arrays["scales"], arrays.get("biases")
    return np.array(mx.dequantize(*packed, **weight.packing).astype(mx.float32))


def error(found: np.ndarray, expected: np.ndarray) -> float:
    """Root mean square of the differences, relative to what is expected."""
    return float(np.sqrt(np.square(found - expected).mean() / np.square(expected).mean()))


@pytest.mark.parametrize("type_", FACTORS, ids=lambda type_: type_.name)
def test_blocks_are_converted_as_llama_cpp_dequantizes_them(type_: Type) -> None:
    """Exactly, with scales in float32, except types that have groups of 16: these are rounded."""
    kind = blocks.READABLE[type_]
    raw = random_blocks(type_, (24, 512))
    assert kind.convert is not None
    codes, *scales = kind.convert(raw.reshape(-1, kind.size))
    packed = mx.array(codes.reshape(24, -1).view(np.uint32))
    if kind.mode == "mxfp4":
        how = mx.array(scales[0].astype(np.uint8).reshape(24, -1)), None
    else:
        how = mx.array(scales[0].reshape(24, -1)), mx.array(scales[1].reshape(24, -1))
    found = mx.dequantize(packed, *how, group_size=32, bits=kind.bits, mode=kind.mode).astype(mx.float32)
    expected = dequantized(raw, type_)
    if kind.error:
        assert 0 < error(np.array(found), expected) < kind.error
    else:
        assert (np.array(found) == expected).all()


@pytest.mark.parametrize("number", device_blocks.CONVERT)
def test_the_gpu_converts_blocks_like_the_cpu(number: int) -> None:
    """Codes that are rounded may differ by a few of 255, or by one of 31 or 15."""
    kind = blocks.READABLE[number]
    raw = random_blocks(Type(number), (240, 4096)).reshape(-1, kind.size)
    assert kind.convert is not None
    codes, *factors = kind.convert(raw.copy())
    found, *others = (np.array(each) for each in device_blocks.CONVERT[number](mx.array(raw)))
    assert all((one.reshape(other.shape) == other).all() for one, other in zip(factors, others, strict=False))
    difference = np.abs(unpacked(codes, kind.bits) - unpacked(found, kind.bits)).max(1)
    normal = np.abs(others[0].reshape(-1)) > np.finfo(np.float16).smallest_normal
    assert difference[normal].max(initial=0) <= (max(1, 3 * 2**kind.bits // 256) if kind.error else 0)
    assert difference.max() <= (20 if kind.error else 0)  # no code is another one after an overflow


def unpacked(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes of groups of 32, `[groups, 32]`."""
    packed = mx.array(np.ascontiguousarray(codes).reshape(-1).view(np.uint32).reshape(-1, bits))
    ones = mx.ones((len(packed), 1))
    return np.array(mx.dequantize(packed, ones, 0 * ones, group_size=32, bits=bits)).astype(int)


@pytest.fixture(params=["on a CPU", "on a GPU"])
def _somewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file is converted; on a GPU in pieces that are smaller than in reality."""
    monkeypatch.setattr(reading, "has_gpu", lambda: request.param == "on a GPU")
    monkeypatch.setattr(reading, "STAGED_BYTES", 100_000)
    monkeypatch.setattr(reading, "STAGED_ROUNDED_BYTES", 50_000)
    monkeypatch.setattr(reading, "READ_BYTES", 30_000)


@pytest.mark.usefixtures("_somewhere")
@pytest.mark.parametrize("type_", FACTORS, ids=lambda type_: type_.name)
@pytest.mark.parametrize("shape", [(3, 256), (2, 5, 768), (1100, 2048)], ids=str)
def test_tensors_of_each_type_are_read(type_: Type, shape: tuple[int, ...], tmp_path: Path) -> None:
    """Matrices and stacked experts, in one piece and in many, by one thread and by several."""
    raw = random_blocks(type_, shape, seed=1)
    file = write(tmp_path / "a.gguf", first=(raw, type_), second=(raw, type_))
    found = dict(read_tensors(read_header(file)))
    expected = dequantized(raw, type_)
    limit = max(HALF_SCALES, blocks.READABLE[type_].error)
    for weight in found.values():
        assert values(weight).shape == shape
        assert error(values(weight), expected) < limit
        floats = {each.dtype for name, each in weight.arrays.items() if name != "weight"}
        assert floats == ({mx.uint8} if type_ == Type.MXFP4 else {mx.float16})


@pytest.mark.usefixtures("_somewhere")
@pytest.mark.parametrize("type_", [Type.F32, Type.F16, Type.BF16], ids=lambda type_: type_.name)
def test_numbers_are_float16_except_in_a_file_of_float32(type_: Type, tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(37, 96)).astype(np.float32)
    file = write(tmp_path / "a.gguf", a=(gguf.quants.quantize(array, type_), type_))
    [(name, weight)] = read_tensors(read_header(file))
    assert (name, weight.packing) == ("a.weight", {})
    assert weight.arrays["weight"].dtype == (mx.float32 if type_ == Type.F32 else mx.float16)
    exact = gguf.quants.dequantize(gguf.quants.quantize(array, type_), type_)
    assert error(values(weight), exact) < 3e-4


@pytest.mark.usefixtures("_somewhere")
@pytest.mark.parametrize("factor", [2e-7, 60000.0], ids=["small", "large"])
def test_scales_that_float16_cannot_hold_stay_in_float32(
    factor: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    raw = random_blocks(Type.Q4_K, (8, 256))
    for place in FACTORS[Type.Q4_K]:
        raw.reshape(-1, 144)[:, place : place + 2] = np.frombuffer(np.float16(factor).tobytes(), np.uint8)
    file = write(tmp_path / "a.gguf", a=(raw, Type.Q4_K))
    with caplog.at_level(logging.INFO, "localai_shim"):
        [(_, weight)] = read_tensors(read_header(file))
    assert weight.arrays["scales"].dtype == weight.arrays["biases"].dtype == mx.float32
    assert (values(weight) == dequantized(raw, Type.Q4_K)).all()
    assert "tensor 'a.weight': its scales are too large or too small for float16" in caplog.text


@pytest.mark.usefixtures("_somewhere")
def test_a_file_that_becomes_shorter_is_an_error(tmp_path: Path) -> None:
    """A file that is mapped into memory would end the process."""
    file = write(tmp_path / "a.gguf", a=(random_blocks(Type.Q4_K, (1024, 2048)), Type.Q4_K))
    header = read_header(file)
    with file.open("r+b") as opened:
        opened.truncate(500_000)
    with pytest.raises(ModelLoadError, match=r"became shorter while it was read: tensor 'a.weight' ends past the end"):
        list(read_tensors(header))


def test_types_that_are_rounded_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kinds = {"a": Type.Q6_K, "b": Type.Q4_K, "c": Type.Q6_K, "d": Type.Q3_K}
    tensors = {name: (random_blocks(type_, (2, 256)), type_) for name, type_ in kinds.items()}
    with caplog.at_level(logging.INFO, "localai_shim"):
        reading.log_rounding(read_header(write(tmp_path / "a.gguf", **tensors)))
    first, second = sorted(record.getMessage() for record in caplog.records)
    assert "1 of 4 tensors are Q3_K" in first and "5 bits, which adds an error of about 4.0 %" in first
    assert "2 of 4 tensors are Q6_K" in second and "8 bits, which adds an error of about 0.6 %" in second


PEAK = r"""
import re, resource, sys
from pathlib import Path
from localai_shim.models.gguf.header import read_header
from localai_shim.models.gguf.reading import read_tensors

def peak():
    if sys.platform == "linux":  # where a child's ru_maxrss begins with its parent's
        return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
small, large = map(Path, sys.argv[1:])
dict(read_tensors(read_header(small)))  # libraries, threads
before = peak()
held = dict(read_tensors(read_header(large)))
print((peak() - before) / large.stat().st_size)
"""


def test_reading_takes_a_third_more_memory_than_the_file_at_most(tmp_path: Path) -> None:
    """Q4_K is 4.5 bits a weight in the file and 5 in MLX; the peak is over the arrays that stay."""
    raw = random_blocks(Type.Q4_K, (4096, 4096))
    many = {f"t{i}": (raw, Type.Q4_K) for i in range(16)}
    files = write(tmp_path / "small.gguf", a=(raw[:512], Type.Q4_K)), write(tmp_path / "large.gguf", **many)
    done = subprocess.run([sys.executable, "-c", PEAK, *files], capture_output=True, text=True, check=True)
    assert 1.05 < float(done.stdout) < 1.3


@pytest.mark.timed
def test_conversion_takes_few_times_as_long_as_reading_and_copying_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a CPU, in its seconds, the best of three. 25 was measured, and 50 with cleared arrays and more passes."""
    monkeypatch.setattr(reading, "has_gpu", lambda: False)
    raw = random_blocks(Type.Q4_K, (4096, 4096))
    file = write(tmp_path / "a.gguf", **{f"t{i}": (raw, Type.Q4_K) for i in range(24)})
    assert file.stat().st_size > 200 << 20
    header = read_header(file)

    def copy() -> None:
        with file.open("rb", buffering=0) as opened:
            while piece := opened.read(1 << 20):
                np.frombuffer(piece, np.uint8).copy()

    def seconds(work: Callable[[], object]) -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    ratio = min(seconds(lambda: dict(read_tensors(header))) for _ in range(3)) / min(seconds(copy) for _ in range(3))
    assert ratio < 40

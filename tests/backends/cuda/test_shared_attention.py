"""Attention to tokens that rows share, by the kernels for CUDA: what float32 gives with a copy for each row."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.backends import machine as backend
from localai_shim.backends.cuda import decode_attention as kernel
from localai_shim.backends.cuda.forms import CudaForms
from localai_shim.backends.cuda.shared_attention import attend_shared
from localai_shim.engine.cache_contents import Shared, SharedPart

only_on_cuda = pytest.mark.skipif(not backend.on_cuda(), reason="a kernel for CUDA")
SHAPES = [(32, 8, 128), (8, 8, 64), (7, 1, 128), (8, 4, 96), (4, 2, 256)]
ALL, SOME, TWO_GROUPS = [[0, 1, 2, 3, 4]], [[3, 0]], [[0, 2], [4, 1]]


def made(rows: Sequence[Sequence[int]], parts: Sequence[SharedPart], count: int) -> Shared:
    """The parts of a pass of `count` rows, which say which rows read them unless all do, in their order."""
    placed = [row for its in rows for row in its]
    if placed == [*range(count)] and len(rows) == 1:
        return Shared([SharedPart(parts[0].keys, parts[0].values)])
    order = np.full(count, len(placed), np.int32)
    order[placed] = np.arange(len(placed))
    return Shared(parts, mx.array(order))


@only_on_cuda
@pytest.mark.parametrize("sinks", [False, True], ids=["", "sinks"])
@pytest.mark.parametrize("rows", [ALL, SOME, TWO_GROUPS], ids=["all", "some", "two groups"])
@pytest.mark.parametrize(
    ("heads", "key_heads", "dim"), [(32, 8, 128), (8, 8, 64), (7, 1, 128), (8, 4, 96), (4, 2, 256)]
)
@pytest.mark.parametrize("tokens", [1, 3, 16, 40])
@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16], ids=["bfloat16", "float16"])
def test_rows_that_share_attend_as_float32_does_with_copies(
    dtype: mx.Dtype, tokens: int, heads: int, key_heads: int, dim: int, rows: list[list[int]], sinks: bool
) -> None:
    count, own, scale = 5, 41, dim**-0.5
    mx.random.seed(tokens)
    queries = mx.random.normal((count, heads, tokens, dim)).astype(dtype)
    keys, values = (mx.random.normal((count, key_heads, own, dim)).astype(dtype) for _ in range(2))
    mask = mx.random.uniform(shape=(count, 1, tokens, own)) > 0.5
    mask[..., 0] = True
    extra = mx.random.normal((heads,)) if sinks else None
    lengths = [70, 1_029]
    wholes = [[mx.random.normal((1, key_heads, n + 9, dim)).astype(dtype) for _ in range(2)] for n in lengths]
    blocks = [[array[:, :, :n] for array in its] for its, n in zip(wholes, lengths, strict=True)]  # views
    parts = [SharedPart(*blocks[i], mx.array(its, mx.int32)) for i, its in enumerate(rows)]
    got = attend_shared(queries, keys, values, made(rows, parts, count), scale, mask, extra)
    assert got.shape == queries.shape and got.dtype == dtype
    for row in range(count):
        held = [a[row : row + 1] for a in (keys, values)]
        seen, group = mask[row : row + 1], next((i for i, its in enumerate(rows) if row in its), None)
        if group is not None:
            held = [mx.concatenate(pair, axis=2) for pair in zip(blocks[group], held, strict=True)]
            seen = mx.concatenate([mx.ones((1, 1, tokens, lengths[group]), mx.bool_), seen], axis=-1)
        wide = [a.astype(mx.float32) for a in (queries[row : row + 1], *held)]
        expected = mx.fast.scaled_dot_product_attention(*wide, scale=scale, mask=seen, sinks=extra)
        off = mx.linalg.norm(got[row : row + 1].astype(mx.float32) - expected) / mx.linalg.norm(expected)
        assert off.item() < (6e-3 if dtype == mx.bfloat16 else 2e-3), row


def test_shapes_that_the_kernels_do_not_know_are_computed_by_products() -> None:
    mx.random.seed(1)
    queries = mx.random.normal((2, 4, 1, 16))
    keys, values, before, after = (mx.random.normal((n, 2, 5, 16)) for n in (2, 2, 1, 1))
    assert not kernel.fits(queries, keys, values)
    got = attend_shared(queries, keys, values, Shared([SharedPart(before, after)]), 0.25, None)
    held = [mx.concatenate([mx.repeat(a, 2, 0), b], axis=2) for a, b in ((before, keys), (after, values))]
    expected = mx.fast.scaled_dot_product_attention(queries, *held, scale=0.25)
    assert mx.allclose(got, expected, rtol=1e-3, atol=1e-3)


def test_cuda_s_forms_attend_by_the_kernels() -> None:
    assert CudaForms().attend_shared is attend_shared

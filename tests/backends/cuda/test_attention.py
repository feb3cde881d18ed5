"""Attention and passes in the forms that MLX's CUDA back end is fast at: what they compute stays."""

from __future__ import annotations

import importlib
import inspect
import random
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.models import base
from mlx_lm.models.cache import ArraysCache, BatchKVCache, KVCache, RotatingKVCache

from localai_shim.backends import machine as backend
from localai_shim.backends.cuda import attention as cuda_attention
from localai_shim.backends.cuda import decode_attention as cuda_decode
from localai_shim.backends.cuda.attention import (
    LENGTHS,
    attend_few,
    attend_filled,
    attend_masked,
    attending,
    fill,
    filled,
    forget,
)
from localai_shim.engine.ports import StepInput
from localai_shim.models import caches
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions
from tests.machine_forms import FillingForms, use_forms
from tests.tiny import make_model

attend = attending(base.scaled_dot_product_attention)
ROUNDING = 1e-3 if backend.on_cuda() else 1e-5
"""MLX multiplies float32 in TF32 on CUDA, with 10 bits of mantissa."""
only_on_cuda = pytest.mark.skipif(not backend.on_cuda(), reason="a kernel for CUDA")
SPANS = [(2, 2), (31, 31), (33, 33), (100, 100), (5, 64), (7, 1_000), (40, 1_025), (300, 1_500), (257, 2_300)]


def inputs(tokens: int, columns: int, heads: int = 4, key_heads: int = 2, dim: int = 16, rows: int = 1) -> list[Any]:
    mx.random.seed(tokens * 10_000 + columns)
    shapes = [(rows, heads, tokens, dim), (rows, key_heads, columns, dim), (rows, key_heads, columns, dim)]
    return [mx.random.normal(shape) for shape in shapes]


def distance(a: Any, b: Any) -> float:
    a, b = a.astype(mx.float32), b.astype(mx.float32)
    return float(mx.linalg.norm(a - b) / mx.linalg.norm(b))


# -- lengths ----------------------------------------------------------------------------------------------------------


def test_lengths_are_few_and_none_is_much_longer_than_asked_for() -> None:
    lengths = {filled(tokens) for tokens in range(1, 8_193)}
    assert len(lengths) == len(LENGTHS) + 3 * 4 + 8  # 256 apart up to 4,096, then 512
    for tokens in range(128, 20_000):
        assert tokens <= filled(tokens) <= 1.5 * tokens
    assert all(filled(length) == length for length in lengths)


def test_plans_of_short_contexts_are_those_of_fresh_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a load prepares serves any prompt up to the last of LENGTHS, cached prefix or not."""
    seen: set[tuple[int, int]] = set()
    real = mx.fast.scaled_dot_product_attention

    def spy(queries: Any, keys: Any, values: Any, **options: Any) -> Any:
        seen.add((queries.shape[2], keys.shape[2]))
        return real(queries, keys, values, **options)

    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", spy)
    rng = random.Random(0)
    for _ in range(60):
        columns = rng.randrange(2, LENGTHS[-1] + 1)
        attend_filled(*inputs(rng.randrange(2, columns + 1), columns, 1, 1, 8), 0.25)
    assert seen <= {(length, length) for length in LENGTHS}
    seen.clear()
    for columns in range(7_000, 8_001, 40):  # a long conversation that grows by forty tokens at a time
        attend_filled(*inputs(10, columns, 1, 1, 8), 0.25)
    assert len(seen) <= 8


# -- what is computed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sinks", [False, True], ids=["", "sinks"])
@pytest.mark.parametrize(("tokens", "columns"), SPANS)
def test_filled_causal_attention_is_causal_attention(tokens: int, columns: int, sinks: bool) -> None:
    q, k, v = inputs(tokens, columns)
    extra = mx.random.normal((4,)) if sinks else None
    expected = base.scaled_dot_product_attention(q, k, v, KVCache(), 0.25, "causal", sinks=extra)
    assert distance(attend_filled(q, k, v, 0.25, extra), expected) < ROUNDING


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(("tokens", "columns"), SPANS[:7])
def test_a_mask_to_add_says_what_the_bool_mask_said(tokens: int, columns: int, rows: int) -> None:
    q, k, v = inputs(tokens, columns, rows=rows)
    mask = base.create_causal_mask(tokens, columns - tokens, window_size=24)
    expected = base.scaled_dot_product_attention(q, k, v, KVCache(), 0.25, mask)
    assert distance(attend_masked(q, k, v, 0.25, mask), expected) < ROUNDING
    each = mx.broadcast_to(mask, (rows, 1, tokens, columns))
    assert distance(attend_masked(q, k, v, 0.25, each), expected) < ROUNDING


def test_float32_quantised_caches_and_batches_of_mlx_lm_are_left_to_mlx_lm() -> None:
    calls: list[Any] = []
    attend = attending(lambda *a: calls.append(a))  # type: ignore[arg-type,return-value]
    attend(*inputs(3, 9), KVCache(), 0.25, "causal")
    attend(*inputs(1, 9), KVCache(), 0.25, None)
    half = [array.astype(mx.float16) for array in inputs(3, 9)]

    class Packed:
        bits = 4

    attend(*half, Packed(), 0.25, "causal")
    batch = BatchKVCache([0, 2])
    attend(*half, batch, 0.25, batch.make_mask(3))
    assert len(calls) == 4


# -- passes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text", "qwen3_next"])
def test_a_model_whose_passes_are_filled_up_says_what_it_says_alone(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model(tmp_path, kind)
    use_forms(monkeypatch, FillingForms())
    monkeypatch.setattr(cuda_attention, "LENGTHS", (32, 64))
    model = load_model(str(tmp_path), LoadOptions())
    upstream, tokenizer = mlx_lm.load(str(tmp_path))
    prompt = [random.Random(1).randrange(3, 60) for _ in range(75)]
    alone = [r.token for r in mlx_lm.stream_generate(upstream, tokenizer, prompt, max_tokens=12)]
    cache = model.new_cache()
    for start, end in ((0, 21), (21, 22), (22, 74)):  # chunks
        model.prefill(StepInput(mx.array([prompt[start:end]]), cache))
    tokens = [prompt[-1]]
    for _ in alone:
        tokens.append(int(mx.argmax(model.forward(StepInput(mx.array([tokens[-1:]]), cache)).logits, axis=-1).item()))
    assert tokens[1:] == alone


def test_padding_leaves_caches_as_if_it_had_not_been_there() -> None:
    cache = [KVCache(), RotatingKVCache(128)]
    tokens, padding = fill(mx.ones((1, 40), mx.int32), cache)
    assert (tokens.tolist(), padding) == ([[1] * 40 + [0] * 24], 24)
    for layer in cache:
        layer.update_and_fetch(mx.ones((1, 1, 64, 4)), mx.ones((1, 1, 64, 4)))
    forget(cache, padding)
    assert [layer.offset for layer in cache] == [40, 40]
    assert [caches.read(layer).arrays[0].shape[2] for layer in cache] == [40, 40]


def test_caches_that_padding_could_not_be_taken_out_of_get_none() -> None:
    window = RotatingKVCache(60)
    for other in (window, ArraysCache(2)):
        tokens, padding = fill(mx.ones((1, 40), mx.int32), [KVCache(), other])
        assert (tokens.shape, padding) == ((1, 40), 0)


def test_several_prompts_become_one_of_few_numbers_of_rows() -> None:
    tokens, padding = fill(mx.array([[1] * 30, [2] * 30, [3] * 30]), [KVCache()])
    assert (tokens.tolist(), padding) == ([*([i] * 30 + [0] * 2 for i in (1, 2, 3)), [0] * 32], 2)
    assert tokens.dtype == mx.int32
    cache = KVCache()
    cache.update_and_fetch(mx.ones((3, 1, 8, 4)), mx.ones((3, 1, 8, 4)))
    assert fill(mx.ones((3, 30), mx.int32), [cache])[0].shape == (3, 32)  # these rows are there


# -- what is relied on of upstream ------------------------------------------------------------------------------------


def test_layers_of_mlx_lm_call_it_with_upstream_s_arguments(tmp_path: Path) -> None:
    mine, theirs = (list(inspect.signature(f).parameters) for f in (attend, base.scaled_dot_product_attention))
    assert mine == theirs
    make_model(tmp_path, "qwen3")
    model, _ = mlx_lm.load(str(tmp_path))
    layers = len(model.layers)
    assert cuda_attention.use_attention(model) == layers
    assert cuda_attention.use_attention(model) == 0, "once"
    assert {layer.self_attn.__call__.__globals__["scaled_dot_product_attention"] for layer in model.layers} == {attend}


def test_causal_is_aligned_with_the_last_key() -> None:
    """MLX: the last of fewer queries sees all keys, the first one all but those of the queries behind it."""
    q, k, v = inputs(2, 9)
    both = mx.fast.scaled_dot_product_attention(q, k, v, scale=0.25, mask="causal")
    first = mx.fast.scaled_dot_product_attention(q[:, :, :1], k[:, :, :8], v[:, :, :8], scale=0.25)
    assert distance(both[:, :, :1], first) < ROUNDING


def test_model_modules_take_their_attention_from_base() -> None:
    for name in ("llama", "qwen3_moe", "gemma3_text", "gpt_oss", "qwen3_next"):
        module = importlib.import_module(f"mlx_lm.models.{name}")
        assert module.scaled_dot_product_attention is base.scaled_dot_product_attention, name


# -- the kernel -------------------------------------------------------------------------------------------------------


@only_on_cuda
@pytest.mark.parametrize("sinks", [False, True], ids=["", "sinks"])
@pytest.mark.parametrize("dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize(("heads", "key_heads"), [(8, 8), (32, 8), (7, 1), (24, 2), (16, 1)])
@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16], ids=["bfloat16", "float16"])
def test_the_kernel_attends_as_float32_does(dtype: Any, heads: int, key_heads: int, dim: int, sinks: bool) -> None:
    for rows, columns in ((1, 1), (3, 70), (2, 1_029)):
        mx.random.seed(rows)
        q = mx.random.normal((rows, 1, heads, dim)).astype(dtype).swapaxes(1, 2)
        buffers = [mx.random.normal((rows + 1, key_heads, columns + 11, dim)).astype(dtype) for _ in range(2)]
        k, v = (buffer[:rows, :, :columns] for buffer in buffers)
        lengths = mx.random.randint(1, columns + 1, (rows,))
        extra = mx.random.normal((heads,)) if sinks else None
        for mask in (None, (mx.arange(columns) < lengths[:, None])[:, None, None]):
            wide = [array.astype(mx.float32) for array in (q, k, v)]
            expected = mx.fast.scaled_dot_product_attention(*wide, scale=dim**-0.5, mask=mask, sinks=extra)
            assert cuda_decode.fits(q, k, v)
            got = cuda_decode.attend(q, k, v, mask, dim**-0.5, extra)
            assert distance(got, expected) < (4e-3 if dtype == mx.bfloat16 else 1e-3)


@only_on_cuda
@pytest.mark.parametrize("sinks", [False, True], ids=["", "sinks"])
@pytest.mark.parametrize("dim", [64, 96, 128, 256])
@pytest.mark.parametrize(("heads", "key_heads"), [(8, 8), (32, 8), (7, 1)])
@pytest.mark.parametrize("tokens", [2, 3, 5, 9, 16])
def test_the_kernel_attends_for_a_few_tokens(tokens: int, heads: int, key_heads: int, dim: int, sinks: bool) -> None:
    for rows, columns in ((1, 16), (3, 70), (2, 1_029)):
        mx.random.seed(rows)
        q = mx.random.normal((rows, tokens, heads, dim)).astype(mx.bfloat16).swapaxes(1, 2)
        buffers = [mx.random.normal((rows + 1, key_heads, columns + 11, dim)).astype(mx.bfloat16) for _ in range(2)]
        k, v = (buffer[:rows, :, :columns] for buffer in buffers)
        first = mx.random.randint(0, columns - tokens + 1, (rows,))
        extra = mx.random.normal((heads,)) if sinks else None
        wide = [array.astype(mx.float32) for array in (q, k, v)]
        position = mx.arange(columns)
        each = first[:, None, None, None] + mx.arange(tokens)[:, None]
        for mask in (None, position <= each, (position <= each) & (position > each - 40)):
            chosen = cuda_decode.causal(tokens, columns) if mask is None else mask
            expected = mx.fast.scaled_dot_product_attention(*wide, scale=dim**-0.5, mask=chosen, sinks=extra)
            assert cuda_decode.fits(q, k, v)
            got = cuda_decode.attend(q, k, v, mask, dim**-0.5, extra)
            assert got.shape == expected.shape and distance(got, expected) < 4e-3


def test_what_tokens_see_is_made_once_for_all_layers() -> None:
    mask = mx.arange(7) <= (mx.array([2, 4])[:, None, None, None] + mx.arange(3)[:, None])
    seen = cuda_decode.seen_by(mask, 3, 7)
    assert seen.shape == (2, 1, 1, 7)
    assert [[seen[row, 0, 0, c].item() for c in range(7)] for row in range(2)] == [
        [0b111, 0b111, 0b111, 0b110, 0b100, 0, 0],
        [0b111, 0b111, 0b111, 0b111, 0b111, 0b110, 0b100],
    ]
    assert cuda_decode.seen_by(mask, 3, 7) is seen
    causal = cuda_decode.seen_by(None, 3, 5)
    assert causal.tolist() == [7, 7, 7, 6, 4] and cuda_decode.seen_by(None, 3, 5) is causal


@only_on_cuda
def test_large_scores_are_not_rounded() -> None:
    """Some models' scores reach hundreds; MLX's products for masks round them to half precision (0.32.4)."""
    mx.random.seed(0)
    q, k, v = (
        (mx.random.normal((4, h, n, 128)) * s).astype(mx.bfloat16) for h, n, s in ((8, 1, 8), (8, 500, 8), (8, 500, 1))
    )
    mask = mx.arange(500)[None, None, None] < mx.array([500, 300, 200, 77])[:, None, None, None]
    wide = [array.astype(mx.float32) for array in (q, k, v)]
    expected = mx.fast.scaled_dot_product_attention(*wide, scale=0.09, mask=mask)
    upstream = mx.fast.scaled_dot_product_attention(q, k, v, scale=0.09, mask=mask)
    assert distance(cuda_decode.attend(q, k, v, mask, 0.09), expected) < 4e-3 < distance(upstream, expected)


@only_on_cuda
@pytest.mark.parametrize("columns", [100, 900])
def test_filled_forms_attend_as_float32_does(columns: int) -> None:
    q, k, v = inputs(50, columns, 8, 2, 128)
    half = [array.astype(mx.bfloat16) for array in (q, k, v)]
    wide = [array.astype(mx.float32) for array in half]
    mask = base.create_causal_mask(50, columns - 50, window_size=64)
    for got, mask_ in ((attend_filled(*half, 0.09), "causal"), (attend_masked(*half, 0.09, mask), mask)):
        expected = mx.fast.scaled_dot_product_attention(*wide, scale=0.09, mask=mask_)
        assert distance(got, expected) < 6e-3


@pytest.mark.parametrize("tokens", [2, 5, 16])
@pytest.mark.parametrize("sinks", [False, True])
def test_a_few_queries_by_products_are_what_attention_is(tokens: int, sinks: bool) -> None:
    mx.random.seed(tokens)
    q, k, v = (mx.random.normal((3, heads, n, 16)) for heads, n in ((4, tokens), (2, 40), (2, 40)))
    mask = mx.arange(40) <= (mx.array([17, 23, 20])[:, None, None, None] + mx.arange(tokens)[:, None])
    extra = mx.array([0.5, -1.0, 2.0, 0.0]) if sinks else None
    for chosen in (mask, None):
        expected = mx.fast.scaled_dot_product_attention(
            q, k, v, scale=0.25, mask="causal" if chosen is None else chosen, sinks=extra
        )
        assert mx.allclose(attend_few(q, k, v, 0.25, chosen, extra), expected, atol=1e-5)

"""A row's cache behind shared tokens holds the tokens that follow these; `kv_bits` has its effect, or is refused."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache
from mlx_lm.models.cache import create_attention_mask as lm_mask

from localai_shim.engine.cache_contents import KeyValues, Quantised, Upstream
from localai_shim.engine.engine import Engine
from localai_shim.models.caches import can_merge, is_packed, read, write
from localai_shim.models.row_caches import OwnKVCache, fitting
from localai_shim.models.text import TextModel
from localai_shim.types import ModelLoadError
from tests import vlm_architectures
from tests.architectures import text_model
from tests.engine.harness import generate, request

FIRST = 5


def arrays(start: int, stop: int, rows: int = 1) -> tuple[mx.array, mx.array]:
    """Keys that tell their positions, and values that are twice as large."""
    positions = mx.broadcast_to(mx.arange(start, stop).astype(mx.float32)[:, None], (rows, 2, stop - start, 3))
    return positions, 2 * positions


def own(length: int = FIRST, *, upstream: Upstream = "mlx_lm") -> OwnKVCache:
    """Of a row of this length."""
    return OwnKVCache(arrays(0, FIRST), arrays(FIRST, length) if length > FIRST else (), upstream)


def positions(array: mx.array) -> list[int]:
    return [round(x) for x in array[0, 0, :, 0].tolist()]  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize("chunks", [(3,), (1, 1, 1), (250, 1, 9), (256, 1), (300, 300)], ids=str)
@pytest.mark.parametrize("rows", [1, 2])
def test_positions_go_on_behind_shared_tokens_and_own_ones_are_held_as_usual(
    rows: int, chunks: tuple[int, ...]
) -> None:
    cache, plain = own(), KVCache()
    at = FIRST
    assert (cache.offset, cache.size(), cache.nbytes, cache.state, cache.empty()) == (FIRST, FIRST, 0, (), False)
    for chunk in chunks:
        new = arrays(at, at + chunk, rows)
        at += chunk
        for found, expected in zip(cache.update_and_fetch(*new), plain.update_and_fetch(*new), strict=True):
            assert mx.array_equal(found, expected)
        assert cache.offset == cache.size() == at == plain.offset + FIRST
        assert all(mx.array_equal(a, b) for a, b in zip(cache.keys_and_values(), plain.keys_and_values(), strict=True))
    assert cache.nbytes == plain.nbytes == sum(array.nbytes for array in cache.state)


def test_attention_finds_the_shared_tokens_on_it() -> None:
    cache = own(8)
    [part] = cache.shared.parts
    assert part.rows is cache.shared.order is None
    assert positions(part.keys) == list(range(FIRST)) and mx.array_equal(part.values, 2 * part.keys)


def test_own_tokens_can_be_trimmed_and_shared_ones_stay() -> None:
    cache = own(9)
    assert cache.is_trimmable() and cache.trim(3) == 3
    assert cache.offset == 6
    assert positions(cache.update_and_fetch(*arrays(20, 21))[0]) == [5, 20]
    assert cache.trim(100) == 2 and cache.offset == FIRST, "no more than there are"


@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("length", [FIRST, 8])
@pytest.mark.parametrize("window", [None, 11])
def test_masks_are_of_the_own_tokens(length: int, tokens: int, array: bool, window: int | None) -> None:
    cache, plain = own(length), KVCache()
    if length > FIRST:
        plain.update_and_fetch(*arrays(FIRST, length))
    found = cache.make_mask(tokens, return_array=array, window_size=window)
    expected = lm_mask(tokens, offset=plain.offset, return_array=array, window_size=None)
    if isinstance(expected, mx.array):
        assert mx.array_equal(found, expected) and found.shape[-1] == length - FIRST + tokens
    else:
        assert found == expected


@pytest.mark.parametrize(("tokens", "window"), [(1, 8), (3, 10), (3, 4)])
def test_a_window_that_leaves_out_tokens_is_refused(tokens: int, window: int) -> None:
    with pytest.raises(ValueError, match="cannot share tokens that a window may leave out"):
        own(8).make_mask(tokens, window_size=window)


# -- reading and writing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("upstream", ["mlx_lm", "mlx_vlm"])
@pytest.mark.parametrize("length", [FIRST, 6, 300])
def test_a_cache_that_was_read_and_written_goes_on_as_before(length: int, upstream: Upstream) -> None:
    layer = own(length, upstream=upstream)
    contents = read(layer)
    assert isinstance(contents, KeyValues) and contents.upstream == upstream
    assert (contents.length, contents.start, contents.ring, contents.quantised) == (length, FIRST, None, None)
    assert [positions(array) for array in contents.arrays[:1]] == [list(range(FIRST, length))][: length > FIRST]
    again = write(contents)
    assert type(again) is OwnKVCache and again.upstream == upstream and again.before == layer.before
    for at in range(length, length + 4):
        found, expected = (cache.update_and_fetch(*arrays(at, at + 1)) for cache in (again, layer))
        assert positions(found[0]) == positions(expected[0]) == list(range(FIRST, at + 1))
        assert again.offset == layer.offset == at + 1


def test_what_was_read_does_not_change_with_the_cache() -> None:
    layer = own(8)
    contents = read(layer)
    layer.trim(2)
    layer.update_and_fetch(*arrays(90, 92))
    assert isinstance(contents, KeyValues) and positions(contents.arrays[0]) == [5, 6, 7]
    again = write(contents)
    again.trim(1)
    again.update_and_fetch(*arrays(80, 81))
    assert positions(contents.arrays[0]) == [5, 6, 7] and positions(layer.keys_and_values()[0]) == [5, 90, 91]


def test_only_tokens_behind_the_offset_are_read() -> None:
    layer = own(8)
    layer.update_and_fetch(*arrays(8, 20))
    layer.trim(10)
    contents = read(layer)
    assert isinstance(contents, KeyValues) and positions(contents.arrays[0]) == [5, 6, 7, 8, 9]


def test_contents_without_shared_tokens_are_a_plain_cache() -> None:
    layer = write(KeyValues(4, arrays(0, 4)))
    assert type(layer) is KVCache and layer.offset == 4


def test_a_row_that_shares_is_neither_packed_nor_merged_by_its_class() -> None:
    assert not is_packed(own()) and not can_merge(own())


EIGHT = Quantised(32, 8)
WIDE: dict[str, Any] = {
    "hidden_size": 128,
    "head_dim": 32,
    **dict.fromkeys(
        ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "q_lora_rank", "index_head_dim"), 32
    ),
}
"""Sizes that groups of 32 divide."""
PROMPTS = [[101, 33, 60, 5, 9, 13, 21, 8, 3, 77, 140], [17, 4, 250]]
UNPACKED = ["deepseek_v3", "gemma2", "gpt_oss", "gemma3n"]
"""Latents that are multiplied by themselves, own products, attention sinks, keys that layers share."""
MORE_UNPACKED = [
    "bailing_hybrid",
    "gemma4",
    "glm4_moe_lite",
    "kimi_linear",
    "longcat_flash",
    "mistral4",
    "phi",
    "plamo",
]


def engine_of(name: str, kv: Quantised | None) -> Engine[TextModel]:
    def load() -> TextModel:
        model = text_model(name, kv, **WIDE)
        model.check()
        return model

    return Engine(load, None)


@pytest.mark.parametrize("name", [*UNPACKED, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in MORE_UNPACKED)])
def test_keys_and_values_are_unpacked_for_code_that_multiplies_with_plain_ones(name: str) -> None:
    said = []
    for kv in (None, EIGHT):
        with closing(engine_of(name, kv)) as engine:
            said.append(generate(engine, *(request(prompt, max_tokens=12) for prompt in PROMPTS)))
            stats = engine.stats()
            assert (stats.kv_bytes_per_token < stats.kv_bytes_per_token_unquantised) == (kv is not None)
    same = sum(a == b for plain, eight in zip(*said, strict=True) for a, b in zip(plain, eight, strict=False))
    assert same > 12, "of 24: the first tokens at least, in 8 bits"


@pytest.mark.parametrize(("name", "unpacks"), [("llama", False), ("qwen3", False), *((n, True) for n in UNPACKED)])
def test_whether_they_are_unpacked_is_found_by_trial(name: str, unpacks: bool) -> None:
    assert fitting(EIGHT, text_model(name, EIGHT, **WIDE)).unpacks is unpacks


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("deepseek_v32", r"the code of 'deepseek_v32' reads its keys and values .*\(TypeError: .*Leave kv_bits out"),
        ("mamba2", "'mamba2' has no layers whose keys and values could be quantized"),
    ],
)
def test_what_cannot_be_quantized_is_refused_when_it_is_loaded(name: str, message: str) -> None:
    with pytest.raises(ModelLoadError, match=message) as caught:
        fitting(EIGHT, text_model(name, EIGHT, **WIDE))
    assert len(str(caught.value)) < 500


def test_plain_keys_beside_caches_that_slots_cannot_hold_are_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"'glm5_next' cannot be batched because of its layers \(\w+\)"):
        fitting(EIGHT, vlm_architectures.text_model("glm5_next", EIGHT))

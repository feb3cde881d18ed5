"""Attention that reads shared tokens once gives what attention over each row's whole keys gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.models import base as lm_base
from mlx_vlm.models import base as vlm_base

from localai_shim.backends import shared_attention as module
from localai_shim.backends.patches import Mask, replace
from localai_shim.backends.shared_attention import attend_shared, is_sharing, sharing, use_sharing
from localai_shim.engine.cache_contents import Shared, SharedPart
from localai_shim.models.row_caches import OwnKVCache
from tests import vlm_architectures
from tests.tiny import tiny

HEADS, DIM = 4, 16
SCALE = DIM**-0.5

Groups = Sequence[tuple[int, Sequence[int]]]
"""(shared tokens, rows that share them) of each group."""


class Case:
    """Random queries, keys and values of rows of which some share first tokens.

    Args:
        rows: of the pass.
        groups: of rows that share.
        tokens: queries of each row.
        own: keys of each row behind the shared ones.
        key_heads: heads of keys and values; queries have `HEADS`.
        dtype: of all arrays.
    """

    def __init__(
        self,
        rows: int,
        groups: Groups,
        tokens: int = 1,
        own: int = 7,
        key_heads: int = 2,
        dtype: mx.Dtype = mx.float32,
    ) -> None:
        mx.random.seed(3)
        self.rows, self.groups, self.tokens, self.own = rows, groups, tokens, own
        self.queries = (3 * mx.random.normal((rows, HEADS, tokens, DIM))).astype(dtype)
        self.keys, self.values = (mx.random.normal((rows, key_heads, own, DIM)).astype(dtype) for _ in range(2))
        self.parts = list[SharedPart]()
        for length, its in groups:
            keys, values = ((1 + mx.random.normal((1, key_heads, length, DIM))).astype(dtype) for _ in range(2))
            self.parts.append(SharedPart(keys, values, mx.array([*its], mx.int32)))

    @property
    def shared(self) -> Shared:
        placed = [row for _, its in self.groups for row in its]
        order = [placed.index(row) if row in placed else len(placed) for row in range(self.rows)]
        return Shared(self.parts, mx.array(order, mx.int32))

    def whole(self, row: int) -> tuple[mx.array, mx.array, int]:
        """A row's keys and values with those that it shares, and the number of these."""
        keys, values, first = self.keys[row : row + 1], self.values[row : row + 1], 0
        for part, (length, its) in zip(self.parts, self.groups, strict=True):
            if row in its:
                keys, values = (mx.concatenate(pair, axis=2) for pair in ([part.keys, keys], [part.values, values]))
                first = length
        return keys, values, first

    def expected(self, mask: Mask = None, sinks: mx.array | None = None) -> mx.array:
        """MLX's attention for each row by itself."""
        out = []
        for row in range(self.rows):
            keys, values, first = self.whole(row)
            seen = mask
            if isinstance(mask, mx.array):
                own = mx.broadcast_to(mask, (self.rows, 1, self.tokens, self.own))[row : row + 1]
                seen = mx.concatenate([mx.ones((1, 1, self.tokens, first), mx.bool_), own], axis=-1)
            queries = self.queries[row : row + 1]
            attended = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=SCALE, mask=seen, sinks=sinks)
            out.append(attended)
        return mx.concatenate(out)

    def check(self, mask: Mask = None, sinks: mx.array | None = None, tolerance: float = 1e-5) -> None:
        attended = attend_shared(self.queries, self.keys, self.values, self.shared, SCALE, mask, sinks)
        expected = self.expected(mask, sinks)
        assert attended.shape == expected.shape and attended.dtype == expected.dtype
        assert mx.allclose(attended, expected, rtol=tolerance, atol=tolerance)


ONE_GROUP: Groups = [(19, [0, 1, 2])]
WITH_OTHERS: Groups = [(19, [4, 1]), (33, [0, 3, 5])]
"""Of seven rows: 2 and 6 share nothing, and the first group's rows are not in order."""


def ragged(rows: int, tokens: int, own: int) -> mx.array:
    """Each row's queries see its own first keys, as many as the row has."""
    last = mx.arange(rows)[:, None, None, None] % (own - tokens + 1) + mx.arange(tokens)[:, None]
    return mx.arange(own) <= last


@pytest.mark.parametrize("key_heads", [1, 2, 4])
@pytest.mark.parametrize("tokens", [1, 3])
def test_rows_that_all_share_get_attention_over_all_of_their_keys(tokens: int, key_heads: int) -> None:
    case = Case(3, ONE_GROUP, tokens, key_heads=key_heads)
    case.check()
    one = Shared([SharedPart(case.parts[0].keys, case.parts[0].values)])
    attended = attend_shared(case.queries, case.keys, case.values, one, SCALE, None)
    assert mx.allclose(attended, case.expected(), rtol=1e-5, atol=1e-5), "without a list of the rows"


@pytest.mark.parametrize("key_heads", [1, 2, 4])
@pytest.mark.parametrize("tokens", [1, 3])
def test_each_group_reads_its_tokens_and_rows_outside_read_none(tokens: int, key_heads: int) -> None:
    Case(7, WITH_OTHERS, tokens, key_heads=key_heads).check()


@pytest.mark.parametrize("groups", [ONE_GROUP, WITH_OTHERS], ids=["one group", "groups and others"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_masks_hide_own_keys_and_no_shared_ones(tokens: int, groups: Groups) -> None:
    rows = 3 if groups is ONE_GROUP else 7
    case = Case(rows, groups, tokens)
    case.check(ragged(rows, tokens, case.own))
    case.check(ragged(1, tokens, case.own))
    case.check(ragged(1, tokens, case.own)[0, 0])


@pytest.mark.parametrize("groups", [ONE_GROUP, WITH_OTHERS], ids=["one group", "groups and others"])
@pytest.mark.parametrize(("tokens", "own"), [(1, 7), (5, 7), (7, 7)], ids=["one", "some", "all"])
def test_causal_rows_see_shared_tokens_and_own_ones_up_to_themselves(tokens: int, own: int, groups: Groups) -> None:
    Case(3 if groups is ONE_GROUP else 7, groups, tokens, own).check("causal")


@pytest.mark.parametrize("groups", [ONE_GROUP, WITH_OTHERS], ids=["one group", "groups and others"])
@pytest.mark.parametrize("height", [-30.0, 0.0, 30.0], ids=["low", "as scores", "high"])
def test_sinks_take_part_of_the_weights(height: float, groups: Groups) -> None:
    case = Case(3 if groups is ONE_GROUP else 7, groups, 2)
    sinks = height + mx.arange(HEADS).astype(mx.float32)
    case.check("causal", sinks)


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("groups", [ONE_GROUP, WITH_OTHERS], ids=["one group", "groups and others"])
def test_half_precision_gives_the_same_but_for_rounding(groups: Groups, dtype: mx.Dtype) -> None:
    Case(3 if groups is ONE_GROUP else 7, groups, 3, dtype=dtype).check("causal", tolerance=5e-2)


@pytest.mark.parametrize("most", [1, 500, 2000])
def test_many_queries_are_attended_in_pieces(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SCORES", most)
    sizes, products = list[int](), module._products

    def noting(queries: mx.array, keys: mx.array, *more: Any) -> Any:
        sizes.append(queries.shape[0] * queries.shape[1] * queries.shape[2] * keys.shape[2])
        return products(queries, keys, *more)

    monkeypatch.setattr(module, "_products", noting)
    case = Case(7, WITH_OTHERS, tokens=11, own=13)
    case.check(ragged(7, 11, 13))
    assert len(sizes) > 6
    one_query = max(case.rows * HEADS * case.own, HEADS * 33)
    assert max(sizes) <= max(most, one_query), "a product has few scores, or one query of each row"


@pytest.mark.parametrize("far", [-200.0, 200.0], ids=["own scores larger", "shared scores larger"])
def test_scores_of_the_two_parts_may_be_far_apart(far: float) -> None:
    """A part's weights are relative to its own largest score: joined without it, they overflow or count too much."""
    case = Case(3, ONE_GROUP)
    toward = case.queries[:1, ::2, :1]
    case.parts = [SharedPart(part.keys + far * toward, part.values, part.rows) for part in case.parts]
    case.check(tolerance=1e-3)
    case.parts = [SharedPart(part.keys - 2 * far * toward, part.values, part.rows) for part in case.parts]
    case.check(tolerance=1e-3)


def test_masks_that_are_added_to_scores_are_refused() -> None:
    case = Case(3, ONE_GROUP)
    for mask in (mx.zeros((1, 1, 1, case.own)), "something else"):
        with pytest.raises(ValueError, match="shared tokens cannot be read"):
            attend_shared(case.queries, case.keys, case.values, case.shared, SCALE, mask)


# -- the libraries' functions ----------------------------------------------------------------------------------------


class Layer:
    """A cache of which only what attention looks at matters."""

    def __init__(self, shared: Shared | None) -> None:
        self.shared = shared


@pytest.mark.parametrize("base", [lm_base, vlm_base], ids=["mlx-lm", "mlx-vlm"])
def test_the_libraries_attention_reads_what_the_cache_shares(base: Any) -> None:
    case = Case(7, WITH_OTHERS)
    attend = sharing(base.scaled_dot_product_attention, attend_shared)
    attended = attend(case.queries, case.keys, case.values, Layer(case.shared), scale=SCALE, mask=None)
    assert mx.allclose(attended, case.expected(), rtol=1e-5, atol=1e-5)
    sinks = mx.arange(HEADS).astype(mx.float32)
    attended = attend(case.queries, case.keys, case.values, Layer(case.shared), SCALE, None, sinks=sinks)
    assert mx.allclose(attended, case.expected(sinks=sinks), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("base", [lm_base, vlm_base], ids=["mlx-lm", "mlx-vlm"])
@pytest.mark.parametrize("cache", [None, Layer(None)], ids=["no cache", "a cache"])
def test_the_libraries_attention_is_called_as_it_is_where_nothing_is_shared(cache: Any, base: Any) -> None:
    case, upstream = Case(3, []), base.scaled_dot_product_attention
    attend = sharing(upstream, attend_shared)
    for sinks in (None, mx.arange(HEADS).astype(mx.float32)):
        arguments = (case.queries, case.keys, case.values, cache)
        attended = attend(*arguments, scale=SCALE, mask="causal", sinks=sinks)
        assert mx.array_equal(attended, upstream(*arguments, scale=SCALE, mask="causal", sinks=sinks))
    assert not is_sharing(cache) and is_sharing(Layer(Shared([])))


def test_arguments_that_shared_tokens_cannot_be_read_with_are_refused() -> None:
    case = Case(3, ONE_GROUP)
    attend, cache = sharing(lm_base.scaled_dot_product_attention, attend_shared), Layer(case.shared)
    packed = mx.quantize(mx.zeros((3, 2, 7, 32)), group_size=32, bits=8)
    with pytest.raises(ValueError, match="takes arguments"):
        attend(case.queries, packed, packed, cache, scale=SCALE, mask=None)
    with pytest.raises(ValueError, match="takes arguments"):
        attend(case.queries, case.keys, case.values, cache, scale=SCALE, mask=None, something=1)


def logits_behind(model: Any, shared: bool) -> mx.array:
    """Logits of tokens behind others whose keys and values are the cache's own, or shared."""
    layers = len(model.layers)
    cache = mlx_lm.models.cache.make_prompt_cache(model)
    model(mx.array([[5, 6, 7, 8, 9]]), cache=cache)
    if shared:
        cache = [OwnKVCache([array[:, :, :5] for array in (layer.keys, layer.values)]) for layer in cache]
    assert len(cache) == layers
    output = model(mx.array([[10, 11, 12]]), cache=cache)
    logits: mx.array = getattr(output, "logits", output)
    return logits


def lm() -> Any:
    return mlx_lm.load(str(tiny("qwen3")))[0]


def vlm() -> Any:
    return vlm_architectures.make("llava")


@pytest.mark.parametrize("make", [lm, vlm], ids=["mlx-lm", "mlx-vlm"])
def test_a_model_s_layers_read_shared_tokens_once_it_was_changed(make: Any) -> None:
    model = make()
    expected = logits_behind(model, shared=False)
    assert not mx.allclose(logits_behind(model, shared=True), expected, rtol=1e-3, atol=1e-3), "upstream's ignore them"
    assert use_sharing(model, attend_shared, None) >= len(model.layers)
    assert mx.allclose(logits_behind(model, shared=True), expected, rtol=1e-4, atol=1e-4)
    assert mx.allclose(logits_behind(model, shared=False), expected, rtol=1e-4, atol=1e-4)


def test_a_machine_s_own_form_of_attention_reads_them_too() -> None:
    """Layers may call that form already when sharing is set up."""
    upstream = lm_base.scaled_dot_product_attention

    def form(function: Any) -> Any:
        return ours if function is upstream else function

    def ours(*arguments: Any, **named: Any) -> mx.array:
        attended: mx.array = upstream(*arguments, **named)
        return attended

    model = lm()
    expected = logits_behind(model, shared=False)
    replace(model, ((upstream, ours),))
    assert use_sharing(model, attend_shared, form) >= len(model.layers)
    assert mx.allclose(logits_behind(model, shared=True), expected, rtol=1e-4, atol=1e-4)

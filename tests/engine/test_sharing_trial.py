"""Models whose attention does not read what rows share are found when they are loaded, and share nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models import base
from mlx_lm.models.cache import KVCache

from localai_shim.backends import patches
from localai_shim.backends.shared_attention import attend_shared
from localai_shim.engine import probes as module
from localai_shim.engine.cache_contents import Quantised, Shared, SharedPart
from localai_shim.engine.ports import host
from localai_shim.engine.prefix import sharing
from localai_shim.engine.probes import agreement, least_shared
from localai_shim.models.text import TextModel
from localai_shim.types import Prompt
from tests.architectures import text_model
from tests.samples import only


@pytest.fixture(autouse=True)
def _nothing_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "_known", {})


def prepared(name: str, kv: Quantised | None = None, **changes: Any) -> TextModel:
    """The model as a client loads it."""
    model = text_model(name, kv, **changes)
    host().forms().prepare(model._model)
    return model


QUICK = ["qwen3", "gemma3_text", "lfm2"]
DENSE = ["qwen3", "gemma3_text", "gpt2", "lfm2", "llama", "falcon_h1"]
"""MLX's CPU back end multiplies with experts in float32 only."""


@pytest.mark.parametrize(
    ("name", "half"),
    only(itertools.product(QUICK, (False, True)), [*itertools.product(DENSE, (False, True)), ("olmoe", False)]),
)
def test_rows_share_where_the_model_calls_its_library_s_attention(name: str, half: bool) -> None:
    model = prepared(name)
    if half:
        model._model.set_dtype(mx.bfloat16)
    assert least_shared(model) is not None


@pytest.mark.parametrize("name", ["deepseek_v3", "gemma2"])
def test_rows_share_nothing_where_attention_is_the_model_s_own(name: str) -> None:
    model = prepared(name)
    assert agreement(model).together and least_shared(model) is None


def test_rows_share_nothing_where_attention_was_not_changed() -> None:
    """It would leave out the shared tokens, and answer."""
    assert least_shared(text_model("qwen3")) is None


def test_rows_share_no_states_and_no_quantised_keys() -> None:
    assert least_shared(prepared("mamba")) is None, "nothing of it grows with the tokens"
    assert least_shared(prepared("qwen3", Quantised(32, 8), head_dim=32)) is None


def first_part_only(shared: Shared, own: mx.array) -> Shared:
    return Shared([SharedPart(shared.parts[0].keys, shared.parts[0].values)])


def other_rows(shared: Shared, own: mx.array) -> Shared:
    order = shared.order
    return shared if order is None else Shared(shared.parts, order[::-1])


def fewer_tokens(shared: Shared, own: mx.array) -> Shared:
    """Only while rows decode: a group's tokens end too early."""
    parts = [SharedPart(part.keys[:, :, :-4], part.values[:, :, :-4], part.rows) for part in shared.parts]
    return shared if own.shape[2] > 1 else Shared(parts, shared.order)


@pytest.mark.parametrize("spoiled", [first_part_only, other_rows, fewer_tokens])
@pytest.mark.parametrize("name", only(["qwen3"], ["qwen3", "gemma3_text", "lfm2"]))
def test_a_kernel_that_reads_other_tokens_is_found(name: str, spoiled: Any) -> None:
    def attend(queries: mx.array, keys: mx.array, values: mx.array, shared: Shared, *more: Any) -> mx.array:
        return attend_shared(queries, keys, values, spoiled(shared, queries), *more)

    model = text_model(name)
    upstream = base.scaled_dot_product_attention

    def changed(queries: mx.array, keys: Any, values: Any, cache: Any, scale: float, mask: Any = None) -> mx.array:
        shared = getattr(cache, "shared", None)
        if shared is None:
            return upstream(queries, keys, values, cache, scale, mask)  # type: ignore[no-any-return]
        return attend(queries, keys, values, shared, scale, mask)

    patches.replace(model._model, ((upstream, changed),))
    assert agreement(model).together and least_shared(model) is None


def test_a_model_whose_code_does_not_look_at_what_is_shared_is_found() -> None:
    model = prepared("qwen3")
    for layer in model._model.layers:
        layer.self_attn = Ignoring(layer.self_attn)
    assert agreement(model).together and least_shared(model) is None


class Ignoring:
    """Attention that is called with a cache of which it sees the own tokens only."""

    def __init__(self, attention: Any) -> None:
        self._attention = attention

    def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        return self._attention(x, mask, Hiding(cache))  # type: ignore[no-any-return]


class Hiding:
    """A layer's cache without `shared`."""

    shared = None

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)


class Windowed(Ignoring):
    """Attention of a layer that holds all tokens, with a mask that may leave out the first ones of long rows."""

    def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        if cache is not None:
            mask = cache.make_mask(x.shape[1], return_array=False, window_size=1000)
        return self._attention(x, mask, cache)  # type: ignore[no-any-return]


def test_a_layer_that_holds_all_tokens_and_asks_for_a_window_is_found() -> None:
    """The trial's rows are shorter than the window: their logits are right."""
    model = prepared("qwen3")
    assert all(type(layer) is KVCache for layer in model.new_cache())
    layer = model._model.layers[1]
    layer.self_attn = Windowed(layer.self_attn)
    assert agreement(model).together and least_shared(model) is None


def test_the_trial_s_result_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = prepared("qwen3")
    monkeypatch.setattr(module, "break_even", lambda layer, query_heads: 700.0)
    assert least_shared(model) == 700
    monkeypatch.setattr(module, "_known", {})
    monkeypatch.setattr(module, "_try_shares", lambda model: pytest.fail("it was tried again"))
    assert least_shared(model) == 700
    [path] = [path for path in tmp_path.rglob("*") if "-least-shared-" in path.name]
    assert path.read_text() == "701 tried"


def refused(layer: object, query_heads: int) -> float:
    raise RuntimeError("no kernel")


@pytest.mark.parametrize("found", [lambda layer, query_heads: float("inf"), refused], ids=["never", "not measured"])
def test_rows_can_share_where_it_never_saves_time(
    found: Callable[..., float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "break_even", found)
    least = least_shared(prepared("qwen3"))
    assert ("could not be measured: no kernel" in caplog.text) == (found is refused)
    assert least is not None and least > sharing.MOST_SAVED_TOKENS
    prompts = [Prompt([0] * 5_000), Prompt([0] * 5_000)]
    assert sharing.Sharing(None, least).common(prompts[0], prompts[1:]) == 4_999, "memory counts"

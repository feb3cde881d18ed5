"""Kinds of caches that a row may have, and models to run on them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx_lm
from mlx_lm.models import falcon_h1
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache
from mlx_vlm.models import cache as mlx_vlm

from localai_shim.engine.cache_contents import Quantised
from localai_shim.engine.kv import RowCache
from localai_shim.models.row_caches import pack
from tests import vlm_architectures
from tests.tiny import VOCABULARY, tiny

MakeCache = Callable[[Any], RowCache]


class OwnKVCache(KVCache):
    """A kind that nobody here knows, which can be merged."""

    @classmethod
    def merge(cls, caches: Any) -> Any:
        return KVCache.merge(caches)


class OwnVisionKVCache(mlx_vlm.KVCache):
    """One of mlx-vlm's."""

    @classmethod
    def merge(cls, caches: Any) -> Any:
        return mlx_vlm.KVCache.merge(caches)


class Language:
    """A language model of mlx-vlm, called as mlx-lm's are."""

    def __init__(self, model: Any) -> None:
        self._model, self.layers = model, model.layers

    def make_cache(self) -> RowCache:
        row: RowCache = mlx_vlm.make_prompt_cache(self._model)
        return row

    def __call__(self, tokens: Any, cache: RowCache) -> Any:
        if not hasattr(self._model, "get_rope_index"):
            return self._model(tokens, cache=cache).logits
        offset = next(layer.offset for layer in cache if hasattr(layer, "offset"))
        places = mx.array(offset).reshape(-1, 1) + mx.arange(tokens.shape[1])
        return self._model(tokens, cache=cache, position_ids=mx.broadcast_to(places, (3, *tokens.shape))).logits


def caches_of(kind: type, *arguments: Any, **options: Any) -> MakeCache:
    return lambda model: [kind(*arguments, **options) for _ in model.layers]


# What a row is prefilled on: (model, how its caches are made, whether they can always be rolled back).
KINDS: dict[str, tuple[str, MakeCache, bool]] = {
    "dense": ("qwen3", make_prompt_cache, True),
    "sliding window": ("gemma3_text", make_prompt_cache, False),
    "ring that keeps its first tokens": ("qwen3", caches_of(RotatingKVCache, 24, keep=4), False),
    "ring": ("llama", caches_of(RotatingKVCache, 20), False),
    "recurrent and dense": ("qwen3_next", make_prompt_cache, False),
    "two caches per layer": ("falcon_h1", make_prompt_cache, False),
    "experts": ("qwen3_moe", make_prompt_cache, True),
    "quantised": ("qwen3", lambda model: pack(make_prompt_cache(model), Quantised(32, 8)), True),
    "mlx-vlm's: dense": ("mlx_vlm.qwen2_vl", make_prompt_cache, True),
    "mlx-vlm's: sliding window": ("mlx_vlm.gemma3", make_prompt_cache, False),
    "mlx-vlm's: recurrent and dense": ("mlx_vlm.qwen3_5", make_prompt_cache, False),
    "mlx-vlm's: two caches per layer": ("mlx_vlm.baichuan_m1", make_prompt_cache, False),
    "mlx-vlm's: quantised": (
        "mlx_vlm.qwen2_vl",
        lambda model: pack(make_prompt_cache(model), Quantised(32, 8)),
        True,
    ),
    "unknown": ("qwen3", caches_of(OwnKVCache), False),
    "mlx-vlm's: unknown": ("mlx_vlm.qwen2_vl", caches_of(OwnVisionKVCache), False),
}


ALIKE = ("experts", "ring")  # the caches are those of "dense", and of "sliding window"
QUICK = [name for name in KINDS if not name.startswith("mlx-vlm's") and name not in ALIKE]
QUICK += ["mlx-vlm's: recurrent and dense"]
"""Those of both libraries are held by the same code; slots differ where models read them."""

# Tiny as they are, the models need heads of 32 where keys are quantised in groups of 32.
CHANGES: dict[str, dict[str, Any]] = {
    "quantised": {"head_dim": 32},
    "mlx-vlm's: quantised": {"hidden_size": 128, "num_hidden_layers": 2},
}


FALCON: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCABULARY,
    "mamba_d_ssm": 64,
    "mamba_d_head": 16,
    "mamba_n_heads": 4,
    "mamba_d_state": 16,
}


@functools.cache
def load(kind: str, **changes: Any) -> Any:
    if kind.startswith("mlx_vlm."):
        return Language(vlm_architectures.make(kind.removeprefix("mlx_vlm."), **changes))
    if kind == "falcon_h1":  # its weights change when they are loaded, so that what is made here cannot be saved
        mx.random.seed(0)
        return falcon_h1.Model(falcon_h1.ModelArgs(**FALCON))
    return mlx_lm.load(str(tiny(kind, **changes)))[0]


def forward(model: Any, tokens: list[int], cache: RowCache) -> Any:
    """Logits after one more token per row, `[rows, vocabulary]`."""
    return model(mx.array(tokens)[:, None], cache=cache)[:, -1]


def prefilled(model: Any, make: MakeCache, prompt: list[int], chunk: int = 40) -> RowCache:
    cache = make(model)
    for start in range(0, len(prompt), chunk):
        model(mx.array([prompt[start : start + chunk]]), cache=cache)
        mx.eval([layer.state for layer in cache])
    return cache

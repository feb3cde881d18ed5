"""Layers of mlx-lm's and mlx-vlm's models that misread a batch, and recurrent ones whose states can be cut."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import TypeAlias

import mlx.core as mx
from mlx import nn

from ..backends.patches import Function, Mask
from ..engine.cache_contents import LayerCache
from .attention.blocks import (
    blocks_by_row,
    choosing_in_padded_rows,
    decoding_merged_rows,
    near_and_strided,
    reading_lists,
    with_lists,
)
from .attention.chunked import masked_by_row, tuned_by_row, with_rings
from .attention.compressed import choosing_by_row, compressing, reading_rings, windowed_by_row, with_rings_and_pools
from .attention.one_offset import (
    Altered,
    banded_by_row,
    embedded_by_row,
    masked_by_cache,
    placed_by_row,
    reusing_by_row,
    scaled_by_row,
)
from .attention.pooled import pooling, scoring_all, with_pools
from .attention.prompt_rings import with_prompt_rings
from .attention.recurrence import keeping_inputs
from .attention.running_sums import not_waiting, placing_rows, reading_states, with_states

Experts: TypeAlias = "tuple[mx.array, mx.array]"
"""Their places and scores."""
Change = Callable[[FunctionType], Callable[..., object]]
"""Makes of a method of a layer's, `__call__` mostly, one that reads rows apart."""


def batch_attention(model: nn.Module) -> int:
    """Give layers that misread a batch a class that does not, and recurrent ones a class whose states can be cut.

    Args:
        model: changed in place; its weights stay as they are. Subclasses are left alone: they may compute otherwise.

    Returns:
        Number of these layers.
    """
    layers = [layer for layer in model.modules() if _key(layer) in _MISREADING and getattr(layer, "repeats", 2) > 1]
    for layer in layers:  # nothing is stacked where a key head has one query
        kind: object = type(layer)
        layer.__class__ = _corrected(kind)
    return len(layers)


def _key(layer: nn.Module) -> tuple[str, str]:
    return type(layer).__module__, type(layer).__name__


@functools.cache
def _corrected(kind: type) -> type:
    """A class like this one with methods that read rows apart."""
    from ..backends.patches import class_like

    changes = _MISREADING[kind.__module__, kind.__name__]
    methods = {name: change(getattr(kind, name)) for name, change in changes.items()}
    return class_like(kind, {**methods, "__module__": __name__})


def _stacking(upstream: Function) -> Function:
    """gemma2 stacks the queries that share a key head, so that its scores are `[rows, key heads, queries per key head,
    queries, keys]`: the axes of a mask `[rows, 1, queries, keys]` fall on others then, its rows on the key heads."""

    def call(self: nn.Module, x: mx.array, mask: mx.array | None = None, cache: LayerCache | None = None) -> mx.array:
        if mask is not None and mask.ndim == 4:  # per row
            mask = mask[:, :, None]
        return upstream(self, x, mask, cache)

    return call


def _counting(upstream: Function) -> Function:
    """These cut the mask to the positions that they think there are, the longest row's, for which they ask the device
    in each layer; slots read more. Here positions are those of `position_ids`, and the cache says a number."""

    def call(
        self: nn.Module,
        x: mx.array,
        mask: Mask = None,
        cache: LayerCache | None = None,
        *args: object,
        **kwargs: object,
    ) -> mx.array:
        placed = (args[0] if args else kwargs.get("position_ids")) is not None
        if placed and cache is not None and hasattr(cache, "_idx") and not isinstance(cache.offset, int):
            cache = Altered(cache, offset=cache._idx)
        return upstream(self, x, mask, cache, *args, **kwargs)

    return call


def _preceding(upstream: Function) -> Function:
    """gemma3n's layers that read another's keys ask for the cache's offset when that has stored the pass's tokens: they
    turn queries by the place behind them, however many they are. mlx-lm's turn them by their own."""

    def call(self: nn.Module, x: mx.array, mask: Mask = None, cache: LayerCache | None = None) -> mx.array:
        if self.is_kv_shared_layer and cache is not None:
            cache = Altered(cache, offset=cache.offset - x.shape[1])
        return upstream(self, x, mask, cache)

    return call


def _rotating(_: Function) -> Function:
    """jina_vlm turns all rows by the longest one's position."""

    def call(self: nn.Module, x: mx.array, offset: int | mx.array = 0) -> mx.array:
        return mx.fast.rope(x, self.dims, traditional=False, base=self.theta, scale=1.0, offset=offset)

    return call


def _flattening(upstream: Callable[..., Experts]) -> Callable[..., Experts]:
    """DeepSeek's choice of experts by groups looks scores up by the token's number, in a table of all rows' tokens."""

    def call(self: nn.Module, x: mx.array) -> Experts:
        rows, k, width = x.shape
        experts, scores = upstream(self, x.reshape(1, rows * k, width))
        return experts.reshape(rows, k, -1), scores.reshape(rows, k, -1)

    return call


def _ending_by_row(upstream: Function) -> Function:
    """nemotron_h's states after a pass are those after its last place, which holds padding in shorter rows: they lose
    what came before. mlx-lm's other layers with such states give `ssm_update` the length of each row."""
    from ..backends.patches import rebound

    def states(self: nn.Module, *args: object) -> mx.array:
        *_, cache, _ = args
        lengths = getattr(cache, "lengths", None)
        if lengths is None:
            return upstream(self, *args)
        names = upstream.__globals__
        update = functools.partial(names["ssm_update"], lengths=lengths)
        return rebound(upstream, {**names, "ssm_update": update})(self, *args)

    return states


def _called(change: Change) -> dict[str, Change]:
    return {"__call__": change}


_MISREADING: dict[tuple[str, str], dict[str, Change]] = {
    ("mlx_lm.models.gemma2", "Attention"): _called(_stacking),
    ("mlx_vlm.models.gemma2.language", "Attention"): _called(_stacking),
    ("mlx_vlm.models.qwen3_vl_moe.language", "Attention"): _called(_counting),
    ("mlx_vlm.models.qwen3_omni_moe.language", "Attention"): _called(_counting),
    ("mlx_vlm.models.gemma3n.language", "Gemma3nAttention"): _called(_preceding),
    ("mlx_vlm.models.jina_vlm.language", "RoPE"): _called(_rotating),
    ("mlx_vlm.models.deepseek_vl_v2.language", "MoEGate"): _called(_flattening),
    ("mlx_vlm.models.deepseek_v4.language", "LanguageModel"): {"make_cache": with_pools},
    ("mlx_vlm.models.deepseek_v4.language", "Compressor"): _called(pooling),
    ("mlx_vlm.models.deepseek_v4.language", "Indexer"): _called(scoring_all),
    ("mlx_lm.models.deepseek_v41", "TextModel"): {"make_cache": with_rings_and_pools, "__call__": reading_rings},
    ("mlx_lm.models.deepseek_v41", "Attention"): {"__call__": windowed_by_row, "_compress": compressing},
    ("mlx_lm.models.deepseek_v41", "Indexer"): _called(choosing_by_row),
    ("mlx_lm.models.afm7", "AFMModel"): _called(reusing_by_row),
    ("mlx_lm.models.nemotron_h", "NemotronHMamba2Mixer"): {"_ssm": _ending_by_row, "__call__": keeping_inputs},
    ("mlx_lm.models.qwen3_next", "Qwen3NextGatedDeltaNet"): _called(keeping_inputs),
    ("mlx_lm.models.qwen3_5", "GatedDeltaNet"): _called(keeping_inputs),
    ("mlx_lm.models.granitemoehybrid", "GraniteMoeHybridMamba2Mixer"): _called(keeping_inputs),
    ("mlx_lm.models.kimi_linear", "KimiDeltaAttention"): _called(keeping_inputs),
    ("mlx_lm.models.lfm2", "ShortConv"): _called(keeping_inputs),
    ("mlx_lm.models.lfm2_moe", "ShortConv"): _called(keeping_inputs),
    ("mlx_lm.models.mamba2", "Mamba2Block"): _called(keeping_inputs),
    ("mlx_vlm.models.qwen3_5.language", "Qwen3_5GatedDeltaNet"): _called(keeping_inputs),
    ("mlx_vlm.models.qwen3_next.language", "Qwen3NextGatedDeltaNet"): _called(keeping_inputs),
    ("mlx_vlm.models.lfm2.language", "ShortConv"): _called(keeping_inputs),
    ("mlx_lm.models.gpt_bigcode", "GPTBigCodeModel"): _called(embedded_by_row),
    ("mlx_lm.models.llama4", "Model"): {"make_cache": with_rings},
    ("mlx_lm.models.llama4", "LlamaModel"): _called(masked_by_row),
    ("mlx_lm.models.llama4", "Attention"): _called(tuned_by_row),
    ("mlx_lm.models.phi3small", "Attention"): {"_block_sparse_attention": near_and_strided},
    ("mlx_lm.models.minimax_m3_vl", "Attention"): {"_block_mask": blocks_by_row},
    ("mlx_vlm.models.minimax_m3_vl.language", "LanguageModel"): {"make_cache": with_lists},
    ("mlx_vlm.models.minimax_m3_vl.language", "MiniMaxM3Model"): _called(reading_lists),
    ("mlx_vlm.models.inkling.language", "InklingAttention"): _called(banded_by_row),
    ("mlx_vlm.models.limite.language", "LimiteModel"): _called(placed_by_row),
    ("mlx_vlm.models.limite.language", "Attention"): _called(masked_by_cache),
    ("mlx_vlm.models.llama4.language", "LanguageModel"): {"make_cache": with_rings},
    ("mlx_vlm.models.mistral3.language", "Ministral3"): _called(scaled_by_row),
    ("mlx_vlm.models.mistral4.language", "Mistral4Model"): _called(scaled_by_row),
    ("mlx_vlm.models.llama4.language", "LlamaModel"): _called(masked_by_row),
    ("mlx_vlm.models.llama4.language", "Attention"): _called(tuned_by_row),
    ("mlx_vlm.models.qwen4_exp.language", "LanguageModel"): {"_batch_invariant_decode": decoding_merged_rows},
    ("mlx_vlm.models.qwen4_exp.language", "Qwen4ExpAttention"): _called(choosing_in_padded_rows),
    ("mlx_vlm.models.unlimited_ocr.language", "LanguageModel"): {"make_cache": with_prompt_rings},
    ("mlx_vlm.models.z1t.language", "LanguageModel"): {"make_cache": with_states},
    ("mlx_vlm.models.z1t.language", "Z1TModel"): {"__call__": reading_states, "_pos": placing_rows},
    ("mlx_vlm.models.z1t.language", "AFTConv"): {"__call__": not_waiting, "_decode_step": not_waiting},
}
"""Methods that are changed, by module and class."""

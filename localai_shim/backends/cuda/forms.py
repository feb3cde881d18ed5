"""Forms that a model needs on a CUDA GPU; `docs/backends.md` says why, and when each goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import mlx.core as mx
import mlx.nn as nn

from ...engine.cache_contents import RowCache
from ..own_forms import Applied, OwnForms
from ..patches import Function
from . import adapters, attention, products, vision_layers
from .shared_attention import attend_shared


class CudaForms(OwnForms):
    """Own kernels for products and attention, and passes of few lengths: MLX prepares for each new one."""

    attend_shared = staticmethod(attend_shared)

    def _prepare(self, model: nn.Module, memory_limit: int | None) -> Applied:
        return {
            "widths of towers filled up": vision_layers.fill_widths(model),
            **self.prepare_products(model),
            "attention": attention.use_attention(model),
            "one position per token": vision_layers.use_one_position(model),
        }

    def prepare_products(self, model: nn.Module) -> Applied:
        return {
            "products with quantised weights": products.batch_quantised_layers(model),
            "products with half precision": products.use_dense_kernels(model),
        }

    def attention(self) -> Callable[[Function], Function]:
        return attention.attending

    def warm_up(self, model: nn.Module) -> Sequence[int]:
        products.prepare(model)
        return attention.LENGTHS

    def filled(self, tokens: int) -> int:
        return attention.filled(tokens)

    def filled_rows(self, rows: int) -> int:
        return attention.filled_rows(rows)

    def fill(self, tokens: mx.array, layers: RowCache) -> tuple[mx.array, int]:
        return attention.fill(tokens, layers)

    def forget(self, layers: RowCache, padding: int) -> None:
        attention.forget(layers, padding)

    def turned_from(self, starts: int | mx.array | None) -> AbstractContextManager[None]:
        return vision_layers.turned_from(starts)

    def adapter_kernel(self, factors: Sequence[tuple[mx.array, mx.array]]) -> adapters.Kernel | None:
        return adapters.kernel_of(factors)

    def shared_kernel(self, layers: Sequence[nn.Module]) -> products.SharedKernel | None:
        return products.shared_kernel_of(layers)

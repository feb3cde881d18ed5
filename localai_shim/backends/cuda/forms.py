"""Forms that a model needs on a CUDA GPU; `docs/backends.md` says why, and when each goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.nn as nn

from ..own_forms import Applied, OwnForms
from ..patches import Function
from . import adapters, attention, products, vision_layers
from .shared_attention import attend_shared


class CudaForms(OwnForms):
    """Own kernels for products and attention, and passes of few lengths: MLX prepares for each new one."""

    attend_shared = staticmethod(attend_shared)
    filled = staticmethod(attention.filled)
    filled_rows = staticmethod(attention.filled_rows)
    fill = staticmethod(attention.fill)
    forget = staticmethod(attention.forget)
    turned_from = staticmethod(vision_layers.turned_from)
    adapter_kernel = staticmethod(adapters.kernel_of)
    shared_kernel = staticmethod(products.shared_kernel_of)

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

"""Forms that a model needs on a CPU, where float32 alone is multiplied by a BLAS; and on x86 more than that."""

from __future__ import annotations

import logging
from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from ..machine import free_memory, on_x86_cpu, total_memory
from ..own_forms import Applied, OwnForms
from ..patches import Function
from .activations import at_once, attend_shared, attending, gelu_on_cpu, use_x86_forms
from .products import use_pieces
from .rotary import turned_from, use_shared_turns
from .unpacking import use_float32

log = logging.getLogger("localai_shim")

WIDE_MEMORY_SHARE = 0.6  # of free memory, for weights in float32 that a CPU multiplies faster
WIDE_LIMIT_SHARE = 0.5  # of a memory_limit, for those that were packed: rows need the rest


class CpuForms(OwnForms):
    """Float32, and on x86 other exponentials than MLX's."""

    exact_gelu = staticmethod(gelu_on_cpu)
    attend_shared = staticmethod(attend_shared)
    turned_from = staticmethod(turned_from)
    waited_for = staticmethod(at_once)

    def _prepare(self, model: nn.Module, memory_limit: int | None) -> Applied:
        _widen(model)
        use_float32(model, _room(memory_limit))
        if not on_x86_cpu():
            return {}
        return {
            "attention and activations without MLX's exp": use_x86_forms(model),
            "rotary embeddings with shared cosines": use_shared_turns(model),
            **self.prepare_products(model),
        }

    def prepare_products(self, model: nn.Module) -> Applied:
        return {"products of few rows in pieces": use_pieces(model)} if on_x86_cpu() else {}

    def attention(self) -> Callable[[Function], Function]:
        return attending


def _widen(model: nn.Module) -> None:
    """On the CPU back end half-precision products do not go through BLAS: widen them while memory allows."""
    narrow = sum(a.nbytes for _, a in tree_flatten(model.parameters()) if a.dtype in (mx.bfloat16, mx.float16))
    if not narrow:
        return
    if 2 * narrow > _room():
        log.info("half-precision weights stay as they are: %.1f GB of float32 do not fit", 2 * narrow / 1e9)
        return
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())


def _room(limit: int | None = None) -> int:
    """Bytes that widened weights may take, of free memory and of a limit for the model and its rows together."""
    free = free_memory()
    if free is None:
        free = total_memory() - mx.get_active_memory()
    room = int(WIDE_MEMORY_SHARE * free)
    return room if limit is None else min(room, int(WIDE_LIMIT_SHARE * limit))

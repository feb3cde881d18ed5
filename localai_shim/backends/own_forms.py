"""MLX's own forms of passes and layers, of which machines change some: see `engine.ports.Forms`.

`prepare` changes the model's own objects only: weights, and classes of layers. No class, module, or global of others is
touched, so no other model in the process notices, and nothing has to be undone when the model goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

import mlx.core as mx
import mlx.nn as nn

from ..engine.cache_contents import RowCache
from ..engine.ports import AdapterKernel, SharedKernel
from .patches import Function, attention_patches, replaced
from .shared_attention import Attend, attend_shared, sharing, use_sharing
from .tower_windows import use_windows

Applied = dict[str, int]
"""Forms that were applied, and to how many layers or blocks."""
Gelu = Callable[[mx.array], mx.array]


class OwnForms:
    """MLX's own forms, which are best on Metal. Other machines change some of them."""

    exact_gelu: Gelu = nn.GELU()

    def prepare(self, model: nn.Module, memory_limit: int | None = None) -> Applied:
        applied = {**self._prepare(model, memory_limit), "attention of towers in windows": use_windows(model)}
        use_sharing(model, self.attend_shared, self.attention())
        return {name: count for name, count in applied.items() if count}

    attend_shared: Attend = staticmethod(attend_shared)
    """Attention to tokens that rows share."""

    def _prepare(self, model: nn.Module, memory_limit: int | None) -> Applied:
        return {}

    def prepare_products(self, model: nn.Module) -> Applied:
        """Give a model's layers this machine's forms of products with weights, as `prepare` does."""
        return {}

    def attention(self) -> Callable[[Function], Function] | None:
        """Function that makes this machine's form of the libraries' attention; None if that is used as it is."""
        return None

    @cached_property
    def _attends(self) -> Function:
        """The libraries' attention in this machine's form: to find the libraries' own reads their source."""
        upstream: Function = replaced(attention_patches(lambda function: function))[0][0]  # type: ignore[assignment]
        form = self.attention()
        return sharing(upstream if form is None else form(upstream), self.attend_shared)

    def attend(self, queries: mx.array, keys: mx.array, values: mx.array, cache: object) -> mx.array:
        return self._attends(queries, keys, values, cache, queries.shape[-1] ** -0.5, None)

    def warm_up(self, model: nn.Module) -> Sequence[int]:
        return ()

    def filled(self, tokens: int) -> int:
        return tokens

    def filled_rows(self, rows: int) -> int:
        return rows

    def fill(self, tokens: mx.array, layers: RowCache, /) -> tuple[mx.array, int]:
        return tokens, 0

    def forget(self, layers: RowCache, padding: int, /) -> None:
        pass

    def waited_for(self, now: bool = True) -> AbstractContextManager[None]:
        return nullcontext()

    def turned_from(self, starts: int | mx.array | None) -> AbstractContextManager[None]:
        return nullcontext()

    def adapter_kernel(self, factors: Sequence[tuple[mx.array, mx.array]]) -> AdapterKernel | None:
        return None

    def shared_kernel(self, layers: Sequence[nn.Module]) -> SharedKernel | None:
        return None

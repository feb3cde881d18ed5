"""A head that drafts for the model that it was trained with: see `engine.drafts.ports.DraftHead`."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from ...backends.machine import has_gpu
from ...engine.cache_contents import RowCache
from ...engine.ports import PassOutput, host
from ..heads.pooling import inner_modules


class MTPHead:
    """A head with layers of the model's kind, of which one has attention.

    Args:
        name: of the checkpoint that it is from.
        module: its weights, as `layers.make_parts` makes them.
        model: the model's decoder with its output layer, whose embeddings it reads.
        query_heads: of its attention.
        doubt: see `DraftHead`.
        array_masks: its attention reads masks as arrays only.
        before_norm: it reads states before the model's last norm.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        model: nn.Module,
        *,
        query_heads: int,
        doubt: str,
        array_masks: bool,
        before_norm: bool,
    ) -> None:
        self.name, self.query_heads, self.doubt = name, query_heads, doubt
        self._mx, self._module, self._array_masks, self._samples_on_device = mx, module, array_masks, has_gpu()
        self._before_norm, self._forms = before_norm, host().forms()
        self._has_indexer = any(name.endswith(".indexer") for name, _ in module.named_modules())
        self._model = weakref.ref(model)  # whose engine drops it, and the head with it
        path = inner_modules(model)
        self._path = [name for name, _ in path]
        self.width = int(module.norm.weight.shape[0])
        arrays = [array for _, array in tree_flatten(module.parameters())]
        mx.eval(arrays)
        self.weight_bytes = sum(array.nbytes for array in arrays)
        output = [array for _, array in tree_flatten(self._output().parameters())]
        own = "output" in module
        self.read_bytes = self.weight_bytes + (0 if own else sum(array.nbytes for array in output))

    def new_cache(self) -> RowCache:
        from mlx_lm.models.cache import CacheList, KVCache

        return [CacheList(KVCache(), KVCache()) if self._has_indexer else KVCache()]

    def forward(
        self,
        tokens: mx.array,
        hidden: mx.array,
        layers: RowCache,
        ends: Sequence[int],
        starts: int | mx.array | None = None,
    ) -> PassOutput[mx.array]:
        from mlx_lm.models.base import create_attention_mask

        mx, its = self._mx, self._module
        embedded = self._embeddings()(tokens)
        hidden = hidden.astype(embedded.dtype)
        if self._before_norm:
            hidden = self._scaled(hidden, back=True)
        x = its.join(mx.concatenate([its.embedding(embedded), its.hidden(hidden)], axis=-1))
        keys: object = layers[0][0] if self._has_indexer else layers[0]  # type: ignore[index]
        mask = create_attention_mask(x, keys, return_array=self._array_masks)
        waited_for = self._forms.waited_for(tokens.shape[1] > 1 and not self._samples_on_device)
        with waited_for, self._forms.turned_from(starts):
            for layer in its.layers:
                x = layer(x, mask, cache=layers[0])
            last = x[mx.arange(len(ends)), mx.array(list(ends))] if x.shape[1] > 1 else x[:, 0]
            last = its.norm(last)
            logits = self._logits(last)
        return PassOutput(logits.astype(mx.float32), self._scaled(last) if self._before_norm else last)

    def _scaled(self, states: mx.array, *, back: bool = False) -> mx.array:
        """Multiply states by the factors of the model's last norm, or divide them by these.

        Then they are those before that norm, except for their length, which the head's own norm removes.
        """
        factors: mx.array = self._decoder().norm.weight
        return self._mx.where(factors == 0, 0, states / factors).astype(states.dtype) if back else states * factors

    def _logits(self, states: mx.array) -> mx.array:
        output = self._output()
        made: mx.array = output.as_linear(states) if hasattr(output, "as_linear") else output(states)
        return made

    def _outer(self) -> list[nn.Module]:
        """The model, and the modules in it, of which the last one makes its hidden states. They are looked up in each
        pass: adapters replace layers.
        """
        made: list[nn.Module] = [self._model()]
        for name in self._path:
            made.append(getattr(made[-1], name))
        return made

    def _decoder(self) -> nn.Module:
        return self._outer()[-1]

    def _embeddings(self) -> nn.Module:
        decoder = self._decoder()
        return decoder.embeddings if "embeddings" in decoder else decoder.embed_tokens

    def _output(self) -> nn.Module:
        """The output layer: the head's, the model's, or the embeddings."""
        if "output" in self._module:
            return self._module.output
        every = self._outer()
        found = next((each.lm_head for each in every if getattr(each, "lm_head", None) is not None), None)
        return self._embeddings() if found is None else found

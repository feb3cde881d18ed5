"""The adapters of one model: they are put around its layers, and taken off again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchGLU, SwitchLinear, SwitchMLP

from ...backends.cuda.adapters import kernel_of
from ...types import Adapter, ModelLoadError
from .folder import Product, read_products
from .layers import (
    Adapted,
    AdaptedBlock,
    AdaptedEmbedding,
    AdaptedExperts,
    AdaptedLinear,
    Current,
    Selection,
    Siblings,
    Stack,
)

MAX_SELECTIONS = 16  # that are kept: rows that decode change seldom, and prompts come in between


class Bank:
    """Adapters that rows of a model may have. On the engine thread only.

    Args:
        model: the part of it that reads tokens; towers have no adapters.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model, self._current = model, Current()
        self._slots: dict[Adapter, int] = {}
        self._layers: dict[str, Adapted] = {}
        """By the layer's name."""
        self._blocks: dict[str, AdaptedBlock] = {}
        self._selections: dict[tuple[int, ...], Selection] = {}
        """By the slots of the rows, the last one last."""

    @property
    def nbytes(self) -> int:
        return sum(layer._stack.nbytes for layer in self._layers.values())

    def add(self, adapter: Adapter) -> None:
        """Load an adapter, and have it ready.

        Raises:
            ModelLoadError: it does not fit this model; names the file, the tensor and the shapes.
        """
        if adapter in self._slots:
            return
        products = self._resolve(adapter, read_products(adapter))
        slot = next(i for i in range(1, len(self._slots) + 2) if i not in self._slots.values())
        before = self._size
        self._slots[adapter] = slot
        try:
            for name, (layer, product) in products.items():
                if name not in self._layers:
                    self._wrap(name, layer)
                self._layers[name]._stack.set(slot, product, self._size)
            self._resize(products, before)
            self._group()
        except BaseException:
            self.remove(adapter)
            raise

    def remove(self, adapter: Adapter) -> None:
        """Forget an adapter; it may be gone. Passes that were built with it keep its factors until they have run."""
        before, slot = self._size, self._slots.pop(adapter, None)
        if slot is None:
            return
        for name, layer in [*self._layers.items()]:
            layer._stack.set(slot, None, self._size)
            if not len(layer._stack):
                self._put(name, layer["base"])
                del self._layers[name]
                if isinstance(layer, AdaptedLinear):
                    layer.siblings = None  # which holds it
        for name, block in [*self._blocks.items()]:
            if not any(layer.startswith(name + ".") for layer in self._layers):
                self._put(name, block["base"])
                del self._blocks[name]
        self._resize((), before)
        self._group()

    @contextmanager
    def selected(self, adapters: Sequence[Adapter | None]) -> Iterator[None]:
        """Have the rows of a pass that is built within this each use one of the adapters, or none.

        Raises:
            KeyError: one of them is not here.
        """
        slots = tuple(0 if each is None else self._slots[each] for each in adapters)
        selection = self._selections.pop(slots, None) or Selection(slots)
        self._selections[slots] = selection
        if len(self._selections) > MAX_SELECTIONS:
            del self._selections[next(iter(self._selections))]
        self._current.selection = selection
        try:
            yield
        finally:
            self._current.selection = None
            selection.made.clear()

    @property
    def _size(self) -> int:
        """Slots of each stack: a power of two, so that shapes seldom change."""
        most = max(self._slots.values(), default=0)
        return 1 << most.bit_length()

    def _resize(self, but: Mapping[str, object] | Sequence[str], before: int) -> None:
        if self._size != before:
            for name, layer in self._layers.items():
                if name not in but:
                    layer._stack.build(self._size)

    def _group(self) -> None:
        """Give layers that read the same their kernel, where this machine has one."""
        groups: dict[tuple[str, str], list[AdaptedLinear]] = {}
        for name, layer in self._layers.items():
            if isinstance(layer, AdaptedLinear):
                parent, _, last = name.rpartition(".")
                groups.setdefault((parent, _SIBLINGS.get(last, last)), []).append(layer)
        for layers in groups.values():
            kernel = kernel_of([(each._stack.low, each._stack.b) for each in layers])
            siblings = None if kernel is None else Siblings(layers, kernel)
            for each in layers:
                each.siblings = siblings

    def _resolve(self, adapter: Adapter, products: Mapping[str, Product]) -> dict[str, tuple[nn.Module, Product]]:
        """The model's layers that an adapter changes, by their names here.

        Names may begin otherwise than here, as those of a whole vision model's language model do.
        """
        layers = {name: module for name, module in self._modules() if isinstance(module, tuple(_KINDS))}
        tails: dict[str, list[str]] = {}
        for name in layers:
            tails.setdefault(_tail(name), []).append(name)
        made: dict[str, tuple[nn.Module, Product]] = {}
        wrong: list[str] = []
        for name, product in products.items():
            found = [name] if name in layers else [each for each in tails.get(_tail(name), ()) if _is_same(name, each)]
            if len(found) != 1:
                wrong.append(f"'{name}' is no layer of this model, towers aside, that can have one")
                continue
            if found[0] in made:
                wrong.append(f"'{name}' is '{found[0]}', which has another name in it as well")
            layer = layers[found[0]]
            a, b = _shapes(layer)
            if (*product.a.shape[:-1],) != a or (*product.b.shape[:-2], product.b.shape[-1]) != b:
                wrong.append(
                    f"'{name}' has the factors {product.a.shape} and {product.b.shape}, and the layer takes "
                    f"{(*a, 'rank')} and {(*b[:-1], 'rank', b[-1])}"
                )
            elif isinstance(layer, _EXPERTS) and not isinstance(self._parent(found[0]), _BLOCKS):
                wrong.append(f"'{name}' is part of a kind of experts that no adapter can change by row")
            elif not bool(mx.isfinite(product.a).all() & mx.isfinite(product.b).all()):
                wrong.append(f"'{name}' has numbers that are not finite, which would spoil other rows")
            made[found[0]] = layer, product
        if not products:
            wrong.append("there is no factor in it")
        if wrong:
            raise ModelLoadError(f"The adapter '{adapter.name}' does not fit: {adapter.folder}: {'; '.join(wrong[:8])}")
        return made

    def _modules(self) -> Iterator[tuple[str, nn.Module]]:
        return bare_modules(self._model)

    def _parent(self, name: str) -> nn.Module | None:
        parent = name.rpartition(".")[0]
        return next((module for each, module in self._modules() if each == parent), None)

    def _wrap(self, name: str, layer: nn.Module) -> None:
        stack = Stack(_dtype(layer), *_shapes(layer))
        kind = next(kind for kinds, kind in _FORMS if isinstance(layer, kinds))
        adapted = kind(layer, stack, self._current)
        self._put(name, adapted)
        self._layers[name] = adapted
        block = name.rpartition(".")[0]
        if kind is AdaptedExperts and block not in self._blocks:
            self._blocks[block] = AdaptedBlock(_at(self._model, block), self._current)
            self._put(block, self._blocks[block])

    def _put(self, name: str, module: nn.Module) -> None:
        """Put a module into the place of a layer."""
        parent, _, last = name.rpartition(".")
        where: Any = _at(self._model, parent)
        if isinstance(where, AdaptedBlock):
            where = where["base"]
        if isinstance(where, list):
            where[int(last)] = module
        else:
            where[last] = module


def bare_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """A model's layers by name, as if none had adapters around it."""
    for name, module in model.named_modules():
        if isinstance(module, Adapted | AdaptedBlock):
            continue
        yield ".".join(part for part in name.split(".") if part != "base"), module


_WRAPPERS = {"", "base_model", "model", "language_model", "text_model", "transformer", "llm", "thinker", "decoder"}
_WRAPPERS |= {"backbone", "gpt_neox", "layers", "h", "blocks"}
"""Parts of names around the layers of a model that reads tokens, as checkpoints have them."""

_SIBLINGS = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up"}
"""Layers of one block that read the same in all of mlx-lm's models that name them so."""

_LINEAR = (nn.Linear, nn.QuantizedLinear)
_EMBEDDING = (nn.Embedding, nn.QuantizedEmbedding)
_EXPERTS = (SwitchLinear, QuantizedSwitchLinear)
_BLOCKS = (SwitchGLU, SwitchMLP)
_KINDS = (*_LINEAR, *_EMBEDDING, *_EXPERTS)
_FORMS: Sequence[tuple[tuple[type, ...], Callable[..., Adapted]]] = (
    (_LINEAR, AdaptedLinear),
    (_EMBEDDING, AdaptedEmbedding),
    (_EXPERTS, AdaptedExperts),
)


def _at(model: Any, name: str) -> Any:
    """The module, or the list of modules, of this name."""
    for part in name.split(".") if name else ():
        if isinstance(model, AdaptedBlock):
            model = model["base"]
        model = model[int(part)] if isinstance(model, list) else model[part]
    return model


def _tail(name: str) -> str:
    """A layer's name from its number on; of what has none the last part."""
    parts = name.split(".")
    at = next((i for i, part in enumerate(parts) if part.isdigit()), len(parts) - 1)
    return ".".join(parts[at:])


def _is_same(name: str, layer: str) -> bool:
    """True if a name is a layer's, but for what it says of the model around: a tower has layers of equal ends."""
    heads = [set(each.removesuffix(_tail(each)).split(".")) for each in (name, layer)]
    return heads[0] <= heads[1] | _WRAPPERS


def _dtype(layer: Any) -> mx.Dtype:
    dtype: mx.Dtype = layer.scales.dtype if "scales" in layer else layer.weight.dtype
    return dtype if mx.issubdtype(dtype, mx.floating) else mx.float32


def _shapes(layer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of a layer's factors without their ranks."""
    shape = layer.weight.shape
    width = shape[-1] * 32 // layer.bits if "scales" in layer else shape[-1]
    if isinstance(layer, _EMBEDDING):
        return (shape[0],), (width,)
    return (*shape[:-2], width), (*shape[:-2], shape[-2])

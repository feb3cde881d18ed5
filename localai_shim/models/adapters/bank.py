"""The adapters of one model: they are put around its layers, and taken off again."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import mlx.core as mx
from mlx import nn
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchGLU, SwitchLinear, SwitchMLP

from ...engine.ports import host
from ...threads.cache import LRUCache
from ...types import Adapter, ModelLoadError, Product
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
    Wrapper,
)

MAX_SELECTIONS = 16  # that are kept: rows that decode change seldom, and prompts come in between


class Bank:
    """Adapters that rows of a model may have. On the engine thread only.

    Their factors are in slots, 1 to the number of adapters. To add one costs its own factors, however many there are:
    they are written into free slots, in place, and of the stacks that have none left each load meets a few. Work is
    done in pieces, the layers of a block that read the same; between two of them passes may run.

    Args:
        model: the part of it that reads tokens; towers have no adapters.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model, self._current = model, Current()
        self._slots: dict[Adapter, int] = {}
        self._layers: dict[str, Adapted] = {}
        """By the layer's name."""
        self._blocks: dict[str, AdaptedBlock] = {}
        self._selections = LRUCache[Selection](MAX_SELECTIONS)
        """By the slots of the rows."""

    @property
    def nbytes(self) -> int:
        return sum(layer._stack.nbytes for layer in self._layers.values())

    def add(self, adapter: Adapter, products: Mapping[str, Product]) -> Iterator[None]:
        """Load an adapter piece by piece; once it is through, passes may name it.

        Raises:
            ModelLoadError: it does not fit this model; names the folder, the tensor and the shapes.
        """
        if adapter in self._slots:
            return
        found = self._resolve(adapter, products)
        slot = next(i for i in range(1, len(self._slots) + 2) if i not in self._slots.values())
        try:
            for names in _pieces({**self._layers, **found}):
                with self._changing(names):
                    for name in names:
                        self._write(name, slot, *found.get(name, (None, None)))
                yield
        except GeneratorExit:  # the engine ends, and this may be another thread
            raise
        except BaseException:
            for _ in self._drop(slot):
                pass
            raise
        self._slots[adapter] = slot

    def remove(self, adapter: Adapter) -> Iterator[None]:
        """Forget an adapter piece by piece; it may be gone, and no pass may name it any more."""
        slot = self._slots.pop(adapter, None)
        if slot is None:
            return
        last = max(self._slots, key=self._slots.__getitem__, default=adapter)
        if self._slots.get(last, 0) > slot:  # it gets the slot, so that no slot is free before others
            for names in _pieces(self._layers):
                with self._changing(names):
                    for name in names:
                        self._layers[name]._stack.move(self._slots[last], slot)
                yield
            self._slots[last], slot = slot, self._slots[last]
        yield from self._drop(slot)

    @contextmanager
    def selected(self, adapters: Sequence[Adapter | None]) -> Iterator[None]:
        """Have the rows of a pass that is built within this each use one of the adapters, or none.

        Raises:
            KeyError: one of them is not here.
        """
        slots = tuple(0 if each is None else self._slots[each] for each in adapters)
        selection = self._selections.get_or_make(slots, lambda: Selection(slots))
        self._current.selection = selection
        try:
            yield
        finally:
            self._current.selection = None
            selection.made.clear()

    # -- pieces -------------------------------------------------------------------------------------------------------

    def _write(self, name: str, slot: int, layer: nn.Module | None, product: Product | None) -> None:
        """Have a layer's slot hold an adapter's factors, or none."""
        needed = max(slot, *self._slots.values(), 0) + 1
        rank = 1 if product is None else product.low.shape[-2]
        if name not in self._layers:
            assert layer is not None
            self._wrap(name, layer, needed + _spare(name, needed), rank)
        stack = self._layers[name]._stack
        slots = stack.slots if stack.slots >= needed else needed + _spare(name, needed)
        stack.resize(slots, max(stack.rank, rank))
        stack.write(slot, product)

    def _drop(self, slot: int) -> Iterator[None]:
        """Forget what a slot holds, and give memory back where much of it is free."""
        needed = max(self._slots.values(), default=0) + 1
        for names in _pieces(self._layers):
            with self._changing(names):
                for name in names:
                    stack = self._layers[name]._stack
                    stack.free(slot)
                    if not stack.ranks:
                        self._unwrap(name)
                    else:
                        slots = stack.slots if stack.slots <= 2 * needed else needed + _spare(name, needed)
                        stack.resize(slots, max(stack.ranks.values()))
            yield

    @contextmanager
    def _changing(self, names: Sequence[str]) -> Iterator[None]:
        """Change layers that read the same: their kernel holds their factors, and is made again."""
        for layer in self._linear(names):
            layer.siblings = None
        yield
        layers = self._linear(names)
        factors = [(each._stack.low, each._stack.high) for each in layers]
        kernel = host().forms().adapter_kernel(factors) if layers else None
        if kernel is not None:
            siblings = Siblings(layers, kernel)
            for each in layers:
                each.siblings = siblings

    def _linear(self, names: Sequence[str]) -> list[AdaptedLinear]:
        layers = [self._layers.get(name) for name in names]
        return [layer for layer in layers if isinstance(layer, AdaptedLinear)]

    def _resolve(self, adapter: Adapter, products: Mapping[str, Product]) -> dict[str, tuple[nn.Module, Product]]:
        """The model's layers that an adapter changes, by their names here.

        Names may begin otherwise than here, as those of a whole vision model's language model do.
        """
        layers = {name: module for name, module in bare_modules(self._model) if isinstance(module, tuple(_KINDS))}
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
            if not _fits(layer, product):
                inputs, outputs = _shapes(layer)
                experts = f"{inputs[0]} experts, " * (len(inputs) - 1)
                wrong.append(
                    f"'{name}' has {experts}{inputs[-1]} inputs and {outputs[-1]} outputs here, and the adapter has "
                    f"{product.source}"
                )
            elif isinstance(layer, _EXPERTS) and not isinstance(self._parent(found[0]), _BLOCKS):
                wrong.append(f"'{name}' is part of a kind of experts that no adapter can change by row")
            elif too_large := _too_large(layer, product):
                wrong.append(f"'{name}' {too_large}")
            made[found[0]] = layer, product
        if wrong:
            raise ModelLoadError(f"The adapter '{adapter.name}' does not fit: {adapter.folder}: {'; '.join(wrong[:8])}")
        return made

    def _parent(self, name: str) -> nn.Module | None:
        parent = name.rpartition(".")[0]
        return next((module for each, module in bare_modules(self._model) if each == parent), None)

    def _wrap(self, name: str, layer: nn.Module, slots: int, rank: int) -> None:
        stack = Stack(_dtype(layer), *_shapes(layer), slots, rank)
        kind = next(kind for kinds, kind in _FORMS if isinstance(layer, kinds))
        adapted = kind(layer, stack, self._current)
        self._put(name, adapted)
        self._layers[name] = adapted
        block = name.rpartition(".")[0]
        if kind is AdaptedExperts and block not in self._blocks:
            self._blocks[block] = AdaptedBlock(_at(self._model, block), self._current)
            self._put(block, self._blocks[block])

    def _unwrap(self, name: str) -> None:
        self._put(name, self._layers.pop(name)["base"])
        block = name.rpartition(".")[0]
        if block in self._blocks and not any(layer.startswith(f"{block}.") for layer in self._layers):
            self._put(block, self._blocks.pop(block)["base"])

    def _put(self, name: str, module: nn.Module) -> None:
        """Put a module into the place of a layer."""
        parent, _, last = name.rpartition(".")
        where = _at(self._model, parent)
        if isinstance(where, list):
            where[int(last)] = module
        else:
            where[last] = module


def bare_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """A model's layers by name, as if none had adapters around it."""
    for name, module in model.named_modules():
        if not isinstance(module, Wrapper):
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


def _pieces(names: Iterable[str]) -> list[list[str]]:
    """Names of layers, those that read the same together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        parent, _, last = name.rpartition(".")
        groups.setdefault((parent, _SIBLINGS.get(last, last)), []).append(name)
    return [*groups.values()]


def _spare(name: str, needed: int) -> int:
    """Slots beyond those that are needed: other numbers for other layers, so that not all of them are full when the
    next adapter comes.
    """
    return zlib.crc32(f"{name} {needed}".encode()) % (needed // 2 + 1)


def _fits(layer: nn.Module, product: Product) -> bool:
    low, high = product.low.shape, product.high.shape
    inputs, outputs = _shapes(layer)
    if product.experts is not None and inputs[:-1] and product.experts[-1] < inputs[0]:
        low, high = (inputs[0], *low[1:]), (inputs[0], *high[1:])
    return (*low[:-2], low[-1]) == inputs and (*high[:-2], high[-1]) == outputs


def _too_large(layer: nn.Module, product: Product) -> str | None:
    """The fault of a product that is infinite as the layer computes it, which would spoil other rows."""
    dtype = _dtype(layer)
    low, high = product.largest
    most = max(low, high * abs(product.scale))
    if most <= mx.finfo(dtype).max:
        return None
    name = str(dtype).rpartition(".")[2]
    return f"has numbers up to {most:.3g} with its scale {product.scale:g}, and {name} holds {mx.finfo(dtype).max:.3g}"


def _at(model: nn.Module | list[nn.Module], name: str) -> nn.Module | list[nn.Module]:
    """The module, or the list of modules, of this name; of a wrapped block what is in it."""
    for part in name.split(".") if name else ():
        model = model[int(part)] if isinstance(model, list) else model[part]
        if isinstance(model, AdaptedBlock):
            model = model["base"]
    return model


def _tail(name: str) -> str:
    """A layer's name from its number on; of what has none the last part."""
    parts = name.split(".")
    at = next((i for i, part in enumerate(parts) if part.isdigit()), len(parts) - 1)
    return ".".join(parts[at:])


def _is_same(name: str, layer: str) -> bool:
    """True if a name is a layer's, except what it says of the model around: a tower has layers of equal ends."""
    heads = [set(each.removesuffix(_tail(each)).split(".")) for each in (name, layer)]
    return heads[0] <= heads[1] | _WRAPPERS


def _dtype(layer: nn.Module) -> mx.Dtype:
    dtype: mx.Dtype = layer.scales.dtype if "scales" in layer else layer.weight.dtype
    return dtype if mx.issubdtype(dtype, mx.floating) else mx.float32


def _shapes(layer: nn.Module) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of a layer's factors without their ranks."""
    shape = layer.weight.shape
    width = shape[-1] * 32 // layer.bits if "scales" in layer else shape[-1]
    if isinstance(layer, _EMBEDDING):
        return (shape[0],), (width,)
    return (*shape[:-2], width), (*shape[:-2], shape[-2])

"""Adapters that come and go: each row keeps its own, loading one costs the same beside many, and memory follows."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from mlx_lm.tuner.utils import load_adapters

from localai_shim.models.adapters.bank import Bank
from localai_shim.models.adapters.folder import read_adapter
from localai_shim.models.adapters.layers import Stack
from localai_shim.types import Adapter
from tests.lora import TOKENS, add, assert_near, logits, make_adapter, names_of, remove
from tests.tiny import tiny

RANKS = [4, 1, 8, 2, 4, 6]


@pytest.mark.parametrize("kind", ["llama", "qwen3_moe"])
def test_any_order_of_loading_and_unloading_leaves_each_row_its_own(kind: str, tmp_path: Path) -> None:
    folder, rng = tiny(kind), random.Random(3)
    keys = [(), ("self_attn.q_proj",), ("model.embed_tokens", "mlp.up_proj", "lm_head")] if kind == "llama" else [()]
    paths = [
        make_adapter(tmp_path / str(i), folder, seed=i, rank=rank, keys=keys[i % len(keys)])
        for i, rank in enumerate(RANKS)
    ]
    expected = [logits(load_adapters(mlx_lm.load(str(folder))[0], str(path)).eval(), TOKENS) for path in paths]
    model, _ = mlx_lm.load(str(folder))
    plain, before, bank = logits(model, TOKENS), names_of(model), Bank(model)
    held: dict[int, Adapter] = {}
    for _ in range(30):
        which = rng.randrange(len(paths))
        if which in held:
            remove(bank, held.pop(which))
        else:
            held[which] = add(bank, paths[which])
        chosen = [rng.choice([*held, None]) for _ in TOKENS]
        with bank.selected([None if each is None else held[each] for each in chosen]):
            made = logits(model, TOKENS)
        for row, each in enumerate(chosen):
            assert_near(made[row], (plain if each is None else expected[each])[row])
    for adapter in held.values():
        remove(bank, adapter)
    assert names_of(model) == before and bank.nbytes == 0
    np.testing.assert_array_equal(logits(model, TOKENS), plain)


# -- many -------------------------------------------------------------------------------------------------------------


class Many:
    """A bank with equal adapters under many names, and how many slots were copied."""

    def __init__(self, folder: Path) -> None:
        self.model, _ = mlx_lm.load(str(tiny("llama")))
        self.bank = Bank(self.model)
        _, self.products = read_adapter("a", str(make_adapter(folder, tiny("llama"))))
        self.held: list[Adapter] = []
        self.copied = 0

    def load(self) -> None:
        adapter = Adapter(f"a{len(self.held)}", str(len(self.held)), "")
        self.held.append(adapter)
        for _ in self.bank.add(adapter, self.products):
            pass


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Many:
    made, resize = Many(tmp_path / "a"), Stack.resize

    def counting(stack: Stack, slots: int, rank: int) -> None:
        made.copied += stack.slots * ((slots, rank) != (stack.slots, stack.rank))
        resize(stack, slots, rank)

    monkeypatch.setattr(Stack, "resize", counting)
    return made


def test_loading_copies_as_little_beside_45_as_beside_5(many: Many) -> None:
    copied = list[int]()
    for _ in range(48):
        many.copied = 0
        many.load()
        copied.append(many.copied)
    layers = len(many.bank._layers)
    early, late = np.mean(copied[5:12]) / layers, np.mean(copied[36:]) / layers
    assert max(early, late) < 8  # slots, of which there are 48 in the end
    assert max(copied[12:]) < 24 * layers  # no load meets most of the layers


def test_memory_grows_by_about_an_adapter_with_each(many: Many) -> None:
    held = list[int]()
    for _ in range(48):
        many.load()
        held.append(many.bank.nbytes)
    one = sum(product.low.nbytes + product.high.nbytes for product in many.products.values())
    for count, after in enumerate(held, start=1):
        assert after <= 1.4 * (count + 1) * one  # slot 0 is of rows without
    for count, (before, after) in enumerate(itertools.pairwise(held), start=1):
        assert after <= before * 1.3 or count < 4


def test_slot_is_written_in_place(many: Many) -> None:
    product = next(iter(many.products.values()))
    inputs, outputs = (each.shape[-1] for each in (product.low, product.high))
    stack = Stack(mx.float32, (inputs,), (outputs,), slots=400, rank=4)
    for slot in (1, 7):
        stack.write(slot, product)
    mx.eval(stack.of(7), stack.wide(), stack.a)  # as passes have used them
    mx.clear_cache()
    mx.reset_peak_memory()
    active = mx.get_active_memory()
    stack.write(300, product)
    stack.move(300, to=5)
    assert mx.get_peak_memory() - active < stack.nbytes / 20
    assert np.array_equal(np.array(stack.low[5]), product.low)
    assert np.array_equal(np.array(stack.low[7]), product.low)


@pytest.mark.parametrize("order", ["first", "last", "mixed"])
def test_unloading_gives_memory_back_whichever_goes_first(many: Many, order: str) -> None:
    for _ in range(40):
        many.load()
    full, names = many.bank.nbytes, [*many.held]
    random.Random(1).shuffle(names) if order == "mixed" else names.reverse() if order == "last" else None
    for adapter in names[:36]:
        remove(many.bank, adapter)
    assert many.bank.nbytes < full / 4
    with many.bank.selected([names[-1]] * len(TOKENS)):
        one = logits(many.model, TOKENS)
    fresh: Any = Bank(other := mlx_lm.load(str(tiny("llama")))[0])
    for _ in fresh.add(names[-1], many.products):
        pass
    with fresh.selected([names[-1]] * len(TOKENS)):
        assert_near(one, logits(other, TOKENS))


def test_load_that_fails_on_its_way_leaves_nothing(many: Many, monkeypatch: pytest.MonkeyPatch) -> None:
    many.load()
    before, held, write = names_of(many.model), many.bank.nbytes, Stack.write
    calls = iter(range(100))

    def failing(stack: Stack, slot: int, product: Any) -> None:
        if next(calls) == 5:
            raise MemoryError("no memory")
        write(stack, slot, product)

    monkeypatch.setattr(Stack, "write", failing)
    with pytest.raises(MemoryError):
        many.load()
    assert names_of(many.model) == before
    assert many.bank.nbytes <= 2 * held
    with pytest.raises(KeyError), many.bank.selected([many.held[-1]]):
        pass
    with many.bank.selected([many.held[0]] * len(TOKENS)):
        one = logits(many.model, TOKENS)
    many.held.pop()
    many.load()
    with many.bank.selected([many.held[-1], many.held[0], many.held[-1]]):
        assert_near(logits(many.model, TOKENS), one)

"""Rows in slots of a corrected model, held against upstream's code, which runs each row alone."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import cache as mlx_lm_caches
from mlx_vlm.models import cache as mlx_vlm_caches

from localai_shim.engine import kv
from localai_shim.models.misreading_layers import batch_attention
from tests import architectures, vlm_architectures
from tests.engine.turns import tokens

ATOL = 1e-3
WRONG_ALONE = ("phi3small",)
"""Upstream's code is wrong for one row, too: these are held against the corrected code in one pass."""


@dataclass(frozen=True)
class Family:
    """A tiny model of a library, with random weights."""

    name: str
    library: str
    changes: tuple[tuple[str, Any], ...] = ()
    """To its config."""

    def make(self, *, corrected: bool = True) -> Any:
        made = (architectures if self.library == "mlx-lm" else vlm_architectures).make(self.name, **dict(self.changes))
        if corrected:
            assert batch_attention(made), "it has layers that are corrected"
        return made

    def cache(self, model: Any) -> list[Any]:
        caches: ModuleType = mlx_lm_caches if self.library == "mlx-lm" else mlx_vlm_caches
        return list(caches.make_prompt_cache(model))


def families(*names: str) -> Any:
    """Parameters of a test: these families, as `library name`."""
    pairs = [name.split() for name in names]
    return pytest.mark.parametrize("family", [Family(name, library) for library, name in pairs], ids=names)


def run(model: Any, cache: list[Any], ids: Sequence[Sequence[int]]) -> Any:
    """`[rows, k, vocabulary]` logits."""
    more = {}
    if hasattr(model, "get_rope_index"):
        offset = next(layer.offset for layer in cache if hasattr(layer, "offset"))
        places = mx.array(offset).reshape(-1, 1) + mx.arange(len(ids[0]))
        more["position_ids"] = mx.broadcast_to(places, (len(ids), len(ids[0])))
    out = model(mx.array(ids), cache=cache, **more)
    return np.array(getattr(out, "logits", out))


@functools.cache
def alone(family: Family, length: int, seed: int, steps: int) -> Any:
    """`[steps, vocabulary]`: what upstream's code gives one row behind a prompt."""
    model = family.make(corrected=family.name in WRONG_ALONE)
    cache = family.cache(model)
    run(model, cache, [tokens(length, seed)])
    return np.concatenate([run(model, cache, [[token]])[0] for token in tokens(steps, seed + 20)])


def prefilled(family: Family, model: Any, length: int, seed: int, piece: int = 10**6) -> list[Any]:
    cache, prompt = family.cache(model), tokens(length, seed)
    for start in range(0, length, piece):
        run(model, cache, [prompt[start : start + piece]])
    return cache


def hold_pieces(family: Family, length: int, steps: int, piece: int) -> None:
    """A corrected row that is alone gets upstream's logits however its prompt is cut."""
    model = family.make()
    cache = prefilled(family, model, length, 3, piece)
    made = np.concatenate([run(model, cache, [[token]])[0] for token in tokens(steps, 23)])
    assert np.allclose(made, alone(family, length, 3, steps), atol=ATOL)


def hold_slots(family: Family, lengths: Sequence[int], steps: int) -> None:
    """Rows in slots get upstream's logits, also when others join and leave in the middle."""
    model = family.make()
    rows = [prefilled(family, model, length, 3 + i) for i, length in enumerate(lengths)]
    last = len(lengths) - 1
    batch, slots = kv.join(None, rows[:last])
    begun = dict.fromkeys(range(last), 0)
    for step in range(steps):
        if step == steps // 3:
            batch, [slot] = kv.join(batch, [rows[last]])
            slots, begun[last] = [*slots, slot], step
        if step == steps // 2:
            batch.leave([slots[1]])
            del begun[1]
        at = {slots[row]: (row, step - first) for row, first in begun.items()}
        fed = [[tokens(steps, 23 + at[slot][0])[at[slot][1]] if slot in at else 9] for slot in range(batch.width)]
        made = run(model, batch.advance(), fed)[:, 0]
        for slot, (row, i) in at.items():
            assert np.allclose(made[slot], alone(family, lengths[row], 3 + row, steps)[i], atol=ATOL), (row, i)


def hold_several(family: Family, lengths: Sequence[int], steps: int) -> None:
    """Rows in slots take several tokens in a step, and give some of them back."""
    model = family.make()
    rows = [prefilled(family, model, length, 3 + i) for i, length in enumerate(lengths)]
    batch, slots = kv.join(None, rows, spare=3)
    done = [0] * len(rows)
    while max(done) < steps - 4:
        kept = {slot: 1 + (slot + done[slot]) % 4 for slot in slots}
        layers = batch.advance(dict.fromkeys(slots, 4))
        right = [tokens(steps, 23 + slot)[done[slot] : done[slot] + kept[slot]] for slot in slots]
        made = run(model, layers, [[*its, 9, 9, 9][:4] for its in right])
        batch.settle(kept)
        for slot in slots:
            expected = alone(family, lengths[slot], 3 + slot, steps)[done[slot] : done[slot] + kept[slot]]
            assert np.allclose(made[slot, : kept[slot]], expected, atol=ATOL), (slot, done)
            done[slot] += kept[slot]

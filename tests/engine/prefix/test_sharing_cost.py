"""The trial at load finds from when on sharing saves time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import mlx.core as mx
import pytest

from localai_shim.backends.own_forms import OwnForms
from localai_shim.engine.cache_contents import KeyValues
from localai_shim.engine.costs.cost_model import Stopwatch
from localai_shim.engine.ports import host
from localai_shim.engine.prefix import sharing as module
from localai_shim.engine.prefix.sharing import LONG, ROWS, SHORT, break_even, crossing

LAYER = KeyValues(1, (mx.zeros((1, 2, 1, 16)), mx.zeros((1, 2, 1, 24))))
"""Keys and values may differ in size."""


@pytest.fixture(autouse=True)
def _nothing_is_known() -> Iterator[None]:
    module._break_even.cache_clear()
    yield
    module._break_even.cache_clear()


@pytest.mark.parametrize(
    ("short", "long", "tokens"),
    [
        (-0.1, -5.0, 0.0),
        (0.0, 0.0, 0.0),
        (-0.1, 5.0, math.inf),
        (1.0, 1.0, math.inf),
        (1.0, 2.0, math.inf),
        (1.0, 0.0, (ROWS - 1) * LONG),
        (1.0, -1.0, (ROWS - 1) * (SHORT + LONG) / 2),
        (1.0, 0.5, (ROWS - 1) * (2 * LONG - SHORT)),
    ],
    ids=[
        "sooner",
        "equal",
        "sooner at first",
        "as much later",
        "later",
        "equal in the end",
        "equal between",
        "equal beyond",
    ],
)
def test_a_line_between_two_lengths_says_from_which_on_sharing_saves_time(
    short: float, long: float, tokens: float
) -> None:
    assert crossing(short, long) == pytest.approx(tokens)


@pytest.mark.parametrize("slow", ["shared", "copies"])
def test_the_slower_form_is_found(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that attention alone moves: by a second, or by fifty in the slow form."""
    attend, times = OwnForms.attend, [0.0]

    def slowly(self: OwnForms, queries: mx.array, keys: mx.array, values: mx.array, cache: object) -> mx.array:
        shares = getattr(cache, "shared", None) is not None
        times.append(times[-1] + (50 if shares == (slow == "shared") else 1))
        return attend(self, queries, keys, values, cache)

    monkeypatch.setattr(OwnForms, "attend", slowly)
    monkeypatch.setattr(module, "Stopwatch", partial(Stopwatch, clock=lambda: times[-1]))
    assert break_even(LAYER, 4) == (math.inf if slow == "shared" else 0.0)
    asks = len(times)
    assert break_even(LAYER, 4) == (math.inf if slow == "shared" else 0.0) and len(times) == asks, "known"


def test_rows_attend_to_their_first_tokens_whether_these_are_shared_or_copied() -> None:
    key, value = mx.random.normal((1, 2, 1, 16)), mx.random.normal((1, 2, 1, 24))
    for shared in (True, False):
        rows = module._Rows(4, key, value, SHORT, shared)
        [layer, _] = rows._batch.advance()
        keys, values = layer.update_and_fetch(*rows._new)
        assert keys.shape[2] == module.OWN_TOKENS + 1 + (0 if shared else SHORT)
        out = host().forms().attend(rows._queries, keys, values, layer)
        assert mx.allclose(out, mx.broadcast_to(mx.repeat(value, 2, axis=1), out.shape), rtol=1e-4, atol=1e-4)

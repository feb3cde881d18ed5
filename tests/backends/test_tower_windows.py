"""Towers attend in batches of windows; what they make is upstream's."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.backends import machine as backend
from localai_shim.backends import tower_windows
from localai_shim.backends.tower_windows import Windows, use_windows, windows_of
from tests import inside
from tests.graphs import operations
from tests.machine_forms import FillingForms, use_forms
from tests.towers import FAMILIES, LAYERS, PICTURES_ONLY, Grid, rows, tower

PICTURE: list[Grid] = [(1, 6, 10)]
PICTURES: list[Grid] = [(1, 6, 10), (1, 8, 8), (1, 2, 2), (1, 6, 10)]
FILM: list[Grid] = [(3, 4, 6)]
WITH_WINDOWS = ["qwen2_5_vl", "youtu_vl"]  # of a few patches; muse_glimmer's are of its position embeddings' size
Groups = tuple[tuple[int, int], ...]


def _turns(family: str) -> bool:
    """A family's layers call the function that is compiled."""
    name = "apply_rotary_pos_emb_vision"
    kinds = [type(layer) for layer in tower(family).modules()]
    return any(name in kind.__call__.__code__.co_names for kind in kinds if "Attention" in kind.__name__)


@pytest.fixture(autouse=True)
def not_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forms for CUDA alone are turned on where they are tested."""
    monkeypatch.setattr(tower_windows, "on_cuda", lambda: False)


@pytest.fixture
def attended(monkeypatch: pytest.MonkeyPatch) -> list[Groups]:
    """The (windows, patches of each) of every layer that attended in batches."""
    found, attend = list[Groups](), Windows.attend

    def recorded(windows: Windows, *args: Any) -> mx.array:
        found.append(windows.groups)
        return attend(windows, *args)

    monkeypatch.setattr(Windows, "attend", recorded)
    return found


def _same(got: Sequence[mx.array], want: Sequence[mx.array]) -> None:
    assert len(got) == len(want) and want
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=1e-5, atol=1e-5)


SEEN = {"a picture": PICTURE, "four pictures": PICTURES, "a film": FILM}
CASES = [(family, what) for family in FAMILIES for what in SEEN if what != "a film" or family not in PICTURES_ONLY]


@pytest.mark.parametrize(("family", "what"), CASES)
def test_what_a_tower_makes_is_upstream_s(family: str, what: str, attended: list[Groups]) -> None:
    its, grids = tower(family), SEEN[what]
    before = rows(family, its, grids)
    assert not attended
    assert use_windows(its, enabled=True) == LAYERS
    _same(rows(family, its, grids), before)
    calls = LAYERS * (len(grids) if family == "cohere_compass" else 1)  # which runs them one by one
    assert len(attended) == calls
    assert use_windows(its, enabled=True) == 0, "once"


@pytest.mark.parametrize("family", WITH_WINDOWS)
def test_windows_of_one_size_are_a_batch(family: str, attended: list[Groups]) -> None:
    its = tower(family)
    use_windows(its, enabled=True)
    rows(family, its, PICTURES)
    windows, images = attended
    assert windows == ((8, 16), (6, 8), (3, 4))  # 4 x 4 patches, and what is left at the edges
    assert images == ((1, 64), (2, 60), (1, 4))


def test_a_picture_of_many_windows_launches_what_one_of_few_does() -> None:
    few, many = [(1, 10, 14)], [(1, 22, 38)]  # with edges of two patches below and beside
    ours, theirs = tower("qwen2_5_vl"), tower("qwen2_5_vl")
    use_windows(ours, enabled=True)
    counts = [operations(*rows("qwen2_5_vl", ours, grids)) for grids in (few, many)]
    assert counts[0] == counts[1]
    upstream = [operations(*rows("qwen2_5_vl", theirs, grids)).total() for grids in (few, many)]
    assert counts[0].total() < upstream[0] < upstream[1] / 2


def test_one_picture_without_windows_launches_what_upstream_does() -> None:
    ours, theirs = tower("qwen3_vl"), tower("qwen3_vl")
    use_windows(ours, enabled=True)
    counts = [operations(*rows("qwen3_vl", its, PICTURE)) for its in (ours, theirs)]
    assert counts[0] == counts[1]


def test_frames_of_a_film_are_a_batch(attended: list[Groups]) -> None:
    its = tower("qwen3_vl")
    use_windows(its, enabled=True)
    rows("qwen3_vl", its, FILM)
    assert attended == [((3, 24),)] * LAYERS


def test_a_window_sees_nothing_of_its_neighbours() -> None:
    """The form is put to the test by values: what a mask hides is hidden."""
    ends = [0, 5, 5, 8, 13, 14]
    queries, keys, values = (mx.random.normal((1, 2, 14, 8)) for _ in range(3))
    block = np.repeat(np.arange(5), np.diff(ends))
    mask = mx.array(block[:, None] == block[None, :])
    want = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=0.3, mask=mask)
    for filled in (lambda count: count, lambda count: count + 3):
        windows = windows_of(ends, filled=filled)
        got = windows.attend(
            lambda q, k, v: mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3), (queries, keys, values)
        )
        assert mx.allclose(got, want, rtol=1e-5, atol=1e-6)
    assert windows_of(ends).groups == ((2, 5), (1, 3), (1, 1))


def test_windows_of_one_size_are_not_moved_about() -> None:
    windows = windows_of([0, 4, 8, 12])
    assert windows.groups == ((3, 4),) and windows.order is None and windows.back is None


def test_on_cuda_batches_are_of_few_numbers_of_windows(monkeypatch: pytest.MonkeyPatch, attended: list[Groups]) -> None:
    """Each new one would be prepared for."""
    use_forms(monkeypatch, FillingForms())
    its = tower("qwen2_5_vl")
    before = rows("qwen2_5_vl", its, PICTURES)
    use_windows(its, enabled=True)
    _same(rows("qwen2_5_vl", its, PICTURES), before)
    assert attended[0] == ((8, 16), (8, 8), (4, 4))


TURNING = [family for family in FAMILIES if _turns(family)]


@pytest.mark.parametrize("family", TURNING)
def test_on_cuda_upstream_s_turns_are_compiled(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    its = tower(family)
    before = [rows(family, its, grids) for grids in (PICTURE, PICTURES, PICTURE)]
    use_windows(its, enabled=True)
    plain = sum(operations(*rows(family, its, PICTURE)).values())
    monkeypatch.setattr(tower_windows, "on_cuda", lambda: True)
    for grids, want in zip((PICTURE, PICTURES, PICTURE), before, strict=True):
        _same(rows(family, its, grids), want)
    assert sum(operations(*rows(family, its, PICTURE)).values()) < plain


def test_few_shapes_are_kept_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX goes over all that it has at each call."""
    monkeypatch.setattr(tower_windows, "on_cuda", lambda: True)
    its = tower("qwen2_vl")
    use_windows(its, enabled=True)
    for side in range(2, 2 + 2 * tower_windows._COMPILED_SHAPES + 8, 2):
        mx.eval(rows("qwen2_vl", its, [(1, side, 2)]))
    assert tower_windows._compiled.cache_info().currsize == tower_windows._COMPILED_SHAPES


def test_turns_that_cannot_be_compiled_run_as_they_are(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    its = tower("qwen2_vl")
    module: Any = sys.modules[type(its).__module__]
    upstream = module.apply_rotary_pos_emb_vision

    def looks(tensor: mx.array, freqs: mx.array) -> Any:
        assert mx.abs(freqs).max().item() >= 0
        return upstream(tensor, freqs)

    before = rows("qwen2_vl", its, PICTURES)
    use_windows(its, enabled=True)
    monkeypatch.setattr(module, "apply_rotary_pos_emb_vision", looks)
    monkeypatch.setattr(tower_windows, "on_cuda", lambda: True)
    caplog.set_level(logging.INFO, logger="localai_shim")
    _same(rows("qwen2_vl", its, PICTURES), before)
    assert "apply_rotary_pos_emb_vision cannot be compiled" in caplog.text


def test_a_cpu_attends_window_by_window_and_without_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tower_windows, "has_gpu", lambda: False)
    changed = {family: use_windows(tower(family)) for family in FAMILIES}
    masks = {"glm4v_moe", "kimi_vl", "locateanything", "paddleocr_vl"}
    assert changed == {family: LAYERS if family in masks else 0 for family in FAMILIES}
    monkeypatch.setattr(tower_windows, "has_gpu", lambda: True)
    assert use_windows(tower("qwen2_5_vl")) == LAYERS
    assert use_windows(tower("qwen2_5_vl"), enabled=False) == 0


def test_nothing_changes_for_other_models_of_the_architecture(attended: list[Groups]) -> None:
    ours, theirs = tower("qwen2_5_vl"), tower("qwen2_5_vl")
    module: Any = sys.modules[type(theirs).__module__]
    before = dict(vars(module))
    use_windows(ours, enabled=True)
    assert vars(module) == before
    rows("qwen2_5_vl", theirs, PICTURE)
    assert not attended


def _kind(family: str, monkeypatch: pytest.MonkeyPatch, **names: Any) -> Any:
    """A tower whose class of attention has other code."""
    its = tower(family)
    layer = next(layer for layer in its.modules() if type(layer).__name__ == "Attention")
    kind = type(type(layer).__name__, (type(layer),), {"__module__": type(layer).__module__, **names})
    for layer in its.modules():
        if type(layer).__name__ == "Attention":
            layer.__class__ = kind
    return its


def _of_one_image(self: Any, x: mx.array, lengths: mx.array, rotary_pos_emb: Any = None) -> mx.array:
    return x


def _by_products(self: Any, x: mx.array, cu_seqlens: mx.array, rotary_pos_emb: Any = None) -> mx.array:
    return mx.softmax(x @ x.T, axis=-1) @ x


def _twice(self: Any, x: mx.array, cu_seqlens: mx.array, rotary_pos_emb: Any = None) -> mx.array:
    q = x.reshape(1, 1, *x.shape)
    for _ in range(2):
        q = mx.fast.scaled_dot_product_attention(q, q, q, scale=0.1)
    return q[0, 0]


def _of_some(self: Any, x: mx.array, cu_seqlens: mx.array, rotary_pos_emb: Any = None) -> mx.array:
    q = x[None, None, : int(cu_seqlens[1])]
    made = mx.fast.scaled_dot_product_attention(q, q[:, :, :2], q[:, :, :2], scale=0.1)
    return mx.pad(made[0, 0], [(0, x.shape[0] - made.shape[2]), (0, 0)])


@pytest.mark.parametrize(
    ("code", "why", "when"),
    [
        (_of_one_image, "has no argument cu_seqlens", "loaded"),
        (_by_products, "calls none of scaled_dot_product_attention", "loaded"),
        (_twice, "attends more than once", "run"),
        (_of_some, "attends to", "run"),
    ],
)
def test_where_upstream_changed_its_own_code_runs(
    code: Any,
    why: str,
    when: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="localai_shim")
    its = _kind("qwen2_vl", monkeypatch, __call__=code)
    if code is _of_one_image:
        monkeypatch.setattr(
            sys.modules["mlx_vlm.models.qwen2_vl.vision"].Qwen2VLVisionBlock,
            "__call__",
            lambda self, x, cu_seqlens, rotary_pos_emb: x + self.attn(x, lengths=cu_seqlens),
        )
    before = rows("qwen2_vl", its, PICTURES)
    assert use_windows(its, enabled=True) == (LAYERS if when == "run" else 0)
    for _ in range(2):
        _same(rows("qwen2_vl", its, PICTURES), before)
    lines = [record.getMessage() for record in caplog.records if why in record.getMessage()]
    assert lines and all("mlx_vlm.models.qwen2_vl.vision.Attention" in line for line in lines)


def test_the_forms_are_those_of_the_machine() -> None:
    """A model that is loaded on a CPU keeps upstream's towers, which are faster there."""
    from tests.models.vision.seeing import load

    model = load("qwen2_5_vl")
    assert any(hasattr(type(layer), "in_windows") for layer in inside.network(model).modules()) == backend.has_gpu()

"""Tokens with one position: a step of a model that counts rows and columns is what a text model's is."""

from __future__ import annotations

import copy
import logging
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.backends.cuda import attention as cuda_attention
from localai_shim.backends.cuda import vision_layers as mrope
from localai_shim.backends.cuda.vision_layers import Turn, use_one_position
from localai_shim.engine import kv
from localai_shim.engine.ports import StepInput
from localai_shim.models.loading import load_model
from localai_shim.models.text import TextModel
from localai_shim.models.vision.model import VisionModel
from tests import architectures, inside
from tests.graphs import fused, operations
from tests.machine_forms import FillingForms, TurningForms
from tests.models.vision.seeing import (
    WHOLE,
    alone,
    generate,
    load,
    pictures,
    poison,
    prefilled,
    prepared,
    prompt_of,
    rendered,
)
from tests.vision import FAMILIES, make_model

KINDS = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "glm4v", "glm4v_moe", "glm_ocr", "paddleocr_vl"]
TWINS = {"qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3", "internvl_chat": "qwen2"}
"""Text models whose layers are those of a family's language model."""
STEP_OPERATIONS = 4  # that a step may have more than its twin's, whatever the number of layers
Starts = list[int | list[int]]


@pytest.fixture(autouse=True)
def loads_without_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CUDA GPU the loader gives every model the form, the oracles too: here only `_load` does."""
    monkeypatch.setattr(mrope, "use_one_position", lambda model: 0)


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> Starts:
    """The starts of what was turned in passes, queries and keys of each layer."""
    found, turn = Starts(), Turn.__call__

    def recorded(self: Turn, x: mx.array) -> mx.array:
        if getattr(mrope._thread, "starts", None) is not None:
            found.append(self.starts if isinstance(self.starts, int) else self.starts.tolist())  # type: ignore[arg-type]
        return turn(self, x)

    monkeypatch.setattr(Turn, "__call__", recorded)
    return found


def _load(kind: str) -> VisionModel:
    model = load(kind)
    _turn(model)
    assert use_one_position(inside.network(model)) == 0, "it has the form"
    poison(model)
    return model


def _turn(model: VisionModel) -> None:
    """Give a model the form, whatever the machine."""
    use_one_position(inside.network(model))
    model._forms = TurningForms()


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_mlx_vlm_s(kind: str, turned: Starts) -> None:
    """With a picture, whose own tokens have three positions, and behind it."""
    media = pictures(1)
    want = alone(load(kind), prepared(kind, rendered(load(kind), kind, 1), media))
    assert not turned
    model = _load(kind)
    items = [model.text.process(item) for item in media]
    prompt = prompt_of(model, items)
    steps = generate(model, prompt, [model.embed(item) for item in items], WHOLE)
    assert [token for token, _ in steps] == [token for token, _ in want]
    for (_, got), (_, expected) in zip(steps, want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=3e-5, atol=1e-4)
    state: Any = model.row_state(prompt)
    first = len(prompt.tokens) - 1 + state.delta
    assert sorted(set(turned)) == list(range(first, first + len(steps))), "steps, and not the picture"  # type: ignore[type-var]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_batch_are_turned_by_their_own_positions(kind: str, turned: Starts) -> None:
    model = _load(kind)
    [item] = (model.text.process(each) for each in pictures(1))
    prompts = [prompt_of(model, [item]), prompt_of(model, [], "Hello there, plain text."), prompt_of(model, [], "x")]
    features = [[model.embed(item)], [], []]
    want = [generate(model, prompt, its, WHOLE) for prompt, its in zip(prompts, features, strict=True)]
    rows = [prefilled(model, prompt, its, WHOLE) for prompt, its in zip(prompts, features, strict=True)]
    batch, slots = kv.join(None, rows)
    states = [model.row_state(prompts[slots.index(slot)]) if slot in slots else None for slot in range(batch.width)]
    last = [prompt.tokens[-1] for prompt in prompts]
    turned.clear()
    for step in range(len(want[0])):
        tokens = [last[slots.index(slot)] if slot in slots else 0 for slot in range(batch.width)]
        logits = model.forward(StepInput(mx.array(tokens)[:, None], batch.advance(), state=states)).logits[:, -1]
        last = [int(mx.argmax(logits[slot])) for slot in slots]
        assert last == [steps[step][0] for steps in want]
    delta: Any = states[slots[0]]
    starts = turned[0]
    assert isinstance(starts, list)
    assert [starts[slot] for slot in slots] == [
        len(prompts[0].tokens) - 1 + delta.delta,
        len(prompts[1].tokens) - 1,
        len(prompts[2].tokens) - 1,
    ]


def test_chunks_of_text_and_steps_of_several_tokens_are_turned_from_their_first_position(turned: Starts) -> None:
    model = _load("qwen2_5_vl")
    plain, tokens = load("qwen2_5_vl"), mx.array([[5, 6, 7, 8, 9, 10, 11]])
    caches = [each.new_cache() for each in (model, plain)]
    want = plain.forward(StepInput(tokens, caches[1])).logits
    got = mx.concatenate(
        [
            model.forward(StepInput(tokens[:, :4], caches[0])).logits,
            model.forward(StepInput(tokens[:, 4:], caches[0])).logits,
        ],
        axis=1,
    )
    np.testing.assert_allclose(np.array(got), np.array(want), rtol=1e-4, atol=1e-5)
    assert set(turned) == {0, 4}  # type: ignore[arg-type]


def _with_layers(folder: Path, kind: str, layers: int) -> TextModel:
    text = FAMILIES[kind].config.get("text_config")
    more = {"num_hidden_layers": layers}
    changes = more if text is None else {"text_config": {**copy.deepcopy(text), **more}}
    made = load_model(str(make_model(folder / f"{kind}-{layers}", kind, **changes)), {})
    assert isinstance(made, TextModel)
    return made


def _per_layer(
    make: Callable[[int], TextModel], rows: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[Counter[str], int]:
    """The operations of a step's layer, and how many others a step has."""
    counts = []
    for layers in (2, 4):
        model = make(layers)
        caches = [model.new_cache() for _ in range(rows)]
        for row, cache in enumerate(caches):
            model.prefill(StepInput(mx.array([[5, 6, 7, 8] * (10 + row)]), cache))
        cache = caches[0] if rows == 1 else kv.join(None, caches)[0].advance()
        with monkeypatch.context() as patch:
            fused(patch)
            counts.append(operations(model.forward(StepInput(mx.zeros((rows, 1), mx.int32), cache)).logits))
    fewer, more = counts
    layer = Counter({name: (more[name] - fewer[name]) // 2 for name in more})
    return +layer, fewer.total() - 2 * (more.total() - fewer.total()) // 2


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("kind", TWINS)
def test_a_step_launches_what_its_text_twin_s_does(
    kind: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def its(layers: int) -> TextModel:
        model = _with_layers(tmp_path, kind, layers)
        _turn(model)
        return model

    def twin(layers: int) -> TextModel:
        return architectures.text_model(TWINS[kind], num_hidden_layers=layers, num_layers=layers)

    layer, step = _per_layer(its, rows, monkeypatch)
    twin_layer, twin_step = _per_layer(twin, rows, monkeypatch)
    assert layer.total() <= twin_layer.total(), layer - twin_layer
    assert step <= twin_step + STEP_OPERATIONS


@pytest.mark.parametrize("kind", ["glm4v", "glm_ocr", "paddleocr_vl"])
def test_a_step_turns_without_products_of_cosines(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Families without a twin."""

    def changed(layers: int, enabled: bool) -> TextModel:
        model = _with_layers(tmp_path, kind, layers)
        if enabled:
            _turn(model)
        return model

    before, _ = _per_layer(lambda layers: changed(layers, False), 1, monkeypatch)
    after, _ = _per_layer(lambda layers: changed(layers, True), 1, monkeypatch)
    assert after["Negative"] == after["Concatenate"] == 0 < before["Negative"]
    assert after.total() <= before.total() - 30


def test_the_form_is_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metal has a kernel of mlx-vlm's, and a CPU takes longer for `mx.fast.rope`."""
    model = load("qwen2_vl")
    assert use_one_position(inside.network(model)) == 2
    assert use_one_position(inside.network(model)) == 0, "once"


def test_foreign_models_of_the_architecture_run_upstream_s_code(turned: Starts) -> None:
    ours, theirs = _load("qwen2_vl"), load("qwen2_vl")
    tokens = mx.array([[5, 6, 7]])
    theirs.forward(StepInput(tokens, theirs.new_cache()))
    assert not turned
    ours.forward(StepInput(tokens, ours.new_cache()))
    assert turned


def _negated(upstream: Any) -> Any:
    return lambda q, k, cos, sin, **named: upstream(q, k, cos, -sin, **named)


def _renamed(upstream: Any) -> Any:
    return lambda queries, keys, angles: (queries, keys)


@pytest.mark.parametrize(("changed", "why"), [(_negated, "turns them otherwise"), (_renamed, "TypeError")])
def test_where_upstream_changed_its_own_code_runs(
    changed: Any, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = load("qwen2_vl")
    module: Any = sys.modules["mlx_vlm.models.qwen2_vl.language"]
    name = "apply_multimodal_rotary_pos_emb"
    function = changed(getattr(module, name))
    monkeypatch.setattr(module, name, function)
    caplog.set_level(logging.INFO, logger="localai_shim")
    assert use_one_position(inside.network(model)) == 0
    assert getattr(module, name) is function
    [*lines] = [record.getMessage() for record in caplog.records if why in record.getMessage()]
    assert lines and "mlx_vlm.models.qwen2_vl.language.Qwen2RotaryEmbedding" in lines[0]


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen3_vl", "glm4v"])
def test_passes_with_pictures_are_filled_up_on_cuda(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new length is prepared for there."""
    model = load(kind)
    poison(model)
    items = [model.text.process(item) for item in pictures(2)]
    prompt, features = prompt_of(model, items), [model.embed(item) for item in items]
    for most in (WHOLE, 9):  # chunks that end within a picture
        want = generate(model, prompt, features, most)
        passes, run = list[int](), model._run

        def recorded(step: StepInput, tokens: mx.array, passes: Any = passes, run: Any = run) -> mx.array:
            if step.media:
                passes.append(tokens.shape[1])
            made: mx.array = run(step, tokens)
            return made

        with monkeypatch.context() as patch:
            patch.setattr(model, "_forms", FillingForms())
            patch.setattr(model, "_run", recorded)
            got = generate(model, prompt, features, most)
        assert passes and all(length in cuda_attention.LENGTHS for length in passes)
        assert [token for token, _ in got] == [token for token, _ in want]
        for (_, ours), (_, theirs) in zip(got, want, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=3e-5, atol=1e-4)


def test_passes_with_pictures_that_see_both_ways_are_not_filled_up() -> None:
    assert load("gemma4")._fills_media
    assert not any(load(kind)._fills_media for kind in ("gemma3", "gemma4_bidirectional"))

"""Recurrent layers compute their states again for the tokens of a step that stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models.cache import make_prompt_cache

from localai_shim.engine.decode import in_flight
from localai_shim.engine.drafts.head import HeadDrafter
from localai_shim.engine.kv import slots
from localai_shim.engine.row import Row
from localai_shim.models.attention import recurrence
from localai_shim.models.misreading_layers import batch_attention
from localai_shim.types import RowError, SamplingParams
from tests import architectures, heads, vlm_architectures
from tests.engine.guessing import speculate
from tests.engine.harness import Running, generate, request
from tests.engine.head_engines import counts, engine_of
from tests.engine.kv.several import World
from tests.engine.row_caches import Language

MODELS = (
    "granitemoehybrid",
    "kimi_linear",
    "lfm2",
    "lfm2_moe",
    "mamba2",
    "nemotron_h",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_next",
    "mlx_vlm.lfm2_vl",
    "mlx_vlm.qwen3_5",
    "mlx_vlm.qwen3_next",
)
PROMPTS = [[5, 9, 23, 40], [7, 3, 31], [11, 8, 30, 44, 17]]


def world_of(name: str, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose model has layers that can be cut."""

    vision = name.startswith("mlx_vlm.")
    model = vlm_architectures.make(name.removeprefix("mlx_vlm.")) if vision else architectures.make(name)
    assert batch_attention(model)
    monkeypatch.setattr(slots, "SLOT_STEP_TOKENS", 16)
    return World(Language(model) if vision else model, make_prompt_cache, seed=3)


def layers_of(world: World) -> list[Any]:
    return [module for module in world.model.modules() if "conv1d" in module]


@pytest.mark.parametrize("name", MODELS)
def test_rows_keep_any_number_of_a_steps_tokens_and_run_none_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row's logits are those of one token at a time, as rows join and leave and slots are moved."""
    world = world_of(name, monkeypatch)
    world.join(3, 1, 30)
    for i in range(14):
        if i in (4, 9):
            world.join(world.random.choice([5, 18, 23]))
        if i in (6, 7, 11):
            world.leave(world.random.choice(sorted(world.alone)))
        if world.cache.wants_compaction:
            world.compact()
        world.one_each() if i % 4 == 3 else world.several()
    assert world.full and not world.replayed


class Counting(nn.Module):  # type: ignore[misc]
    """A projection that counts its calls."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer, self.calls = layer, 0

    def __call__(self, x: mx.array) -> mx.array:
        self.calls += 1
        made: mx.array = self.layer(x)
        return made


@pytest.mark.parametrize("kept", [1, 3, 4])
def test_projections_are_computed_once(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of("qwen3_next", monkeypatch)
    world.join(3, 6)
    layers = layers_of(world)
    projections = [Counting(layer["in_proj_qkvz"]) for layer in layers]
    for layer, projection in zip(layers, projections, strict=True):
        layer.in_proj_qkvz = projection
    places = sorted(world.alone)
    [step] = world.cache.advance_several(dict.fromkeys(places, 4))
    mx.eval(world.model(mx.array([[5, 6, 7, 8], [9, 10, 11, 12]]), cache=step.layers))
    assert world.cache.settle({places[0]: kept, places[1]: 4}) == {places[0]: kept, places[1]: 4}
    mx.eval([array for layer in step.layers for array in layer.state if isinstance(array, mx.array)])
    assert [each.calls for each in projections] == [1] * len(layers)
    assert [layer["in_proj_qkvz"] for layer in layers] == projections


def test_states_of_a_step_that_is_kept_whole_are_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither if there is a free slot, whose tokens do not count."""
    world = world_of("qwen3_next", monkeypatch)
    world.join(3, 6, 9)
    places = sorted(world.alone)
    world.leave(places[1])
    del places[1]
    [step] = world.cache.advance_several({places[0]: 2, places[1]: 3})
    mx.eval(world.model(mx.array([[5, 6, 7]] * 3), cache=step.layers))
    recurrent = [layer for layer in step.layers if hasattr(layer, "lengths")]
    after = [id(array) for layer in recurrent for array in layer.cache]
    world.cache.settle({places[0]: 2, places[1]: 3})
    assert recurrent and [id(array) for layer in recurrent for array in layer.cache] == after


def test_layer_that_fails_gets_its_projections_back(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of("qwen3_next", monkeypatch)
    world.join(3, 6)
    layer = layers_of(world)[0]
    names = [name for name in layer if name.startswith("in_proj")]
    before = [layer[name] for name in names]

    def fail(*_: object) -> mx.array:
        raise RuntimeError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(type(layer), "fix_query_key_value_ordering", fail)
        [step] = world.cache.advance_several(dict.fromkeys(sorted(world.alone), 2))
        with pytest.raises(RuntimeError, match="no memory"):
            world.model(mx.array([[5, 6], [9, 10]]), cache=step.layers)
    assert [layer[name] for name in names] == before


def test_layers_that_cannot_be_cut_run_tokens_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them is enough: all layers of a row must hold the same tokens."""
    world = world_of("qwen3_next", monkeypatch)
    layer = layers_of(world)[0]
    layer.__class__ = type(layer).__bases__[0]  # upstream's
    world.join(3, 1, 30)
    for _ in range(8):
        world.several()
    assert world.replayed


@pytest.mark.parametrize("kind", ["qwen3_next", "qwen3_5", "nemotron_h"])
def test_engine_with_a_head_runs_no_token_twice(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some drafts are wrong, rows join and one is cancelled; the text is that without drafts."""
    folder = str(heads.model_with_head(tmp_path, kind, share=0.3))
    speculate(monkeypatch)
    monkeypatch.setattr(HeadDrafter, "seconds", lambda self, rows, drafts, plain: 0.0)
    made = [request(prompt, SamplingParams(seed=i), 48, ignore_eos=True) for i, prompt in enumerate(PROMPTS)]
    engine = engine_of(folder, drafts=False)
    expected = [generate(engine, each)[0] for each in made]
    engine.close()
    again: list[list[int]] = []
    own = in_flight._take_back

    def take_back(cache: Any, places: Any, rows: list[Row], emitted: Any) -> None:
        own(cache, places, rows, emitted)
        again.extend(row.replay for row in rows)

    monkeypatch.setattr(in_flight, "_take_back", take_back)
    engine = engine_of(folder)
    gone = Running(engine, request([4, 8, 15], SamplingParams(), 200, ignore_eos=True))
    running = [Running(engine, each) for each in made]
    gone.read(3)
    gone.cancel()
    assert [each.finish()[0] for each in running] == expected
    drafted, right = counts(engine)
    engine.close()
    assert again and not any(again) and 0 < right < drafted


@pytest.mark.parametrize("failing", [0, 1], ids=["the first layer", "after another layer's states were cut"])
def test_states_that_fail_to_be_computed_again_fail_running_requests_alone(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request is cancelled meanwhile; the next ones are answered as without drafts."""
    folder = str(heads.model_with_head(tmp_path, "qwen3_next", share=0.3))
    speculate(monkeypatch)
    monkeypatch.setattr(HeadDrafter, "seconds", lambda self, rows, drafts, plain: 0.0)
    made = [request(prompt, SamplingParams(seed=i), 48, ignore_eos=True) for i, prompt in enumerate(PROMPTS)]
    engine = engine_of(folder, drafts=False)
    expected = [generate(engine, each)[0] for each in made]
    engine.close()
    own, calls = recurrence._states, 0

    def states(*args: Any) -> list[mx.array | None]:
        nonlocal calls
        calls += 1
        if calls == failing + 1:
            gone.cancel()
            raise RuntimeError("out of luck")
        return own(*args)

    engine = engine_of(folder)  # whose trials compute states again, too
    monkeypatch.setattr(recurrence, "_states", states)
    gone = Running(engine, request([4, 8, 15], SamplingParams(), 200, ignore_eos=True))
    with pytest.raises(RowError, match="the model failed"):
        Running(engine, made[0]).finish()
    assert [generate(engine, each)[0] for each in made] == expected and calls > failing + 1
    engine.close()

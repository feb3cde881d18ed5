"""Adapters of models that see: rows with pictures, and text beside them, each say what mlx-vlm says with its own."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx import nn

from localai_shim import LocalOpenAI
from localai_shim.models.adapters.bank import Bank
from localai_shim.models.loading import load_model
from localai_shim.types import ModelLoadError
from tests import inside
from tests.lora import add, as_peft
from tests.models.adapters.vision import make_adapter, renamed
from tests.models.vision.asking import SHOWN, ids
from tests.models.vision.packing import packed
from tests.models.vision.seeing import alone, load, prepared, rendered
from tests.samples import only
from tests.vision import FAMILIES, tiny_vision

pytestmark = pytest.mark.filterwarnings("ignore:Image.Image.getdata:DeprecationWarning")  # of kimi_vl's processor
# mlx-vlm's own code puts no adapter on a model with gemma4's sounds.
families = pytest.mark.parametrize(
    "kind", only(["qwen2_vl", "gemma3"], [kind for kind in FAMILIES if kind != "gemma4"])
)


@functools.cache
def expected(kind: str, adapter: Path | None) -> list[list[int]]:
    """Tokens that mlx-vlm generates of each question with an adapter by itself."""
    model = load(kind) if adapter is None else load(kind, adapter_path=str(adapter))
    made = [alone(model, prepared(kind, rendered(model, kind, len(media)), media)) for media in SHOWN]
    return [[token for token, _ in steps] for steps in made]


@families
def test_rows_with_pictures_and_text_each_have_their_own(kind: str, tmp_path: Path) -> None:
    adapters = {name: make_adapter(tmp_path / name, kind, seed=i, rank=2 + i) for i, name in enumerate("ab")}
    wanted = {name: expected(kind, adapters.get(name)) for name in ("a", "any", "b")}
    assert wanted["a"] != wanted["any"] != wanted["b"]
    with LocalOpenAI(tiny_vision(kind), adapters=adapters, keep_alive=0) as client, ThreadPoolExecutor(9) as pool:
        asked = [(name, i) for i in range(len(SHOWN)) for name in wanted]
        for _ in range(2):  # the second time from the prefix cache
            answers = list(pool.map(lambda each: ids(client, each[0], SHOWN[each[1]]), asked))
            for (name, i), answer in zip(asked, answers, strict=True):
                assert answer == wanted[name][i], (name, i)
        assert client.stats().cache_hits > 0 or kind == "paligemma"  # whose prompts run whole
        assert client.stats().tower_runs == 2  # pictures are the same for all of them


def test_a_packed_language_model_has_them_too(tmp_path: Path) -> None:
    kind, folder = "qwen2_vl", packed(tiny_vision("qwen2_vl"), tmp_path / "packed")
    adapter = make_adapter(tmp_path / "a", kind, seed=1)
    with LocalOpenAI(folder, adapters={"a": adapter}, keep_alive=0) as client, ThreadPoolExecutor(6) as pool:
        asked = [(name, media) for media in SHOWN for name in ("a", "any")]
        answers = list(pool.map(lambda each: ids(client, *each), asked))
    models: dict[str, Any] = {
        "a": load_model(str(folder), {"adapter_path": str(adapter)}),
        "any": load_model(str(folder), {}),
    }
    for (name, media), answer in zip(asked, answers, strict=True):
        steps = alone(models[name], prepared(kind, rendered(models[name], kind, len(media)), media))
        assert answer == [token for token, _ in steps]


def test_guesses_are_verified_with_the_row_s_own(tmp_path: Path) -> None:
    kind = "qwen2_vl"
    adapter = make_adapter(tmp_path / "a", kind, seed=1)
    with LocalOpenAI(tiny_vision(kind), adapters={"a": adapter}, keep_alive=0) as client:
        tokenizer = inside.engine(client).model.tokenizer
        wanted = {name: ids(client, name, SHOWN[1], 40) for name in ("a", "any")}
        for name, guess in (("a", "a"), ("any", "any"), ("a", "any"), ("any", "a")):
            content = {"type": "content", "content": tokenizer.decode(wanted[guess])}
            assert ids(client, name, SHOWN[1], 40, prediction=content) == wanted[name]
    assert wanted["a"][:6] == expected(kind, adapter)[1] and wanted["any"][:6] == expected(kind, None)[1]


def test_prompts_with_pictures_run_in_small_pieces_while_others_wait(tmp_path: Path) -> None:
    kind = "qwen2_vl"
    adapter = make_adapter(tmp_path / "a", kind, seed=1)
    options: Any = {"adapters": {"a": adapter}, "max_stall": 0.001, "max_rows": 2, "keep_alive": 0}
    with LocalOpenAI(tiny_vision(kind), **options) as client, ThreadPoolExecutor(6) as pool:
        asked = [(name, i) for i in range(len(SHOWN)) for name in ("a", "any")]
        answers = list(pool.map(lambda each: ids(client, each[0], SHOWN[each[1]]), asked))
    for (name, i), answer in zip(asked, answers, strict=True):
        assert answer == expected(kind, adapter if name == "a" else None)[i], (name, i)


def test_folders_of_each_form_and_with_each_beginning_say_the_same(tmp_path: Path) -> None:
    kind, layers = "qwen2_vl", ["q_proj", "down_proj"]
    source = make_adapter(tmp_path / "mlx", kind, seed=1, layers=layers)
    old = make_adapter(tmp_path / "old", kind, seed=1, layers=layers, legacy=True)
    text = renamed(tmp_path / "text", source, "language_model.", "")  # of the language model alone
    newer = renamed(tmp_path / "newer", source, "language_model.model.", "model.language_model.")  # transformers' names
    peft = as_peft(tmp_path / "peft", newer)
    adapters = {path.name: path for path in (source, old, text, newer, peft)}
    with LocalOpenAI(tiny_vision(kind), adapters=adapters, keep_alive=0) as client, ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda name: ids(client, name, SHOWN[1]), adapters))
    assert answers == [expected(kind, source)[1]] * 5
    assert expected(kind, source) != expected(kind, None)


@pytest.mark.parametrize("begins", ["vision_tower.vision_model.encoder", "model.vision_tower.vision_model.encoder"])
def test_layers_of_a_tower_are_refused_by_name(begins: str, tmp_path: Path) -> None:
    """Those that have the same numbers and ends as layers of the language model, and its shapes, as well."""
    layer = "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj"
    source = make_adapter(tmp_path / "a", "gemma3", seed=1, layers=["v_proj", layer])
    path = renamed(tmp_path / "b", source, "vision_tower.vision_model.encoder", begins)
    weights: Any = mx.load(str(source / "adapters.safetensors"))
    text = {name: array for name, array in weights.items() if not name.startswith("vision_tower")}
    there = "vision_tower.vision_model.encoder"
    tower = {begins + name.removeprefix(there): weights[name] for name in weights.keys() - text.keys()}
    mx.save_safetensors(str(path / "adapters.safetensors"), {**text, **tower})
    model = load("gemma3")
    assert isinstance(model._decoder, nn.Module)
    bank = Bank(model._decoder)
    with pytest.raises(ModelLoadError, match=rf"'{begins}.layers.0.self_attn.q_proj' is no layer of"):
        add(bank, path)
    assert bank.nbytes == 0


def test_a_layer_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    source = make_adapter(tmp_path / "a", "gemma3", seed=1, layers=["v_proj"])
    weights: Any = mx.load(str(source / "adapters.safetensors"))
    twice = {name.removeprefix("language_model."): array for name, array in weights.items()}
    mx.save_safetensors(str(source / "adapters.safetensors"), {**weights, **twice})
    model = load("gemma3")
    assert isinstance(model._decoder, nn.Module)
    with pytest.raises(ModelLoadError, match="which has another name in it as well"):
        add(Bank(model._decoder), source)

"""Adapters around a model's layers: each row's logits are those of its own adapter, as mlx-lm computes them alone."""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from mlx import nn
from mlx_lm.tuner.utils import load_adapters

from localai_shim.backends.cuda.adapters import Factors
from localai_shim.backends.own_forms import OwnForms
from localai_shim.models.adapters.bank import Bank
from localai_shim.models.adapters.folder import read_adapter
from localai_shim.models.adapters.layers import AdaptedLinear
from localai_shim.types import ModelLoadError
from tests.lora import TOKENS, add, as_peft, assert_near, logits, make_adapter, names_of, remove
from tests.machine_forms import use_forms
from tests.tiny import tiny

KINDS = ["qwen3", "llama", "gemma3_text", "qwen3_moe", "qwen3_next"]


class Kernel:
    """The kernel of CUDA, made of MLX's products."""

    def __init__(self, factors: Sequence[Factors]) -> None:
        self._factors = factors
        self.runs = 0

    def takes(self, x: mx.array) -> bool:
        return True

    def add(self, x: mx.array, ys: Sequence[mx.array], index: mx.array) -> list[mx.array]:
        self.runs += 1
        rows = x.reshape(len(index), -1, x.shape[-1])
        more = [rows @ a[index].swapaxes(1, 2) @ b[index] for a, b in self._factors]
        return [y + each.reshape(y.shape) for y, each in zip(ys, more, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_read_the_same_share_a_kernel_where_there_is_one(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny(kind)
    made = [make_adapter(tmp_path / str(i), folder, seed=i, rank=rank) for i, rank in enumerate((4, 2))]
    results = list[Any]()
    kernels = list[Kernel]()

    class Noted(OwnForms):
        def adapter_kernel(self, factors: Sequence[Factors]) -> Kernel:
            kernels.append(Kernel(factors))
            return kernels[-1]

    for forms in (OwnForms(), Noted()):
        use_forms(monkeypatch, forms)
        model, _ = mlx_lm.load(str(folder))
        bank = Bank(model)
        adapters = [add(bank, path) for path in made]
        selected = [adapters[1], None, adapters[0]]
        for _ in range(2):
            with bank.selected(selected):
                results.append(logits(model, TOKENS))
        linear = {name for name, layer in bank._layers.items() if isinstance(layer, AdaptedLinear)}
    assert all(np.array_equal(one, other) for one, other in zip(results[::2], results[1::2], strict=True))
    assert_near(results[2], results[0])
    used = kernels[-len({name.rpartition(".")[0] + _group(name) for name in linear}) :]
    assert [each.runs for each in used] == [2] * len(used) and len(used) < len(linear)
    layers = weakref.WeakSet(each.siblings for each in bank._layers.values() if isinstance(each, AdaptedLinear))
    for adapter in adapters:
        remove(bank, adapter)
    assert not layers, "they hold factors"


def _group(name: str) -> str:
    last = name.rpartition(".")[2]
    return {"q_proj": "q", "k_proj": "q", "v_proj": "q", "gate_proj": "g", "up_proj": "g"}.get(last, last)


@pytest.mark.parametrize("bits", [None, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_each_row_has_its_own_adapter_and_nothing_stays(kind: str, bits: int | None, tmp_path: Path) -> None:
    folder = tiny(kind)
    made = [make_adapter(tmp_path / str(i), folder, seed=i, rank=rank) for i, rank in enumerate((4, 2))]

    def load() -> Any:
        model, _ = mlx_lm.load(str(folder))
        if bits:
            nn.quantize(model, 32, bits, class_predicate=lambda _, m: hasattr(m, "to_quantized") and _fits(m))
        return model

    expected = [logits(load_adapters(load(), str(path)).eval(), TOKENS) for path in made]
    model = load()
    plain, before = logits(model, TOKENS), names_of(model)
    bank = Bank(model)
    first, second = (add(bank, path) for path in made)
    assert bank.nbytes > 0
    with bank.selected([second, None, first]):
        mixed = logits(model, TOKENS)
    assert_near(mixed[0], expected[1][0])
    assert_near(mixed[1], plain[1])
    assert_near(mixed[2], expected[0][2])
    with bank.selected([first] * 3):
        assert_near(logits(model, TOKENS), expected[0])
    np.testing.assert_array_equal(logits(model, TOKENS), plain)
    assert np.abs(expected[0] - plain).max() > 0.01 * np.abs(plain).max()
    remove(bank, first)
    with bank.selected([second, None, second]):
        assert_near(logits(model, TOKENS)[0], expected[1][0])
    remove(bank, second)
    assert names_of(model) == before
    assert bank.nbytes == 0


def _fits(module: Any) -> bool:
    return module.weight.shape[-1] % 32 == 0


def test_embeddings_and_heads_have_adapters(tmp_path: Path) -> None:
    folder = tiny("llama")
    path = make_adapter(tmp_path / "all", folder, keys=["model.embed_tokens", "self_attn.q_proj", "lm_head"])
    adapted = load_adapters(mlx_lm.load(str(folder))[0], str(path)).eval()
    model, _ = mlx_lm.load(str(folder))
    bank = Bank(model)
    adapter = add(bank, path)
    plain = logits(model, TOKENS)
    with bank.selected([adapter, None, adapter]):
        mixed = logits(model, TOKENS)
    assert_near(mixed[[0, 2]], logits(adapted, TOKENS)[[0, 2]])
    assert_near(mixed[1], plain[1])


def test_peft_s_folder_says_the_same_and_patterns_count(tmp_path: Path) -> None:
    folder = tiny("llama")
    source = make_adapter(tmp_path / "mlx", folder, keys=["self_attn.q_proj", "mlp.up_proj"])
    peft = as_peft(tmp_path / "peft", source)
    rslora = as_peft(tmp_path / "rs", source, use_rslora=True, lora_alpha=4.0)  # 4 / sqrt(4) is 2, too
    pattern = as_peft(tmp_path / "pattern", source, lora_alpha=0.0001, alpha_pattern={"q_proj": 8, "up_proj": 8})
    model, _ = mlx_lm.load(str(folder))
    bank = Bank(model)
    adapters = [add(bank, path) for path in (source, peft, rslora, pattern)]
    assert len(set(adapters)) == 4
    made = []
    for adapter in adapters:
        with bank.selected([adapter] * 3):
            made.append(logits(model, TOKENS))
    for other in made[1:]:
        assert_near(other, made[0])


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"fine_tune_type": "dora"}, "'dora'"),
        ({"fine_tune_type": "full"}, "'full'"),
        ({"peft_type": "LORA", "use_dora": True}, "DoRA"),
        ({"peft_type": "LORA", "modules_to_save": ["lm_head"]}, "`modules_to_save`: lm_head"),
        ({"peft_type": "LORA", "bias": "all"}, "`bias`: 'all'"),
        ({"peft_type": "IA3"}, "'IA3'"),
        ({"lora_parameters": {"rank": 4}}, "has no `lora_parameters.scale`"),
    ],
)
def test_what_cannot_be_done_per_row_is_refused_by_name(config: dict[str, Any], what: str, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    for name in ("adapters.safetensors", "adapter_model.safetensors"):
        mx.save_safetensors(str(tmp_path / name), {"x": mx.zeros((1,))})
    with pytest.raises(ModelLoadError) as caught:
        read_adapter("bad", str(tmp_path))
    assert what in str(caught.value)


def test_a_tensor_that_does_not_fit_is_named_with_its_shape_and_nothing_stays(tmp_path: Path) -> None:
    folder = tiny("llama")
    path = make_adapter(tmp_path / "bad", folder, keys=["self_attn.q_proj", "mlp.up_proj"])
    weights = mx.load(str(path / "adapters.safetensors"))
    assert isinstance(weights, dict)
    name = next(name for name in weights if name.endswith("lora_a"))
    weights[name] = mx.zeros((7, 4))
    weights["model.layers.99.self_attn.q_proj.lora_a"] = mx.zeros((4, 4))
    weights["model.layers.99.self_attn.q_proj.lora_b"] = mx.zeros((4, 4))
    mx.save_safetensors(str(path / "adapters.safetensors"), weights)
    model, _ = mlx_lm.load(str(folder))
    before, bank = names_of(model), Bank(model)
    with pytest.raises(ModelLoadError) as caught:
        add(bank, path)
    message = str(caught.value)
    assert str(path) in message and name.removesuffix(".lora_a") in message and "(7, 4)" in message
    assert "model.layers.99.self_attn.q_proj" in message
    assert names_of(model) == before


def test_a_changed_file_is_another_adapter(tmp_path: Path) -> None:
    folder = tiny("llama")
    path = make_adapter(tmp_path / "one", folder, keys=["self_attn.q_proj"])
    first, _ = read_adapter("a", str(path))
    assert read_adapter("b", str(path))[0] == first
    make_adapter(path, folder, seed=1, keys=["self_attn.q_proj"])
    assert read_adapter("a", str(path))[0] != first


@pytest.mark.parametrize(
    "broken", ["config gone", "config cut", "weights gone", "weights cut", "weights are a pointer"]
)
def test_a_broken_folder_is_refused_with_the_file(broken: str, tmp_path: Path) -> None:
    folder = tiny("llama")
    path = make_adapter(tmp_path / "one", folder, keys=["self_attn.q_proj"])
    file = path / ("adapter_config.json" if broken.startswith("config") else "adapters.safetensors")
    if broken.endswith("gone"):
        file.unlink()
    elif broken.endswith("pointer"):
        file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    else:
        file.write_bytes(file.read_bytes()[:-50])
    model, _ = mlx_lm.load(str(folder))
    before, bank = names_of(model), Bank(model)
    with pytest.raises(ModelLoadError, match=file.name):
        add(bank, path)
    assert names_of(model) == before

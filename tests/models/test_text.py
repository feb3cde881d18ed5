"""What we rely on in mlx-lm, and what the adapter adds to it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import mlx_lm.utils
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models import cache as mlx_cache

from localai_shim.backends.x86 import activations as cpu_forms
from localai_shim.engine.ports import StepInput
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions, TextModel, is_plain_fast
from localai_shim.types import ModelLoadError
from tests import inside
from tests.graphs import operations
from tests.tiny import CONFIGS, make_half_model, make_model, tiny

PROMPT = [5, 9, 13, 21, 8, 3]


def loaded(path: Path, **options: Any) -> TextModel:
    return load_model(str(path), LoadOptions(**options))


def logits_after(model: TextModel, tokens: list[int]) -> np.ndarray:
    cache = model.new_cache()
    model.prefill(StepInput(mx.array([tokens[:3]]), cache))
    model.prefill(StepInput(mx.array([tokens[3:-1]]), cache))
    logits = model.forward(StepInput(mx.array([tokens[-1:]]), cache)).logits
    assert logits.dtype == mx.float32 and logits.shape == (1, 1, CONFIGS["qwen3"]["vocab_size"])
    return np.array(logits[0, 0])


@pytest.mark.parametrize("kind", CONFIGS)
def test_prefill_in_chunks_and_then_forward_is_the_model_itself(kind: str) -> None:
    reference, _ = mlx_lm.load(str(tiny(kind)))
    expected = np.array(reference(mx.array([PROMPT]))[0, -1])
    assert np.allclose(logits_after(loaded(tiny(kind)), PROMPT), expected, atol=1e-4)


def test_passes_of_several_tokens_and_no_others_may_be_computed_as_they_are_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a CPU alone. A step of one token is built ahead, while the one before it runs."""
    model = loaded(tiny("qwen3"))
    found, run = [], model._run

    def noting(step: StepInput, tokens: mx.array) -> mx.array:
        found.append((tokens.shape[1], cpu_forms._computes_at_once()))
        return run(step, tokens)

    monkeypatch.setattr(model, "_run", noting)
    cache = model.new_cache()
    for tokens in ([5, 9, 13], [21], [8, 3]):
        model.forward(StepInput(mx.array([tokens]), cache))
    model.prefill(StepInput(mx.array([PROMPT]), model.new_cache()))
    several = not model.samples_on_device
    assert found == [(3, several), (1, False), (2, several), (len(PROMPT), several)]


def test_a_quantised_model_gives_the_logits_of_mlx_lm(tmp_path: Path) -> None:
    path = make_model(tmp_path / "plain", "qwen3")
    model, tokenizer, config = mlx_lm.load(str(path), return_config=True)
    model, config = mlx_lm.utils.quantize_model(model, config, group_size=32, bits=4)
    expected = np.array(model(mx.array([PROMPT]))[0, -1].astype(mx.float32))
    mlx_lm.utils.save(str(tmp_path / "quantised"), str(path), model, tokenizer, config)
    assert np.allclose(logits_after(loaded(tmp_path / "quantised"), PROMPT), expected, atol=2e-2)


@pytest.mark.parametrize("kind", CONFIGS)
def test_mlx_lm_s_caches_can_be_merged_extended_and_filtered(kind: str) -> None:
    model = loaded(tiny(kind))
    caches = [model.new_cache() for _ in range(3)]
    for i, cache in enumerate(caches):
        model.prefill(StepInput(mx.array([PROMPT[: i + 2]]), cache))
    for layers in zip(*caches, strict=True):
        merged = type(layers[0]).merge(list(layers[:2]))
        merged.extend(type(layers[2]).merge([layers[2]]))
        merged.filter([0, 2])
        arrays = [array for _, array in tree_flatten(merged.state) if isinstance(array, mx.array) and array.ndim > 1]
        assert arrays and all(array.shape[0] == 2 for array in arrays)


def test_a_cache_knows_its_state_and_the_default_is_a_kv_cache_per_layer() -> None:
    cache = loaded(tiny("qwen3")).new_cache()
    assert [type(layer) for layer in cache] == [mlx_cache.KVCache] * CONFIGS["qwen3"]["num_hidden_layers"]
    assert all(hasattr(layer, "state") for layer in cache)


def test_half_precision_weights_are_widened_where_there_is_no_gpu(tmp_path: Path) -> None:
    path = make_half_model(tmp_path / "half", "qwen3")
    model = loaded(path)
    dtypes = {array.dtype for _, array in tree_flatten(inside.network(model).parameters())}
    assert dtypes == {mx.bfloat16 if model.samples_on_device else mx.float32}


def test_what_the_template_decides_is_left_to_it_and_what_the_caller_says_is_passed_on() -> None:
    template = "{{ 'on' if enable_thinking else 'off' if enable_thinking is defined else 'unsaid' }}"
    model = loaded(tiny("qwen3", template=template))
    say = {None: {}, True: {"enable_thinking": True}, False: {"enable_thinking": False}}
    messages = [{"role": "user", "content": "hi"}]
    texts = {key: model.tokenizer.decode(model.text.apply_chat_template(messages, how)) for key, how in say.items()}
    assert texts == {None: "unsaid", True: "on", False: "off"}


def test_the_context_comes_from_the_config_unless_it_is_given() -> None:
    path = tiny("qwen3")
    assert loaded(path).context_length == 1024
    assert loaded(path, context_length=99).context_length == 99


def test_end_of_sequence_tokens_come_from_config_generation_config_and_tokenizer(tmp_path: Path) -> None:
    path = make_model(tmp_path / "eos", "qwen3")
    config = json.loads((path / "config.json").read_text())
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 9], "temperature": 0.3}))
    model = loaded(path)
    assert model.eos_token_ids == {2, 9, config["eos_token_id"]}
    assert model.generation_defaults["temperature"] == 0.3


def test_a_folder_without_weights_is_a_broken_model_and_no_folder_a_missing_one(tmp_path: Path) -> None:
    shutil.copytree(tiny("qwen3"), tmp_path / "empty")
    (tmp_path / "empty" / "model.safetensors").unlink()
    with pytest.raises(ModelLoadError, match="could not be loaded") as caught:
        loaded(tmp_path / "empty")
    assert not caught.value.missing


def test_a_folder_without_a_tokenizer_is_told_what_it_lacks(tmp_path: Path) -> None:
    shutil.copytree(tiny("qwen3"), tmp_path / "mute")
    (tmp_path / "mute" / "tokenizer.json").unlink()  # transformers would make an empty one
    with pytest.raises(ModelLoadError, match=r"has no tokenizer: its folder has none of tokenizer.json, .* Copy the"):
        loaded(tmp_path / "mute")


@pytest.mark.parametrize("text", ["", "one two three", " a  b ", "Zażółć 🙂🚀\n\n", "<|im_start|>user\nhi<|im_end|>\n"])
@pytest.mark.parametrize("special", [False, True])
def test_the_short_cut_to_tokens_gives_what_transformers_gives(text: str, special: bool) -> None:
    model = loaded(tiny("qwen3"))
    assert is_plain_fast(model.tokenizer._tokenizer)
    expected = model.tokenizer._tokenizer.encode(text, add_special_tokens=special)
    assert model.text.encode(text, add_special_tokens=special) == expected


def test_a_tokenizer_with_an_encode_of_its_own_keeps_it() -> None:
    from mlx_lm.tokenizer_utils import NewlineTokenizer

    model = loaded(tiny("qwen3"))
    own = NewlineTokenizer(tokenizer_object=model.tokenizer._tokenizer.backend_tokenizer)
    assert not is_plain_fast(own)
    model.text.tokenizer._tokenizer = own
    assert model.text.encode("a\nb") == own.encode("a\nb") == own.encode("a<n>b")


def test_loading_leaves_no_keys_of_random_numbers_to_be_computed() -> None:
    """Layers are made with random weights; nobody runs the graph of the last one's key, and each load adds to it."""
    mx.eval(mx.random.state)
    mlx_lm.load(str(tiny("qwen3")))
    assert operations(mx.random.state[0])  # type: ignore[index]
    loaded(tiny("qwen3"))
    assert not operations(mx.random.state[0])  # type: ignore[index]

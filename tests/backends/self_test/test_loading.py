"""Loading a model on a GPU tests the device first. Here the CPU is tested, as a GPU would be."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from localai_shim import LocalOpenAI
from localai_shim.backends import forms
from localai_shim.backends.self_test import Shape, device
from localai_shim.backends.self_test.attention import SIZES, Size
from localai_shim.backends.self_test.device import PLAIN, shapes, unsafe_sizes
from localai_shim.engine.ports import StepInput
from localai_shim.models import loading
from localai_shim.options import LoadOptions
from localai_shim.types import ModelLoadError
from tests import inside
from tests.tiny import make_half_model, tiny
from tests.vision import tiny_vision

TOKENS = [5, 6, 7, 8, 9, 10]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of verdicts, in a home where nothing was tested yet, on a machine with a GPU."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(loading, "has_gpu", lambda: True)
    monkeypatch.setattr(forms, "has_gpu", lambda: True)
    return tmp_path / "localai_shim" / "self_test"


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch) -> list[Shape]:
    """Shapes whose rope was tested, which stands for all operations."""
    found, check = list[Shape](), device.check_rope

    def noting(shape: Shape) -> Any:
        found.append(shape)
        return check(shape)

    monkeypatch.setattr(device, "check_rope", noting)
    return found


def load(folder: Path | str | None = None, **options: Any) -> Any:
    return loading.load_model(str(folder or tiny("qwen3")), LoadOptions(**options), progress=False)


def logits(model: Any) -> Any:
    """Logits of a prompt, token by token."""
    cache = model.new_cache()
    return np.stack([np.array(model.forward(StepInput(mx.array([[token]]), cache)).logits) for token in TOKENS])


def plant(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, fault: Callable[..., Any]) -> None:
    right = getattr(where, name)
    monkeypatch.setattr(where, name, lambda *args, **options: fault(right(*args, **options), *args, **options))


def zeros_for_one_query(out: mx.array, queries: mx.array, *args: Any, **options: Any) -> mx.array:
    return mx.zeros_like(out) if queries.shape[2] == 1 else out


# -- what follows ----------------------------------------------------------------------------------------------------


def test_a_model_on_a_device_without_faults_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "localai_shim")
    model = load()
    assert model.applied == {} and caplog.records == []


def test_sizes_at_which_attention_is_wrong_are_computed_plainly_and_logged_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = logits(load())
    plant(monkeypatch, mx.fast, "scaled_dot_product_attention", zeros_for_one_query)
    monkeypatch.setattr(device, "identity", lambda: "Apple M2, macOS 15.5 (24F74), mlx 1")
    with caplog.at_level(logging.WARNING, "localai_shim"):
        model = load()
    assert model.applied == {PLAIN: len(inside.network(model).layers)}
    assert np.allclose(logits(model), expected, atol=1e-4)
    [record] = caplog.records
    names = [str(size) for size in SIZES if size.queries == 1]
    assert "Apple M2, macOS 15.5 (24F74)" in record.getMessage()
    assert record.getMessage().endswith(": " + "; ".join(names)) and len(names) == 6


def answers(folder: Path) -> list[str]:
    """Answers to prompts of different lengths that share a batch."""
    prompts = ["Paris is", "The quick brown fox jumps over the lazy dog. " * 3, "one two three four"]
    with LocalOpenAI(model=folder, keep_alive=0, progress=False) as client:
        made = client.completions.create(model="x", prompt=prompts, max_tokens=12, temperature=0)
    return [choice.text for choice in made.choices]


def test_requests_that_share_a_batch_are_answered_rightly(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny("qwen3", max_position_embeddings=3_000)  # its engine is no other test's
    expected = answers(folder)
    plant(monkeypatch, mx.fast, "scaled_dot_product_attention", zeros_for_one_query)
    monkeypatch.setattr(device, "identity", lambda: "a machine that was not tested yet, mlx 1")
    assert answers(folder) == expected
    monkeypatch.setattr(loading, "_check_device", lambda model: {})
    assert answers(folder) != expected, "the fault makes a difference"


def half_zeros(out: mx.array, *args: Any, **options: Any) -> mx.array:
    return mx.concatenate([out[..., : out.shape[-1] // 2], mx.zeros_like(out[..., out.shape[-1] // 2 :])], axis=-1)


def zeros(out: mx.array, *args: Any, **options: Any) -> mx.array:
    return mx.zeros_like(out)


FAULTS: dict[str, tuple[Any, str, Callable[..., mx.array], str]] = {
    "products": (nn.Linear, "__call__", half_zeros, "products (step of 1 row, "),
    "rope": (mx.fast, "rope", half_zeros, "rope (one offset, 1 token, "),
    "scatter": (mx, "put_along_axis", half_zeros, "scatter (1 token into 3 slots, "),
    "sort": (mx, "sort", half_zeros, "sort (400 tokens)"),
    "argsort": (mx, "argsort", half_zeros, "argsort (400 tokens)"),
    "argpartition": (mx, "argpartition", zeros, "argpartition (400 tokens)"),
    "argmax": (mx, "argmax", zeros, "argmax (400 tokens)"),
    "cumsum": (mx, "cumsum", half_zeros, "cumsum (400 tokens)"),
}


@pytest.mark.parametrize("operation", FAULTS)
def test_any_other_wrong_operation_refuses_the_model_and_says_what_to_do(
    operation: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, name, fault, case = FAULTS[operation]
    folder = tiny("qwen3")
    with monkeypatch.context() as patch:
        plant(patch, where, name, fault)
        with pytest.raises(ModelLoadError) as raised:
            load(folder)
    said = str(raised.value)
    assert f"wrong results on this machine: {case}" in said or f"; {case}" in said
    assert f"mlx {mx.__version__}" in said and "Install another version of mlx" in said
    assert not raised.value.transient and not cache.exists(), "a refusal is not remembered"
    load(folder)


def quantized(folder: Path) -> Path:
    """A model with weights of 4 bits."""
    import mlx_lm.utils

    model, tokenizer, config = mlx_lm.utils.load(str(tiny("qwen3")), return_config=True)
    model, config = mlx_lm.utils.quantize_model(model, config, 32, 4)
    mlx_lm.utils.save(folder, tiny("qwen3"), model, tokenizer, config)
    return folder


def test_wrong_quantized_products_refuse_a_quantized_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = quantized(tmp_path / "quantized")
    plant(monkeypatch, mx, "quantized_matmul", lambda out, x, *args, **o: out if x.shape[-2] < 33 else out * 0)
    with pytest.raises(ModelLoadError, match=r"quantized products \(prompt of 33 rows, prompt of 64 rows, prompt of"):
        load(folder)
    load()


def test_wrong_products_of_quantized_keys_refuse_only_models_that_have_such(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny("qwen3", head_dim=32)
    right = mx.quantized_matmul

    def spoiled(*args: Any, transpose: bool = True, **options: Any) -> mx.array:
        out = right(*args, transpose=transpose, **options)
        return out if transpose or args[0].shape[-1] == 5 else out * 0  # models are tried with five tokens

    monkeypatch.setattr(mx, "quantized_matmul", spoiled)
    with pytest.raises(ModelLoadError, match=r"products with quantized keys and values .*=False.* Leave kv_bits out"):
        load(folder, kv_bits=8, kv_group_size=32)
    load(folder)


def test_a_device_whose_plain_attention_is_wrong_as_well_refuses_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, mx.fast, "scaled_dot_product_attention", zeros_for_one_query)
    plant(monkeypatch, mx, "softmax", half_zeros)
    with pytest.raises(ModelLoadError, match=r"attention \(1 query x 40 keys, equal rows, "):
        load()


# -- what is tested, and what is remembered --------------------------------------------------------------------------


def test_a_verdict_is_remembered_by_model_shape_and_machine(
    tested: list[Shape], monkeypatch: pytest.MonkeyPatch
) -> None:
    load()
    load()
    assert len(tested) == 1, "the second model has the same shape"
    load(tiny("qwen3", head_dim=24))
    assert [shape.head_dim for shape in tested] == [16, 24]
    load(tiny("qwen3", num_key_value_heads=4))
    assert [shape.kv_heads for shape in tested] == [2, 2, 4]
    for number, machine in enumerate(("M1, 24F74, mlx 1", "M2, 24F74, mlx 1", "M1, 24G84, mlx 1", "M1, 24F74, mlx 2")):
        monkeypatch.setattr(device, "identity", lambda machine=machine: machine)
        load()
        load()
        assert len(tested) == 4 + number


def test_unsafe_sizes_are_remembered_and_logged_for_each_model(
    tested: list[Shape], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plant(monkeypatch, mx.fast, "scaled_dot_product_attention", zeros_for_one_query)
    with caplog.at_level(logging.WARNING, "localai_shim"):
        assert [load().applied, load().applied] == [{PLAIN: 2}] * 2
    assert len(tested) == 1 and len(caplog.records) == 2


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"unsafe": [[1, 40]]}', '{"unsafe": [[2, 2, true]]}', "\x00"])
def test_a_damaged_verdict_is_tested_afresh(content: str, cache: Path, tested: list[Shape]) -> None:
    load()
    [note] = cache.iterdir()
    whole = note.read_text()
    note.write_text(content)
    load()
    assert len(tested) == 2 and note.read_text() == whole and [*cache.iterdir()] == [note]


def test_a_folder_that_cannot_be_written_to_is_done_without(tmp_path: Path, tested: list[Shape]) -> None:
    (tmp_path / "localai_shim").write_text("a file where the folder would be")
    load()
    load()
    assert len(tested) == 2


def test_a_machine_without_a_gpu_is_not_tested(tested: list[Shape], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "has_gpu", lambda: False)
    load()
    assert tested == []


def test_the_shape_is_that_of_the_model_s_layers(tmp_path: Path, tested: list[Shape]) -> None:
    load(make_half_model(tmp_path / "half", "qwen3"))
    load(quantized(tmp_path / "quantized"))
    load(tiny("qwen3", head_dim=32), kv_bits=4, kv_group_size=32)
    load(tiny_vision("qwen2_5_vl"), text_only=False)
    half, packed, keys, vision = tested
    assert (half.dtype, half.bits, half.head_dim, half.heads, half.kv_heads) == ("bfloat16", None, 16, 4, 2)
    assert half.vocabulary == 400 and half.rope_dims == 16 and not half.sinks
    assert (packed.dtype, packed.bits, packed.group_size, packed.mode) == ("float32", 4, 32, "affine")
    assert (keys.kv_bits, keys.kv_group_size, keys.head_dim) == (4, 32, 32)
    assert vision.heads and vision.dtype == "float32"


def test_each_kind_of_weights_has_a_shape() -> None:
    class Layers(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.few, self.wide = (nn.Linear(width, 8).to_quantized(32, 4) for width in (64, 128))
            self.plain, self.fine = nn.Linear(96, 8), nn.Linear(64, 8).to_quantized(64, 8)

    found = {(shape.bits, shape.group_size, shape.inputs) for shape in shapes(Layers(), [], 100)}
    assert found == {(4, 32, 128), (None, 64, 96), (8, 64, 64)}


def test_a_model_without_attention_is_tested_for_the_rest() -> None:
    assert unsafe_sizes([Shape(64, 1, 1, "float32", 100)], []) == frozenset[Size]()

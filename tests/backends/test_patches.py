"""Functions of ours that one model's layers call in the place of upstream's."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import pytest
from mlx_lm.models import base, qwen3

from localai_shim.backends.patches import (
    Function,
    Patch,
    attention_patches,
    class_like,
    fingerprint,
    replace,
    replaced,
    with_names,
)
from tests.tiny import tiny

ATTENTION = "scaled_dot_product_attention"


def load() -> Any:
    return mlx_lm.load(str(tiny("qwen3")))[0]


def zeros(upstream: Function) -> Function:
    return lambda queries, *args, **kwargs: mx.zeros_like(queries)


def logits(model: Any) -> mx.array:
    return model(mx.array([[5, 6, 7]]))  # type: ignore[no-any-return]


def test_a_method_that_this_package_has_overridden_stays() -> None:
    def call(self: nn.Module, x: mx.array, *args: object) -> mx.array:
        return x

    call.__module__ = "localai_shim.models.mine"
    model = load()
    layer = model.layers[0].self_attn
    layer.__class__ = class_like(type(layer), {"__call__": call, "__module__": call.__module__})
    pair = base.scaled_dot_product_attention, zeros(base.scaled_dot_product_attention)
    assert replace(model, (pair,)) == len(model.layers) - 1
    assert type(layer).__call__ is call


def test_a_model_s_layers_call_ours_and_another_model_s_do_not() -> None:
    ours, theirs = load(), load()
    before = logits(theirs)
    assert replace(ours, ((base.scaled_dot_product_attention, zeros(base.scaled_dot_product_attention)),)) == len(
        ours.layers
    )
    assert not mx.allclose(logits(ours), before)
    assert mx.array_equal(logits(theirs), before)
    assert qwen3.scaled_dot_product_attention is base.scaled_dot_product_attention
    assert type(theirs.layers[0].self_attn) is qwen3.Attention


def test_a_layer_keeps_its_name_and_is_one_of_upstream_s_class() -> None:
    model = load()
    replace(model, ((base.scaled_dot_product_attention, zeros(base.scaled_dot_product_attention)),))
    kind = type(model.layers[0].self_attn)
    assert issubclass(kind, qwen3.Attention) and kind is not qwen3.Attention
    assert (kind.__name__, kind.__qualname__, kind.__module__) == ("Attention", "Attention", qwen3.__name__)


def test_functions_that_a_layer_calls_in_its_module_find_ours_too() -> None:
    code = "def helper(*args, **kwargs): return scaled_dot_product_attention(*args, **kwargs)\n"
    code += "def call(self, x, mask=None, cache=None): return helper(x, x, x, cache, scale=1.0, mask=mask)\n"
    scope = vars(qwen3)
    exec(code, scope)
    try:
        kind = type("Attention", (qwen3.Attention,), {"__call__": scope["call"], "__module__": qwen3.__name__})
        model = load()
        model.layers[0].self_attn.__class__ = kind
        assert replace(model, ((base.scaled_dot_product_attention, zeros(mx.array)),)) == len(model.layers)
        assert not mx.any(model.layers[0].self_attn(mx.ones((1, 1, 2, 4))))
    finally:
        del scope["helper"], scope["call"]


def test_code_that_a_checkpoint_brings_calls_ours_too() -> None:
    module = ModuleType("custom_model")
    module.scaled_dot_product_attention = base.scaled_dot_product_attention  # type: ignore[attr-defined]
    exec("def call(self, x): return scaled_dot_product_attention(x, x, x, None, scale=1.0, mask=None)", vars(module))
    kind = type("Attention", (nn.Module,), {"__call__": vars(module)["call"], "__module__": module.__name__})
    layer: Any = kind()
    assert replace(layer, ((base.scaled_dot_product_attention, zeros(base.scaled_dot_product_attention)),)) == 1
    assert not mx.any(layer(mx.ones((1, 1, 2, 4))))


def test_several_replacements_add_up() -> None:
    model, calls = load(), list[str]()

    def noting(name: str, function: Any) -> Any:
        return lambda *args, **kwargs: calls.append(name) or function(*args, **kwargs)

    replace(model, ((base.scaled_dot_product_attention, noting("attention", base.scaled_dot_product_attention)),))
    replace(model, ((qwen3.swiglu, noting("swiglu", qwen3.swiglu)),))
    before = logits(load())
    assert mx.array_equal(logits(model), before)
    assert calls == ["attention", "swiglu"] * len(model.layers)


def test_a_module_s_names_are_ours_where_code_reads_them() -> None:
    model = load()
    assert replace(model, ((mx, with_names(mx, something_new=1)),)) == 0, "nobody reads that"
    assert with_names(mx, something_new=1).array is mx.array


@pytest.mark.parametrize("patch", attention_patches(zeros), ids=lambda patch: patch.module)
def test_patches_are_written_for_the_versions_that_are_installed(patch: Patch) -> None:
    """A failure: read what upstream has changed, adapt the form, then its fingerprint."""
    __import__(patch.module)
    assert len(patch.replaced()) == 1


def test_where_upstream_changed_its_own_code_runs_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def scaled_dot_product_attention(queries: Any, keys: Any, values: Any, cache: Any, scale: float) -> Any:
        return queries

    monkeypatch.setattr(base, ATTENTION, scaled_dot_product_attention)
    caplog.set_level(logging.INFO, logger="localai_shim")
    [patch, _] = attention_patches(zeros)
    for _ in range(2):
        assert replaced([patch]) == ()
    [record] = caplog.records
    assert "mlx_lm.models.base.scaled_dot_product_attention is called as upstream has it" in record.getMessage()


def written(folder: Path, name: str, source: str) -> Any:
    (folder / f"{name}.py").write_text(source)
    spec: Any = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.attend


def test_a_fingerprint_changes_with_arguments_and_code_and_not_with_lines(tmp_path: Path) -> None:
    one = fingerprint(written(tmp_path, "one", "def attend(a, b):\n    return a + b\n"))
    assert one == fingerprint(written(tmp_path, "lines", "def attend(\n    a, b\n):\n    return a +  b\n"))
    assert one != fingerprint(written(tmp_path, "code", "def attend(a, b):\n    return a - b\n"))
    assert one != fingerprint(written(tmp_path, "arguments", "def attend(a, b, c):\n    return a + b\n"))
    assert fingerprint(mx.add) == "none"

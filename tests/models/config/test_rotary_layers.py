"""A model that would not rotate as its config says is refused, and none that does is."""

from __future__ import annotations

import copy
import importlib
import logging
from typing import Any

import pytest

from localai_shim.models.config.rotary_layers import check_rotation
from localai_shim.models.config.translation import translated
from localai_shim.types import ModelLoadError
from tests import vlm_architectures
from tests.architectures import architectures, config_of

LINEAR = {"type": "linear", "rope_type": "linear", "factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
BASE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "layer_norm_eps": 1e-6,
    "sliding_window": 32,
    "sliding_window_pattern": 2,
    "tie_word_embeddings": False,
    "attention_bias": False,
}
EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
}

CONVOLUTIONS: dict[str, Any] = {
    "layer_types": ["full_attention"] * 4,
    "norm_eps": 1e-5,
    "conv_bias": False,
    "conv_L_cache": 3,
    "block_dim": 64,
    "block_ff_dim": 128,
    "block_multiple_of": 32,
    "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": False,
}


def check(name: str, **settings: Any) -> None:
    """Make a model of mlx-lm with a config, and check it."""
    module = importlib.import_module(f"mlx_lm.models.{name}")
    config = translated({**BASE, "model_type": name, **copy.deepcopy(settings)}, module)
    check_rotation(module.Model(module.ModelArgs.from_dict(copy.deepcopy(config))), config)


@pytest.mark.parametrize("name", ["llama", "qwen3", "olmo3", "gemma3_text", "smollm3"])
@pytest.mark.parametrize("scaling", [None, LINEAR, YARN])
def test_what_a_class_computes_is_fine(name: str, scaling: dict[str, Any] | None) -> None:
    check(name, rope_theta=5e5, rope_scaling=scaling)


@pytest.mark.parametrize(
    ("name", "more"), [("qwen3_moe", EXPERTS), ("gemma", {}), ("cohere", {}), ("lfm2", CONVOLUTIONS)]
)
@pytest.mark.parametrize("new", [False, True])
def test_scaling_that_a_class_does_not_compute_is_refused(name: str, more: dict[str, Any], new: bool) -> None:
    settings = {"rope_parameters": {"rope_theta": 5e5, **YARN}} if new else {"rope_theta": 5e5, "rope_scaling": YARN}
    with pytest.raises(ModelLoadError, match=rf"'{name}' does not compute: 'yarn' scaling is not computed"):
        check(name, **more, **settings)
    check(name, **more, rope_theta=5e5)
    check(name, **more, rope_theta=5e5, rope_scaling={**YARN, "factor": 1.0})


def test_a_part_of_a_head_that_a_class_does_not_know_is_refused() -> None:
    said = "partial_rotary_factor is 0.5, but 16 of 16 values of a head are rotated"
    with pytest.raises(ModelLoadError, match=said):
        check("glm", partial_rotary_factor=0.5)
    with pytest.raises(ModelLoadError, match=said):
        check("llama", rope_parameters={"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.5})
    check("glm", partial_rotary_factor=1.0)
    check("phi", partial_rotary_factor=0.5)


def test_a_base_that_a_class_does_not_read_is_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"rope_theta is 500000\.0, but 10000 is computed"):
        check("qwen", rope_theta=5e5, kv_channels=16, layer_norm_epsilon=1e-6, no_bias=True)
    check("qwen", rope_theta=1e4, kv_channels=16, layer_norm_epsilon=1e-6, no_bias=True)


def test_a_scaling_for_long_prompts_that_a_class_does_not_know_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    dynamic = {"type": "dynamic", "factor": 2.0}
    with caplog.at_level(logging.WARNING, "localai_shim"):
        check("llama", rope_theta=1e4, rope_scaling=dynamic)
        assert caplog.text == ""
        check("gemma", rope_theta=1e4, rope_scaling=dynamic)
    assert "'dynamic' has no effect: prompts beyond the usual context are misread" in caplog.text


def test_each_kind_of_layer_has_its_own_base() -> None:
    types = ["sliding_attention", "full_attention"] * 2
    settings = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {**LINEAR, "rope_theta": 1e6},
    }
    check("gemma3_text", layer_types=types, rope_parameters=settings)
    check("olmo3", layer_types=types, rope_parameters={**settings, "full_attention": {**LINEAR, "rope_theta": 1e4}})
    with pytest.raises(ModelLoadError, match=r"rope_theta is 10000\.0, but 1e\+06 is computed"):
        check("olmo3", layer_types=types, rope_parameters=settings)
    scaled = {**settings, "sliding_attention": {**LINEAR, "rope_theta": 1e4}}
    with pytest.raises(ModelLoadError, match="'linear' scaling is not computed"):
        check("gemma3_text", layer_types=types, rope_parameters=scaled)


NOT_THEIR_CONFIGS = {"gemma4", "gemma4_text", "phi3small"}
"""Their classes have other names, beside which the tests' own configs have `rope_theta`."""


@pytest.mark.parametrize("name", [name for name in architectures() if name not in NOT_THEIR_CONFIGS | {"olmo"}])
def test_no_architecture_is_refused_with_its_own_settings(name: str) -> None:
    config = copy.deepcopy(config_of(name))
    inner = config.get("text_config", config)
    inner.pop("qk_rope_head_dim" if "kv_lora_rank" not in inner else "", None)
    module = importlib.import_module(f"mlx_lm.models.{name}")
    made = translated(config, module)
    check_rotation(module.Model(module.ModelArgs.from_dict(copy.deepcopy(made))), made)


@pytest.mark.parametrize("name", ["glm4v", "qwen2_5_vl", "qwen3_5", "gemma3", "llama4", "paddleocr_vl", "molmo"])
def test_no_language_model_of_mlx_vlm_is_refused_with_its_own_settings(name: str) -> None:
    model = vlm_architectures.make(name, rope_theta=3e5, rope_global_base_freq=3e5)
    check_rotation(model, {"model_type": name, "rope_theta": 3e5 if name != "qwen3_5" else 1e4})
    with pytest.raises(ModelLoadError, match="rope_theta is 77"):
        check_rotation(model, {"model_type": name, "text_config": {"rope_theta": 77.0}})

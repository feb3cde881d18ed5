"""What transformers 5 writes otherwise beside RoPE: patterns of layers, renamed keys, numbers that JSON lacks."""

from __future__ import annotations

import copy
import json
import logging
import math
from typing import Any

import pytest
from mlx_lm.models import (
    cohere2,
    exaone4,
    gemma3,
    gemma3_text,
    gemma4_text,
    granitemoehybrid,
    mellum,
    qwen3_moe,
    qwen3_next,
)
from mlx_vlm.models import (
    deepseek_v4,
    flint,
    gemma4,
    gemma4_unified,
    glm_ocr,
    inkling,
    kimi_k25,
    llama4,
    modernbert,
    nemotron_h_nano_omni,
    qwen2_vl,
    qwen3_5,
    qwen3_5_moe_text,
    qwen3_5_text,
    step3p7,
)
from transformers import CONFIG_MAPPING

from localai_shim.models.config.translation import translated, without_unread
from localai_shim.types import ModelLoadError
from tests.saved_configs import saved

SLIDING, FULL = "sliding_attention", "full_attention"


@pytest.mark.parametrize("module", [gemma3_text, cohere2])
@pytest.mark.parametrize("every", [1, 2, 3, 6])
def test_a_pattern_of_layers_is_read_of_their_list(module: Any, every: int) -> None:
    types = [SLIDING if (i + 1) % every else FULL for i in range(12)]
    assert translated({"layer_types": types}, module)["sliding_window_pattern"] == every


def test_a_pattern_of_layers_inside_another_config_is_read_too() -> None:
    made = translated({"text_config": {"layer_types": [SLIDING, FULL] * 4}}, gemma3)
    assert made["text_config"]["sliding_window_pattern"] == 2


def test_linear_layers_have_a_pattern() -> None:
    types = ["linear_attention", "linear_attention", FULL] * 2
    assert translated({"layer_types": types}, qwen3_next)["full_attention_interval"] == 3
    assert translated({"text_config": {"layer_types": types}}, qwen3_5)["text_config"]["full_attention_interval"] == 3


def test_full_attention_comes_first_in_an_encoder() -> None:
    types = [FULL, SLIDING, SLIDING, SLIDING] * 2
    assert translated({"layer_types": types}, modernbert)["global_attn_every_n_layers"] == 4


def test_a_class_may_read_letters() -> None:
    types = [SLIDING, SLIDING, SLIDING, FULL] * 2
    for given in ({}, {"sliding_window_pattern": 4}, {"sliding_window_pattern": "LLLG"}):
        pattern = translated({"layer_types": types, **given}, exaone4)["sliding_window_pattern"]
        assert [pattern[i % len(pattern)] for i in range(8)] == list("LLLGLLLG")
    assert translated({"layer_types": [FULL] * 8}, exaone4)["sliding_window_pattern"] is None


def test_layers_in_no_pattern_are_refused_by_a_class_that_reads_one() -> None:
    types = [SLIDING, FULL, FULL, SLIDING]
    with pytest.raises(ModelLoadError, match=r"config\.json: layer_types .* sliding_window_pattern"):
        translated({"layer_types": types}, gemma3_text)
    assert translated({"layer_types": types}, mellum)["layer_types"] == types


def test_a_pattern_that_contradicts_the_list_is_logged_and_the_list_counts(caplog: pytest.LogCaptureFixture) -> None:
    types = [SLIDING, FULL] * 3
    with caplog.at_level(logging.WARNING, "localai_shim"):
        made = translated({"layer_types": types, "sliding_window_pattern": 6}, gemma3_text)
    assert made["sliding_window_pattern"] == 2
    assert "sliding_window_pattern is 6, but layer_types has" in caplog.text
    expected = CONFIG_MAPPING["gemma3_text"](layer_types=types, sliding_window_pattern=6, num_hidden_layers=6)
    assert expected.layer_types == types


def test_a_renamed_key_has_its_old_name_too() -> None:
    new = saved({"model_type": "qwen3_moe", "num_experts": 6})
    assert "num_experts" not in new and new["num_local_experts"] == 6
    assert translated(new, qwen3_moe)["num_experts"] == 6


def test_a_key_under_both_names_with_two_values_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    config = {"model_type": "qwen3_moe", "num_experts": 4, "num_local_experts": 8}
    assert translated(config, qwen3_moe)["num_experts"] == 4
    assert "num_experts is 4, but num_local_experts is 8; the first is used" in caplog.text


def test_renamed_kinds_of_layers_have_their_old_names() -> None:
    new = saved({"model_type": "granitemoehybrid", "num_hidden_layers": 2, "layer_types": ["mamba", "attention"]})
    assert new["layer_types"] == ["linear_attention", FULL]
    assert translated(new, granitemoehybrid)["layer_types"] == ["mamba", "attention"]


def test_numbers_that_json_lacks_are_numbers() -> None:
    written = {"time_step_limit": [0.0, {"__float__": "Infinity"}], "text_config": {"x": {"__float__": "NaN"}}}
    made = translated(written, None)
    assert made["time_step_limit"] == [0.0, math.inf]
    assert math.isnan(made["text_config"]["x"])


def test_settings_of_a_language_model_stand_where_a_class_looks_for_them() -> None:
    new = saved({"model_type": "qwen2_vl", "text_config": {"hidden_size": 40, "rope_theta": 5e5}})
    assert "hidden_size" not in new
    made = translated(new, qwen2_vl)
    assert (made["hidden_size"], made["rope_theta"], made["model_type"]) == (40, 5e5, "qwen2_vl")


def test_a_class_that_takes_no_other_keys_gets_none() -> None:
    new = saved({"model_type": "glm_ocr"})
    assert "rope_parameters" in new["vision_config"]
    made = without_unread(translated(new, glm_ocr), glm_ocr)
    arguments = glm_ocr.ModelConfig.from_dict(made)
    assert arguments.text_config.rope_theta == new["text_config"]["rope_parameters"]["rope_theta"]


def test_a_module_that_is_not_upstreams_gets_every_name_of_a_new_config() -> None:
    made = translated({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, None)
    assert made["rope_theta"] == made["rotary_emb_base"] == 5e5
    assert translated({"rope_theta": 5e5}, None) == {"rope_theta": 5e5}


def test_the_config_that_is_given_stays_as_it_is() -> None:
    config = {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}, "layer_types": [SLIDING, FULL]}
    before = copy.deepcopy(config)
    made = translated(config, gemma3_text)
    made["rope_parameters"]["rope_theta"] = 1.0
    made["layer_types"].pop()
    assert config == before and json.dumps(config)


def test_sizes_of_gemma_4s_heads_are_read_of_the_layers() -> None:
    types = [SLIDING, SLIDING, FULL] * 2
    old = {"num_hidden_layers": 6, "layer_types": types, "head_dim": 16, "global_head_dim": 32}
    old |= {"attention_k_eq_v": True, "num_key_value_heads": 4, "num_global_key_value_heads": 2}
    new = saved({"model_type": "gemma4_text", **old})
    assert "global_head_dim" not in new and "per_layer_config" in new
    made = translated(new, gemma4_text)
    assert (made["global_head_dim"], made["num_global_key_value_heads"]) == (32, 2)
    assert made["per_layer_config"] is None
    inner = translated({"model_type": "gemma4", "text_config": new}, gemma4)["text_config"]
    assert inner["global_head_dim"] == 32


@pytest.mark.parametrize(
    "by_layer",
    [{"0": {"head_dim": 32}}, {"2": {"head_dim": 32}, "5": {"head_dim": 64}}, {"2": {"x": 1}, "5": {"x": 1}}],
)
def test_sizes_that_no_class_reads_stay_to_be_refused(by_layer: Any) -> None:
    config = {"model_type": "gemma4_text", "layer_types": [SLIDING, SLIDING, FULL] * 2, "per_layer_config": by_layer}
    assert translated(config, gemma4_text)["per_layer_config"] == by_layer


@pytest.mark.parametrize("module", [qwen3_5_text, qwen3_5_moe_text])
def test_a_language_model_of_qwen_3_5_alone_has_the_settings_that_its_class_requires(module: Any) -> None:
    new = saved({"model_type": module.__name__.rpartition(".")[2]})
    assert "mrope_section" not in new["rope_parameters"]
    arguments = module.ModelConfig.from_dict(translated(new, module))
    assert arguments.rope_parameters["mrope_section"] == [11, 11, 10]
    assert arguments.rope_parameters["rope_theta"] == new["rope_parameters"]["rope_theta"]


def test_layers_of_flint_have_rope_in_sliding_windows_alone() -> None:
    types = ["full_attention", "sliding_attention", "full_attention"]
    made = translated({"model_type": "flint", "layer_types": types}, flint)
    assert made["no_rope_layer_indices"] == [0, 2]
    assert translated({**made, "no_rope_layer_indices": [1]}, flint)["no_rope_layer_indices"] == [1]


def test_an_encoder_of_llama_4_has_a_setting_that_is_required_and_not_used() -> None:
    config = {"model_type": "llama4", "vision_config": {"model_type": "llama4_vision_model"}}
    assert translated(config, llama4)["vision_config"]["vision_feature_layer"] == -1


def test_layers_of_deepseek_v4_have_the_ratios_and_experts_of_their_kinds() -> None:
    rates = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    config = {
        "model_type": "deepseek_v4",
        "compress_rates": rates,
        "layer_types": ["sliding_attention", *rates],
        "mlp_layer_types": ["hash_moe", "moe", "moe"],
    }
    made = translated(config, deepseek_v4)
    assert made["compress_ratios"] == [0, 4, 128] and made["num_hash_layers"] == 1


def test_layers_of_step_have_the_heads_experts_and_rope_of_their_kinds() -> None:
    text = {
        "model_type": "step3p5",
        "layer_types": ["sliding_attention", "full_attention"],
        "mlp_layer_types": ["dense", "sparse"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_sliding_attention_heads": 8,
        "per_layer_config": {"0": {"num_attention_heads": 8}},
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0},
        },
    }
    made = translated({"model_type": "step3p7", "text_config": text}, step3p7)["text_config"]
    assert made["attention_other_setting"] == {"num_attention_heads": 8, "num_attention_groups": 2}
    assert made["moe_layers_enum"] == [1] and made["rope_theta"] == [500.0, 5000.0]
    assert made["yarn_only_types"] == ["full_attention"] and made["use_head_wise_attn_gate"]
    assert made["per_layer_config"] is None


def test_widths_of_inklings_mlps_have_the_names_of_its_authors() -> None:
    text = {"model_type": "inkling_text", "intermediate_size": 96, "moe_intermediate_size": 32, "conv_kernel_size": 4}
    made = translated({"model_type": "inkling_mm_model", "text_config": text}, inkling)["text_config"]
    assert (made["intermediate_size"], made["dense_intermediate_size"], made["sconv_kernel_size"]) == (32, 96, 4)
    assert translated({"text_config": made}, inkling)["text_config"]["intermediate_size"] == 32


def test_sizes_of_kimis_encoder_have_the_names_of_its_authors() -> None:
    vision = {"model_type": "kimi_k25_vision", "num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 2}
    made = translated({"model_type": "kimi_k25", "vision_config": {**vision, "pos_emb_height": 4}}, kimi_k25)
    assert made["vision_config"]["model_type"] == "moonvit" and made["vision_config"]["init_pos_emb_height"] == 4
    assert [made["vision_config"][key] for key in ("depth", "embed_dim", "num_heads")] == [3, 32, 2]


def test_the_size_of_gemma_4_unifieds_patches_follows_from_others() -> None:
    new = saved({"model_type": "gemma4_unified", "vision_config": {"patch_size": 14, "pooling_kernel_size": 2}})
    assert "model_patch_size" not in new["vision_config"]
    assert translated(new, gemma4_unified)["vision_config"]["model_patch_size"] == 28


def test_new_names_of_nemotrons_settings_are_read() -> None:
    vision = {"num_cls_tokens": 3, "num_registers": 7, "max_img_size": 224, "video_temporal_patch_size": 2}
    new = saved({"model_type": "nemotron_h_omni", "image_token_id": 7, "vision_config": vision})
    made = translated(new, nemotron_h_nano_omni)
    assert made["img_context_token_id"] == 7
    assert made["ps_version"] == "v2"  # which transformers' code has
    arguments = nemotron_h_nano_omni.ModelConfig.from_dict(made)
    encoder = nemotron_h_nano_omni.VisionModel(arguments.vision_config)
    patches = encoder.radio_model.model.patch_generator
    assert (patches.num_cls_tokens, patches.num_registers, patches.num_rows) == (3, 7, 224 // 16)
    assert arguments.vision_config.intermediate_size == 5120

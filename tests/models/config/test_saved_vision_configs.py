"""mlx-vlm's classes read the same RoPE settings from a config as transformers 4 wrote it and as transformers 5 does."""

from __future__ import annotations

import copy
import dataclasses
import json
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import mlx_vlm.models
import pytest
from mlx_vlm.utils import MODEL_REMAPPING, get_model_and_args, update_module_configs

from localai_shim.models.config.translation import translated
from tests.architectures import COMMON
from tests.saved_configs import Config, is_known, saved, with_numbers

PARTS = ("text", "vision", "perceiver", "projector", "audio")
ROPE = re.compile(r"rope|rotary|theta|base_freq|sliding_window_pattern|full_attention_interval|num_.*experts")
THETA, LOCAL, PARTIAL = 300.0, 70.0, 0.5
BY_LAYER = {
    "deepseek_v4": ("rope_theta", "compress_rope_theta"),
    "gemma3": ("rope_theta", "rope_local_base_freq"),
    "modernbert": ("global_rope_theta", "local_rope_theta"),
    "olmo3": ("rope_theta", "rope_theta"),
}
"""Names of before for what transformers 5 writes by kind of layer: for full attention, and for sliding windows."""
NEVER_OLD = {
    *("cohere_compass", "diffusion_gemma", "embedding_gemma2", "flint", "gemma4", "gemma4_text"),
    *("gemma4_unified", "glm5_next", "glm_moe_dsa", "glm_ocr", "laguna", "mellum", "mimo_v2_flash"),
    *("minicpmv4_6", "minicpmv4_7", "ministral3", "muse_glimmer", "muse_spark", "openai_privacy_filter"),
    *("qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen4_exp", "step3p5", "step3p7"),
}
"""Their configs have had `rope_parameters` from the first, or other keys that no class reads in both forms."""
WITHOUT = {
    *("bert", "dbrx", "dinov2", "florence2", "gpt2", "gpt_bigcode", "inkling", "jamba", "kimi_linear"),
    *("lfm2_moe", "mamba", "mamba2", "mistral4", "nemotron_h", "nemotron_h_nano_omni", "pixtral"),
    *("pp_doclayout_v3", "rt_detr_v2", "sapiens2", "siglip"),
}
"""transformers writes no RoPE settings or no layers of them, or mlx-vlm has no arguments."""
NAMES = {"gpt_neox": ("rotary_emb_base", "rotary_pct")}


def old_form(config: Config, kind: str) -> Config:
    """A config of before transformers 5."""
    made = dict(config)
    for key, value in config.items():
        if isinstance(value, dict) and key.endswith("_config"):
            made[key] = old_form(value, kind)
    settings = made.pop("rope_parameters", None)
    if not settings:
        return made
    theta, partial = NAMES.get(kind, ("rope_theta", "partial_rotary_factor"))
    if "full_attention" in settings or "main" in settings:
        names = next(names for name, names in BY_LAYER.items() if kind.startswith(name))
        return {**made, names[1]: LOCAL, names[0]: THETA}
    made[theta] = THETA
    if "partial_rotary_factor" in settings or kind == "solar_open":
        made[partial] = PARTIAL
    if "mrope_section" in settings:
        made["rope_scaling"] = {"type": "default", "mrope_section": settings["mrope_section"]}
    elif settings["rope_type"] not in ("default", "axial"):
        made["rope_scaling"] = {k: v for k, v in settings.items() if k not in ("rope_theta", "partial_rotary_factor")}
    return made


def kinds() -> Iterator[tuple[str, str]]:
    """(mlx-vlm's package, model_type) of all that transformers has a class for."""
    packages = {each.name for each in pkgutil.iter_modules(mlx_vlm.models.__path__) if each.ispkg}
    named = {(name, name) for name in packages} | {(package, kind) for kind, package in MODEL_REMAPPING.items()}
    known = packages - NEVER_OLD - WITHOUT
    return ((package, kind) for package, kind in sorted(named) if package in known and is_known(kind))


def built(module: ModuleType, config: Config) -> Any:
    """The arguments that mlx-vlm's loader makes, with something for what only its own converter writes."""
    config = copy.deepcopy(config)
    fill(module, "Model", config)
    for part in PARTS:
        config.setdefault(f"{part}_config", {})
    made = module.ModelConfig.from_dict(config)
    return update_module_configs(made, module, config, PARTS)


def fill(module: ModuleType, name: str, config: Config) -> None:
    kind = getattr(module, f"{name}Config", None)
    for field in dataclasses.fields(kind) if kind is not None else ():
        lacks = field.default is field.default_factory is dataclasses.MISSING and config.get(field.name) is None
        if lacks and (field.name == "rotary_dim" or not ROPE.search(field.name)):
            small = {} if field.name.endswith("_config") else {"<class 'str'>": ""}.get(str(field.type), 1)
            config[field.name] = COMMON.get(field.name, small)
    if name == "Text":
        config.setdefault("eos_token_id", 0)
    for key, value in config.items():
        if isinstance(value, dict) and key.endswith("_config"):
            fill(module, key.removesuffix("_config").title(), value)


def settings_of(arguments: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """What arguments say of RoPE, and by which name."""
    for field in dataclasses.fields(arguments):
        value = getattr(arguments, field.name, None)
        if dataclasses.is_dataclass(value):
            yield from settings_of(value, f"{name}{field.name}.")
        elif ROPE.search(field.name) and field.name != "rope_parameters":
            yield f"{name}{field.name}", value


@pytest.mark.parametrize(("package", "kind"), list(kinds()))
def test_arguments_of_mlx_vlm_say_the_same_with_either_config(package: str, kind: str) -> None:
    old = old_form(with_numbers(saved({"model_type": kind})), kind)
    new = saved(old)
    assert "rope_parameters" in json.dumps(new)
    module, _ = get_model_and_args(new)
    made = [dict(settings_of(built(module, translated(config, module)))) for config in (old, new)]
    assert made[0] == made[1]
    assert THETA in made[1].values()

"""A config means the same as transformers 4 wrote it and as transformers 5 does, in each of upstream's classes."""

from __future__ import annotations

import copy
import dataclasses
import importlib
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.utils import MODEL_REMAPPING

from localai_shim.models.config.translation import translated
from tests.architectures import architectures, config_of, randomise
from tests.saved_configs import Config, completed, is_known, saved

TOKENS = mx.array([[5, 9, 13, 21, 8, 3, 40, 7, 11, 2, 6, 30, 44, 1, 17, 20]])
ORIGINAL = {"original_max_position_embeddings": 64}
SCALINGS: dict[str, Config | None] = {
    kind: None if kind == "none" else {"type": kind, "rope_type": kind, "factor": 4.0, **numbers}
    for kind, numbers in {
        "none": {},
        "linear": {},
        "yarn": ORIGINAL,
        "llama3": {**ORIGINAL, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        "longrope": {
            **ORIGINAL,
            "short_factor": [1.0] * 8,
            "long_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5],
            "short_mscale": 1.1,
            "long_mscale": 1.2,
        },
    }.items()
}
WITHOUT_LAYER_TYPES = ("falcon_h1", "jamba", "mamba", "mamba2", "nemotron_h", "recurrent_gemma")
"""transformers derives their layers from other keys."""
NEVER_OLD = {
    *("gemma4", "gemma4_text", "glm_moe_dsa", "mellum", "minimax_m3_vl", "ministral3", "mistral3", "mistral4"),
    *("muse_glimmer", "muse_spark", "qwen3_5", "qwen3_5_moe", "step3p5"),
}
"""Their configs have had `rope_parameters` from the first, or other keys that no class reads in both forms."""
READ_BY_LAYER = ("gemma4_text", "laguna", "mellum", "spark2_5")
SCALED_ANYWAY = ("apertus", "gpt_oss")
"""transformers' classes have a scaling of their own for a config without one."""
METAL_ONLY = ("bitnet", "muse_spark")
CHANGES: dict[str, Config] = {
    "granitemoehybrid": {"mamba_d_head": 32},
    "longcat_flash": {"num_hidden_layers": 8, "layer_types": ["full_attention"] * 8},  # two for each of `num_layers`
    "phi3": {"partial_rotary_factor": 1.0},
}


def kinds() -> Iterator[tuple[str, str]]:
    """(mlx-lm's module, model_type) of all that transformers has a class for."""
    named = {(name, name) for name in architectures()} | {(module, kind) for kind, module in MODEL_REMAPPING.items()}
    for module, kind in sorted(named):
        if is_known(kind) and module not in NEVER_OLD | {"olmo"}:
            yield module, kind


def old_config(module: str, kind: str, scaling: Config | None) -> Config:
    """A config of before transformers 5, with numbers that no class has as its own."""
    config = config_of(module)
    inner: Config = config.get("text_config", config)
    fields = set().union(*map(fields_of, classes(module)))
    inner.pop("rope_parameters", None)
    for key in {"partial_rotary_factor", "rotary_pct", "rotary_emb_base"} - fields:
        inner.pop(key, None)
    if module in WITHOUT_LAYER_TYPES:
        inner.pop("layer_types")
    for key in {"rope_theta", "rotary_emb_base"} & inner.keys():
        inner[key] = 300.0
    if "rope_local_base_freq" in inner:
        inner["rope_local_base_freq"] = 70.0
    inner |= {"rope_scaling": copy.deepcopy(scaling), **CHANGES.get(module, {})}
    config["model_type"] = kind
    return config


def classes(name: str) -> list[Any]:
    module = importlib.import_module(f"mlx_lm.models.{name}")
    return [each for each in vars(module).values() if isinstance(each, type) and dataclasses.is_dataclass(each)]


def logits(name: str, config: Config) -> Any:
    """What a model of random weights says, or of which arguments it is made if it cannot run here."""
    module = importlib.import_module(f"mlx_lm.models.{name}")
    mx.random.seed(0)
    arguments = module.ModelArgs.from_dict(config)
    model = module.Model(arguments)
    if name in METAL_ONLY:
        return arguments
    randomise(model)
    return np.array(model(TOKENS).astype(mx.float32))


def same(one: Any, other: Any) -> bool:
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)


@pytest.mark.parametrize(("module", "kind"), list(kinds()))
def test_a_model_of_mlx_lm_answers_alike_with_either_config(module: str, kind: str) -> None:
    compared = []
    for name, scaling in SCALINGS.items():
        if scaling is None and module in SCALED_ANYWAY:
            continue
        try:
            old = completed(old_config(module, kind, scaling))
            new = saved(old)
            answer = logits(module, copy.deepcopy(old))  # as mlx-lm reads it alone
        except Exception:  # a scaling that transformers or mlx-lm does not know
            continue
        for config in (old, new):
            made = logits(module, translated(config, importlib.import_module(f"mlx_lm.models.{module}")))
            assert same(made, answer), name
        compared.append(name)
    assert compared


def readers() -> list[str]:
    """Modules of mlx-lm with a class that reads `rope_parameters`."""
    found = [name for name in architectures() if name != "olmo"]
    return [name for name in found if any("rope_parameters" in fields_of(each) for each in classes(name))]


def fields_of(kind: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize("name", readers())
def test_a_class_that_reads_rope_parameters_reads_them_as_before(name: str) -> None:
    config = copy.deepcopy(config_of(name))
    inner: Config = config.get("text_config", config)
    del inner["rope_theta"], inner["rope_scaling"]
    by_layer: Config = {"full_attention": {}, "sliding_attention": {"partial_rotary_factor": 1.0}}
    settings = by_layer if name in READ_BY_LAYER else inner["rope_parameters"]
    for number, each in enumerate(settings.values() if name in READ_BY_LAYER else [settings], 1):
        each |= {"rope_theta": 300.0 * number, "rope_type": "default"}
    inner["rope_parameters"] = settings
    plain = importlib.import_module(f"mlx_lm.models.{name}")
    alone, ours = logits(name, copy.deepcopy(config)), logits(name, translated(config, plain))
    assert same(alone, ours)
    assert not same(logits(name, config_of(name)), ours)

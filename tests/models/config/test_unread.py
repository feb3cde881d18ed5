"""A key that a model's code does not compute is an error or a log line; ordinary configs are neither."""

from __future__ import annotations

import ast
import copy
import gc
import importlib
import inspect
import json
import logging
import pkgutil
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import mlx_vlm.models
import pytest
from mlx_lm.utils import MODEL_REMAPPING
from mlx_vlm.utils import MODEL_REMAPPING as VISION_REMAPPING
from transformers import CONFIG_MAPPING

from localai_shim.models.config.completion import DERIVED
from localai_shim.models.config.keys import ACTIVATION, CONSTANTS, EPSILON, LONG_PROMPTS, has_no_effect, neutral_of
from localai_shim.models.config.reading import TEXT_PARTS
from localai_shim.models.config.translation import translated
from localai_shim.models.config.unread import check_keys, code_of, read_module
from localai_shim.types import ModelLoadError
from tests import vlm_architectures
from tests.architectures import architectures, config_of
from tests.models.config.published import PUBLISHED
from tests.saved_configs import Config, is_known, with_numbers

BASE: Config = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
EXPERTS: Config = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}


def made(name: str, **settings: Any) -> tuple[Any, Config]:
    """A model of mlx-lm with a config, and that config."""
    module = importlib.import_module(f"mlx_lm.models.{name}")
    config = translated({**BASE, "model_type": name, **copy.deepcopy(settings)}, module)
    return module.Model(module.ModelArgs.from_dict(copy.deepcopy(config))), config


def logged(caplog: pytest.LogCaptureFixture, name: str, **settings: Any) -> list[tuple[int, str]]:
    """Log lines of a check: level and text."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "localai_shim"):
        check_keys(*made(name, **settings))
    return [(record.levelno, record.getMessage()) for record in caplog.records]


WRONG: list[tuple[str, Config, str]] = [
    ("llama", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ("gemma2", {"hidden_activation": "silu", **dict.fromkeys(["query_pre_attn_scalar"], 16)}, "hidden_activation is"),
    ("llama", {"final_logit_softcapping": 30.0}, r"final_logit_softcapping is 30\.0"),
    ("gemma3_text", {"attn_logit_softcapping": 50.0}, r"attn_logit_softcapping is 50\.0"),
    ("qwen3", {"clip_qkv": 8.0}, r"clip_qkv is 8\.0"),
    ("llama", {"embedding_multiplier": 12.0}, r"embedding_multiplier is 12\.0"),
    ("llama", {"logits_scaling": 8.0}, r"logits_scaling is 8\.0"),
    ("llama", {"logit_scale": 0.0625}, r"logit_scale is 0\.0625"),
    ("llama", {"residual_multiplier": 0.2}, r"residual_multiplier is 0\.2"),
    ("llama", {"query_pre_attn_scalar": 256}, "query_pre_attn_scalar is 256"),
    ("qwen2_moe", {**EXPERTS, "norm_topk_prob": True}, "norm_topk_prob is True"),
    ("qwen2_moe", {**EXPERTS, "routed_scaling_factor": 2.5}, r"routed_scaling_factor is 2\.5"),
    ("qwen2_moe", {**EXPERTS, "n_group": 8}, "n_group is 8"),
    ("llama", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
    ("llama", {"no_rope_layers": [1, 0, 1, 0]}, "no_rope_layers is"),
    ("llama", {"no_rope_layers": 4}, "no_rope_layers is"),
    ("llama", {"time_step_limit": [0.0, 0.1]}, "time_step_limit is"),
    ("llama", {"time_step_limit": 0.1}, "time_step_limit is"),
    ("llama", {"per_layer_config": {"1": {"head_dim": 32}}}, "per_layer_config is"),
    ("gpt_oss", {"swiglu_limit": 5.0}, r"swiglu_limit is 5\.0, and 7\.0 is computed"),
]


@pytest.mark.parametrize(("name", "settings", "message"), WRONG, ids=range(len(WRONG)))
def test_a_key_that_makes_all_answers_wrong_is_an_error(name: str, settings: Config, message: str) -> None:
    with pytest.raises(ModelLoadError, match=rf"config\.json has settings that the code of '{name}' .*{message}"):
        check_keys(*made(name, **(config_of(name) if name == "gpt_oss" else {}), **settings))


NEUTRAL: list[tuple[str, Config]] = [
    ("llama", {"hidden_act": "silu"}),
    ("llama", {"hidden_act": "swish"}),
    ("gemma", {"hidden_act": "gelu", "hidden_activation": None}),
    ("qwen3", {"final_logit_softcapping": None, "clip_qkv": None, "attn_logit_softcapping": None}),
    ("llama", {"embedding_multiplier": 1.0, "logits_scaling": 1, "residual_multiplier": 1.0}),
    ("llama", {"query_pre_attn_scalar": 16}),
    ("llama", {"num_experts_per_tok": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5}),  # a dense model
    ("qwen2_moe", {**EXPERTS, "norm_topk_prob": False, "routed_scaling_factor": 1.0, "n_group": 1}),
    ("llama", {"use_bidirectional_attention": None, "no_rope_layers": [1, 1, 1, 1], "per_layer_config": {}}),
    ("llama", {"attention_bias": False, "initializer_range": 0.02, "attention_dropout": 0.1, "use_cache": True}),
    ("llama", {"router_aux_loss_coef": 0.001, "output_router_logits": True, "torch_dtype": "bfloat16"}),
    ("llama", {"time_step_limit": [0.0, float("inf")], "num_nextn_predict_layers": 1, "image_token_id": 7}),
]


@pytest.mark.parametrize(("name", "settings"), NEUTRAL, ids=range(len(NEUTRAL)))
def test_a_value_that_changes_nothing_says_nothing(
    name: str, settings: Config, caplog: pytest.LogCaptureFixture
) -> None:
    assert logged(caplog, name, **settings) == []


def test_a_key_that_changes_long_prompts_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    [(level, text)] = logged(caplog, "llama", attn_temperature_tuning=4, floor_scale=8192)
    assert level == logging.WARNING
    assert "attn_temperature_tuning is 4: answers change beyond 8192 tokens" in text


def test_an_unknown_key_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    [(level, text)] = logged(caplog, "llama", wobble=3, wobble_more=None)
    assert level == logging.INFO
    assert text == "config.json: the code of 'llama' does not read wobble"


def test_the_epsilon_of_a_norm_is_looked_up_in_the_layers(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, "llama", layer_norm_eps=1e-6) == []
    [(level, text)] = logged(caplog, "llama", layer_norm_eps=1e-3)
    assert level == logging.INFO and "layer_norm_eps" in text


def test_a_value_that_the_model_does_not_hold_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    model, config = made("granite", attention_bias=False, mlp_bias=False, **dict.fromkeys(MULTIPLIERS, 2.0))
    with caplog.at_level(logging.WARNING, "localai_shim"):
        check_keys(model, config)
        assert caplog.text == ""
        check_keys(model, {**config, "logits_scaling": 8.0})
    assert "logits_scaling is 8.0, but the model has 2.0" in caplog.text


MULTIPLIERS = ("embedding_multiplier", "attention_multiplier", "logits_scaling", "residual_multiplier")


def test_an_argument_that_the_code_never_reads_does_not_count(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class of arguments declares its fields; only code that reads them computes with them."""
    (tmp_path / "declares.py").write_text(
        "import dataclasses\n"
        "@dataclasses.dataclass\n"
        "class ModelArgs:\n"
        "    softcap: float = 1.0\n"
        "    window: int = 1\n"
        "    scale: float = 1.0\n"
        "    def __post_init__(self):\n"
        "        self.window = self.window or 1\n"
        "def make(args, other):\n"
        "    return getattr(args, 'named', 1), args.read, other.softcap\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("declares")
    names, _ = read_module("declares")
    assert {"window", "named", "read"} <= names
    assert not {"softcap", "scale"} & names
    sys.modules.pop("declares")


@pytest.mark.parametrize("family", PUBLISHED)
def test_configs_as_published_are_quiet(family: str, caplog: pytest.LogCaptureFixture) -> None:
    module, config = PUBLISHED[family]
    model, _ = made(module, **{**config_of(module), **config})
    with caplog.at_level(logging.INFO, "localai_shim"):
        check_keys(model, {"model_type": module, **config})
    assert caplog.text == ""


def test_parts_are_checked_where_they_are_loaded(caplog: pytest.LogCaptureFixture) -> None:
    """mlx-lm's class takes no encoder; mlx-vlm's does."""
    encoder = {"vision_config": {"hidden_act": "swish_cubed", "model_type": "siglip"}}
    config = {**copy.deepcopy(config_of("gemma3")), **encoder}
    module = importlib.import_module("mlx_lm.models.gemma3")
    model = module.Model(module.ModelArgs.from_dict(copy.deepcopy(config)))
    quiet = {"model_type": "gemma3", "text_config": {"hidden_activation": "gelu_pytorch_tanh"}, **encoder}
    check_keys(model, quiet)
    with pytest.raises(ModelLoadError, match=r"text_config\.hidden_activation is 'silu'"):
        check_keys(model, {"model_type": "gemma3", "text_config": {"hidden_activation": "silu"}})


def test_a_language_model_of_mlx_vlm_is_checked_too() -> None:
    model = vlm_architectures.make("qwen2_5_vl")
    check_keys(model, {"model_type": "qwen2_5_vl", "hidden_act": "silu"})
    with pytest.raises(ModelLoadError, match=r"text_config\.final_logit_softcapping is 30\.0"):
        check_keys(model, {"model_type": "qwen2_5_vl", "text_config": {"final_logit_softcapping": 30.0}})


def test_a_key_at_the_top_is_not_held_against_an_encoders_own(caplog: pytest.LogCaptureFixture) -> None:
    """ERNIE's language model has its keys at the top, and no argument for its activation; its encoder has one."""
    package = importlib.import_module("mlx_vlm.models.ernie4_5_moe_vl")
    vision = {"hidden_size": 32, "embed_dim": 32, "depth": 1, "num_heads": 2, "hidden_act": "quick_gelu"}
    text = {"hidden_act": "silu", "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 1, "moe_num_experts": 2}
    config = {"model_type": "ernie4_5_moe_vl", **text, "vision_config": vision}
    arguments = package.ModelConfig.from_dict(copy.deepcopy(config))
    arguments.text_config = package.TextConfig.from_dict({"intermediate_size": 32, **text})
    arguments.vision_config = package.VisionConfig.from_dict(vision)
    model = package.Model(arguments)
    check_keys(model, config)
    assert caplog.text == ""
    check_keys(model, {**config, "vision_config": {**vision, "hidden_act": "silu"}})
    assert "vision_config.hidden_act is 'silu', but the model has 'quick_gelu'" in caplog.text


def is_listed(key: str) -> bool:
    """True if it is known what a key does."""
    names = {name for _, name in CONSTANTS}
    patterns = ACTIVATION.fullmatch(key) or EPSILON.fullmatch(key)
    return bool(patterns or has_no_effect(key) or neutral_of(key) or key in LONG_PROMPTS or key in names)


def keys_of(config: Config, is_part: Callable[[str], bool]) -> Iterator[str]:
    """Keys of a config and of some of its parts."""
    for key, value in config.items():
        if not isinstance(value, dict) or not key.endswith("_config") or key == "per_layer_config":
            yield key
        elif is_part(key):
            yield from keys_of(value, is_part)


def kinds(names: set[str], renamed: dict[str, str]) -> list[tuple[str, str]]:
    named = {(name, name) for name in names} | {(module, kind) for kind, module in renamed.items() if module in names}
    return [(module, kind) for module, kind in sorted(named) if is_known(kind)]


def default_config(kind: str) -> Config:
    return with_numbers(json.loads(CONFIG_MAPPING[kind]().to_json_string(use_diff=False)))


NOT_ITS_KIND = {"olmo", "pixtral"}
"""Modules that import what is not installed; kinds that transformers has an encoder for, and mlx-lm a whole model."""


@pytest.mark.parametrize(("module", "kind"), kinds(set(architectures()) - NOT_ITS_KIND, MODEL_REMAPPING))
def test_every_key_of_transformers_that_mlx_lm_does_not_read_is_listed(module: str, kind: str) -> None:
    """A key that a new release adds has to be put into `keys.py`."""
    plain = importlib.import_module(f"mlx_lm.models.{module}")
    model = plain.Model(plain.ModelArgs.from_dict(copy.deepcopy(config_of(module))))
    code = code_of(model)
    assert code is not None
    config = translated(default_config(kind), plain)
    make = DERIVED["mlx_lm"].get(kind)
    derived = {} if make is None else make(config)  # what the class requires, whether or not it is read
    keys = [key for key in keys_of(config, TEXT_PARTS.__contains__) if key not in derived]
    assert [key for key in keys if key not in code.names and not is_listed(key)] == []


NOT_TEXT = {
    *("bert", "dinov2", "dinov2_with_registers", "olmo", "pp_doclayout_v3", "rt_detr_v2", "sam3", "sam3_video"),
    *("sapiens2", "siglip"),
}
"""Packages of mlx-vlm that make no text, and one of the optional ones."""


def packages() -> set[str]:
    return {each.name for each in pkgutil.iter_modules(mlx_vlm.models.__path__) if each.ispkg} - NOT_TEXT


@pytest.mark.parametrize(("package", "kind"), kinds(packages(), VISION_REMAPPING))
def test_every_key_of_transformers_that_mlx_vlm_does_not_read_is_listed(package: str, kind: str) -> None:
    module = importlib.import_module(f"mlx_vlm.models.{package}")
    names = frozenset().union(*(read_module(name)[0] for name in used_by(module, set())))
    keys = keys_of(translated(default_config(kind), module), lambda key: True)
    assert [key for key in keys if key not in names and not is_listed(key)] == []


def used_by(module: ModuleType, seen: set[str]) -> set[str]:
    """Modules of models that a package's classes come from, itself included."""
    if module.__name__ not in seen and module.__name__.startswith(MODELS):
        seen.add(module.__name__)
        for value in vars(module).values():
            other = value if isinstance(value, ModuleType) else inspect.getmodule(value)
            if other is not None and isinstance(value, ModuleType | type):
                used_by(other, seen)
    return seen


MODELS = ("mlx_lm.models.", "mlx_vlm.models.")


def test_module_is_read_while_others_build_trees() -> None:
    """Python 3.11.7 raises `SystemError` for a tree during which another one is built."""
    importlib.import_module("mlx_lm.models.qwen3")
    known, left = read_module("mlx_lm.models.qwen3"), [1000]

    def parse(phase: str, info: dict[str, int]) -> None:
        if left[0]:
            left[0] -= 1
            ast.parse("1")

    gc.callbacks.append(parse)
    threshold = gc.get_threshold()
    gc.set_threshold(10)
    try:
        assert read_module.__wrapped__("mlx_lm.models.qwen3") == known
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(parse)
    assert left[0] < 1000

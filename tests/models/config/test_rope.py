"""RoPE settings of either form under the names that a class reads; contradictions as transformers resolves them."""

from __future__ import annotations

import copy
import logging
import warnings
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from localai_shim.models.config.rope import Rope, read_rope, spread

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
BY_LAYER = {
    "full_attention": {"rope_theta": 1000000.0, "rope_type": "linear", "factor": 8.0},
    "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
}


def read_by(*names: str, config: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a class that reads these names gets of a config, without what it has in any case."""
    before = copy.deepcopy(config)
    made = spread(config, names.__contains__, required.__contains__, "config.json")
    assert config == before
    return {key: value for key, value in made.items() if before.get(key) != value}


def test_settings_of_a_model_get_their_old_names() -> None:
    config = {"rope_parameters": {"rope_theta": 5e5, "partial_rotary_factor": 0.5, **YARN}}
    assert read_by("rope_theta", "rope_scaling", "partial_rotary_factor", config=config) == {
        "rope_theta": 5e5,
        "partial_rotary_factor": 0.5,
        "rope_scaling": {**YARN, "type": "yarn"},
    }
    assert read_by("rotary_emb_base", "rotary_pct", config=config) == {"rotary_emb_base": 5e5, "rotary_pct": 0.5}


def test_a_name_that_the_class_does_not_read_is_not_added() -> None:
    assert read_by(config={"rope_parameters": {"rope_theta": 5e5, **YARN}}) == {}


def test_no_scaling_is_null_if_the_class_cannot_do_without_it() -> None:
    config = {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}
    assert read_by("rope_theta", "rope_scaling", config=config) == {"rope_theta": 5e5}
    made = spread(config, ("rope_theta", "rope_scaling").__contains__, ("rope_scaling",).__contains__, "")
    assert made["rope_scaling"] is None
    needed = ("partial_rotary_factor",)
    assert read_by(*needed, config=config, required=needed) == {"partial_rotary_factor": 1.0}


def test_sections_of_positions_are_a_scaling() -> None:
    config = {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default", "mrope_section": [1, 1, 2]}}
    scaling = {"type": "default", "rope_type": "default", "mrope_section": [1, 1, 2]}
    assert read_by("rope_scaling", config=config) == {"rope_scaling": scaling}


def test_settings_by_kind_of_layer_get_the_names_of_either_kind() -> None:
    config = {"rope_parameters": BY_LAYER}
    made = read_by("rope_theta", "rope_scaling", "rope_local_base_freq", config=config)
    scaling = {"type": "linear", "rope_type": "linear", "factor": 8.0}
    assert made == {"rope_theta": 1000000.0, "rope_scaling": scaling, "rope_local_base_freq": 10000.0}
    made = read_by("global_rope_theta", "local_rope_theta", config=config)
    assert made == {"global_rope_theta": 1000000.0, "local_rope_theta": 10000.0}
    labels = {"main": {"rope_theta": 1e4}, "compress": {"rope_theta": 1.6e5}}
    made = read_by("rope_theta", "compress_rope_theta", config={"rope_parameters": labels})
    assert made == {"rope_theta": 1e4, "compress_rope_theta": 1.6e5}


def test_settings_by_kind_of_layer_become_lists_where_a_class_reads_those() -> None:
    settings = {
        "full_attention": {"rope_theta": 5e6, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_theta": 1e4},
    }
    config = {"rope_parameters": settings, "layer_types": ["full_attention", "sliding_attention", "full_attention"]}
    made = read_by("rope_theta", "partial_rotary_factors", config=config)
    assert made == {"rope_theta": [5e6, 1e4, 5e6], "partial_rotary_factors": [0.5, 1.0, 0.5]}


def test_an_old_name_stands_for_another_old_one() -> None:
    assert read_by("rope_global_base_freq", config={"rope_theta": 5e5}) == {"rope_global_base_freq": 5e5}
    scaling = {"rope_type": "linear", "factor": 4.0}
    assert read_by("rope_scaling", config={"rope_scaling": scaling}) == {"rope_scaling": {**scaling, "type": "linear"}}
    assert read_by("rope_theta", config={"hidden_size": 8}) == {}


def test_a_layer_without_rotation_has_no_settings() -> None:
    settings = {"full_attention": None, "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}
    assert read_rope({"rope_parameters": settings}) == {"sliding_attention": Rope(1e4, None, {"rope_type": "default"})}
    assert read_by("rope_theta", config={"rope_parameters": settings}) == {"rope_theta": 1e4}
    assert read_rope({"rope_parameters": None}) == read_rope({"rope_parameters": {}}) == {}


CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "a base": {"rope_theta": 5e5, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
    "a part": {
        "partial_rotary_factor": 0.25,
        "rope_parameters": {"rope_theta": 1e6, "rope_type": "default", "partial_rotary_factor": 0.5},
    },
    "a kind of scaling": {
        "rope_theta": 1e6,
        "rope_scaling": YARN,
        "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
    },
    "a factor": {
        "rope_theta": 1e6,
        "rope_scaling": YARN,
        "rope_parameters": {"rope_theta": 1e6, **YARN, "factor": 2.0},
    },
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_both_forms_mean_what_transformers_makes_of_them_and_a_log_line_says_so(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = CONTRADICTIONS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        expected = CONFIG_MAPPING["llama"](**copy.deepcopy(config)).rope_parameters
    with caplog.at_level(logging.WARNING, "localai_shim"):
        made = spread(config, lambda key: True, lambda key: False, "config.json")
    assert "config.json: " in caplog.text and ", which is used" in caplog.text
    assert read_rope(made) == read_rope({"rope_parameters": expected})
    alone = {key: value for key, value in made.items() if key != "rope_parameters"}
    assert alone["rope_theta"] == expected["rope_theta"]
    assert alone.get("partial_rotary_factor") == expected.get("partial_rotary_factor")
    assert Rope(scaling=alone.get("rope_scaling")).kind == expected["rope_type"]


def test_both_forms_that_agree_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    config = {"rope_theta": 1e6, "rope_scaling": YARN, "rope_parameters": {"rope_theta": 1e6, **YARN}}
    made = spread(config, lambda key: True, lambda key: False, "config.json")
    assert caplog.text == ""
    assert made["rope_scaling"] == {**YARN, "type": "yarn"}


def test_scaling_that_is_written_beside_settings_by_layer_is_of_full_attention(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_parameters": BY_LAYER}
    made = spread(config, lambda key: True, lambda key: False, "config.json")
    expected = CONFIG_MAPPING["gemma3_text"](**copy.deepcopy(config)).rope_parameters
    assert made["rope_parameters"] == expected
    assert "linear" in caplog.text

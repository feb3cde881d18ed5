"""`kv_bits` on models whose own code reads keys and values: it has its effect, or is refused with the reason."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from localai_shim.engine.cache_contents import Quantised
from localai_shim.engine.engine import Engine
from localai_shim.models.packed_cache import fitting
from localai_shim.models.text import TextModel
from localai_shim.types import ModelLoadError
from tests import vlm_architectures
from tests.architectures import text_model
from tests.engine.harness import generate, request

EIGHT = Quantised(32, 8)
WIDE: dict[str, Any] = {
    "hidden_size": 128,
    "head_dim": 32,
    **dict.fromkeys(
        ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "q_lora_rank", "index_head_dim"), 32
    ),
}
"""Sizes that groups of 32 divide."""
PROMPTS = [[101, 33, 60, 5, 9, 13, 21, 8, 3, 77, 140], [17, 4, 250]]
UNPACKED = ["deepseek_v3", "gemma2", "gpt_oss", "gemma3n"]
"""Latents that are multiplied by themselves, own products, attention sinks, keys that layers share."""
MORE_UNPACKED = [
    "bailing_hybrid",
    "gemma4",
    "glm4_moe_lite",
    "kimi_linear",
    "longcat_flash",
    "mistral4",
    "phi",
    "plamo",
]


def engine_of(name: str, kv: Quantised | None) -> Engine[TextModel]:
    def load() -> TextModel:
        model = text_model(name, kv, **WIDE)
        model.check()
        return model

    return Engine(load, None)


@pytest.mark.parametrize("name", [*UNPACKED, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in MORE_UNPACKED)])
def test_keys_and_values_are_unpacked_for_code_that_multiplies_with_plain_ones(name: str) -> None:
    said = []
    for kv in (None, EIGHT):
        with closing(engine_of(name, kv)) as engine:
            said.append(generate(engine, *(request(prompt, max_tokens=12) for prompt in PROMPTS)))
            stats = engine.stats()
            assert (stats.kv_bytes_per_token < stats.kv_bytes_per_token_unquantised) == (kv is not None)
    same = sum(a == b for plain, eight in zip(*said, strict=True) for a, b in zip(plain, eight, strict=False))
    assert same > 12, "of 24: the first tokens at least, in 8 bits"


@pytest.mark.parametrize(("name", "unpacks"), [("llama", False), ("qwen3", False), *((n, True) for n in UNPACKED)])
def test_whether_they_are_unpacked_is_found_by_trial(name: str, unpacks: bool) -> None:
    assert fitting(EIGHT, text_model(name, EIGHT, **WIDE)).unpacks is unpacks


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("deepseek_v32", r"the code of 'deepseek_v32' reads its keys and values .*\(TypeError: .*Leave kv_bits out"),
        ("mamba2", "'mamba2' has no layers whose keys and values could be quantized"),
    ],
)
def test_what_cannot_be_quantized_is_refused_when_it_is_loaded(name: str, message: str) -> None:
    with pytest.raises(ModelLoadError, match=message) as caught:
        fitting(EIGHT, text_model(name, EIGHT, **WIDE))
    assert len(str(caught.value)) < 500


def test_plain_keys_beside_caches_that_slots_cannot_hold_are_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"'glm5_next' cannot be batched because of its layers \(\w+\)"):
        fitting(EIGHT, vlm_architectures.text_model("glm5_next", EIGHT))

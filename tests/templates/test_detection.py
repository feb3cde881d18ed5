"""Each template of ours is known for what it is: how its models write calls, and how their reasoning."""

from __future__ import annotations

import pytest

from localai_shim.formats.markup import Evidence, detect
from tests.templates.families import TEMPLATES, WITHOUT_TOOLS

# template: call format, reasoning
EXPECTED = {
    "apertus": "apertus apertus",
    "apriel15": "apriel apriel",
    "apriel16": "apriel apriel",
    "cohere2_moe": "command_r7b cohere",
    "command_r7b": "command_r7b cohere",
    "command_r_plus": "command_r_plus none",
    "deepseek_v3": "deepseek_v3 think",
    "deepseek_v31": "deepseek_v31 think",
    "deepseek_v32": "deepseek_v32 think",
    "deepseek_v4": "deepseek_v4 think",
    "dialogue": "hermes none",
    "firefunction": "firefunction none",
    "functionary_v31": "functionary_v31 none",
    "functionary_v32": "functionary_v32 none",
    "functiongemma": "functiongemma none",
    "gemma2": "hermes none",
    "gemma3_pythonic": "pythonic none",
    "gemma4": "gemma4 gemma4",
    "gigachat3": "gigachat3 none",
    "gigachat31": "gigachat31 none",
    "glm4": "glm none",
    "glm47": "glm think",
    "gpt_oss": "harmony channels",
    "granite3": "granite3 none",
    "granite_20b_fc": "granite_20b_fc none",
    "hermes": "hermes think",
    "hunyuan3": "hunyuan3 hunyuan3",
    "hunyuan_a13b": "hunyuan_a13b hunyuan_a13b",
    "internlm2": "internlm2 none",
    "kimi_k2": "kimi_k2 none",
    "kimi_k3": "kimi_k3 kimi_k3",
    "lfm2": "lfm2 none",
    "ling": "glm think",
    "llama3_json": "llama3_json none",
    "llama3_pythonic": "pythonic none",
    "llama4_json": "llama3_json none",
    "llama4_pythonic": "pythonic none",
    "longcat": "longcat longcat",
    "minicpm5": "minicpm5 think",
    "minimax_m1": "minimax_m1 think",
    "minimax_m2": "minimax_m2 think",
    "minimax_m3": "minimax_m3 minimax_m3",
    "ministral3": "mistral mistral",
    "mistral_nemo": "mistral_array none",
    "mistral_small32": "mistral_call_id none",
    "muse_glimmer": "muse channels",
    "nemotron3": "qwen3_coder think",
    "nemotron_nano_v2": "nemotron_v2 think",
    "phi4_mini": "phi4_mini none",
    "plain": "hermes none",
    "qwen3_coder": "qwen3_coder none",
    "reka": "hermes think",
    "seed_oss": "seed_oss seed_oss",
    "smollm3": "hermes think",
    "solar_open": "solar_open solar_open",
    "xlam": "xlam none",
}


def test_every_template_is_in_the_table() -> None:
    assert sorted(EXPECTED) == sorted(TEMPLATES)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_template_is_known_for_what_it_is(name: str) -> None:
    found = detect(Evidence(TEMPLATES[name]))
    assert found.tools is not None
    assert f"{found.tools.name} {found.reasoning}" == EXPECTED[name]
    assert found.taught == (name not in WITHOUT_TOOLS)

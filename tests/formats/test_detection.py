"""Families are told by what their templates write: by a call in their own form first of all."""

from __future__ import annotations

import pytest

from localai_shim.formats.description import write_calls
from localai_shim.formats.markup import THOUGHTS, UPSTREAM, Evidence, Thought, detect, named_format, named_thought
from localai_shim.formats.table import FORMATS, PLAIN
from tests.formats.channels import CHANNELS

CALL = write_calls(PLAIN, [("f", {"a": "x"})])

# What stands in templates beside calls, where calls alone are written alike by several families.
BESIDE = {
    "apriel": "[BEGIN FINAL RESPONSE]",
    "hunyuan_a13b": "<|extra_0|>",
    "firefunction": "<|start_header_id|> functools[...]",
    "phi4_mini": "<|tool|>{{ tools }}<|/tool|>",
    "llama3_json": "<|start_header_id|>",
    "functionary_v32": "<|start_header_id|>assistant>>>all",
    "command_r_plus": "<|CHATBOT_TOKEN|>",
    "gigachat3": "<|role_sep|>",
    "pythonic": "Calls look like [func_name1(parameter=value)].",
    "xlam": 'message["tool_calls"]',
    "harmony": "<|start|>",
    "muse": "<|start|>assistant to=f<|message|>",
}
# Rows that another one reads, too: which of the two a template has does not matter, or cannot be seen.
ALIKE = {"granite3_text": "hermes"}


def template(text: str) -> Evidence:
    return Evidence("{% for message in messages %}{{ tools }}{{ message.content }}{% endfor %}" + text)


@pytest.mark.parametrize("name", FORMATS)
def test_a_template_that_writes_calls_in_a_familys_form_is_of_that_family(name: str) -> None:
    calls = [("f", {"a": "x", "b": 1}), ("g", {"a": "y"})]
    found = detect(template(write_calls(FORMATS[name], calls) + BESIDE.get(name, "")))
    assert found.tools is not None and found.taught
    assert found.tools.name == ALIKE.get(name, name)
    assert found.channels == CHANNELS.get(name)


SIGNS = [(row, signs) for row in FORMATS.values() for signs in row.known_by]


@pytest.mark.parametrize("at", range(len(SIGNS)), ids=lambda at: " ".join(SIGNS[at][1]))
def test_no_earlier_sign_hides_one(at: int) -> None:
    for row, signs in SIGNS[:at]:  # one that always fits as well would hide this one
        hides = all(any(text in mine for mine in SIGNS[at][1]) for text in signs) and not row.unlike
        assert not hides, signs


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("<seed:tool_call><function=f><parameter=a>x</parameter></function></seed:tool_call>", "seed_oss"),
        ("]<]minimax[>[<tool_call>", "minimax_m3"),
        ("<tool_call>f\n<arg_key>a</arg_key>", "glm"),
        ('<tool_call>\n{"name": "f"}</tool_call> or <function=f><parameter=a>', "qwen3_coder"),
        ('<function name="f"><param name="a">x</param></function> {% set sep = "<tool_sep>" %}', "minicpm5"),
        ("<function=f>{}</function>", "functionary_v31"),
        ("<tool_calls>[ ]</tool_calls> [BEGIN FINAL RESPONSE] <tool_call>", "apriel"),
        ("<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}", "deepseek_v31"),
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}", "deepseek_v3"),
        ("[TOOL_CALLS]f[CALL_ID]1[ARGS]{}", "mistral_call_id"),
        ("{% set dsml = '｜DSML｜' %}<{{ dsml }}tool_calls>", "deepseek_v4"),
        ("{% set dsml = '｜DSML｜' %}<{{ dsml }}function_calls>", "deepseek_v32"),
        ("<|tool_list_start|>{{ tools }}<|tool_list_end|>", "lfm2"),
        ("{% if xml_tools %}", "hermes"),
    ],
)
def test_the_most_specific_sign_tells(text: str, name: str) -> None:
    found = detect(template(text))
    assert found.tools is not None and found.tools.name == name


def test_what_a_template_puts_together_is_seen_in_a_prompt() -> None:
    source = "{% set m = 'minimax' %}<{{ m }}:tool_call>"
    assert detect(Evidence(source)).tools is PLAIN
    found = detect(Evidence(source, render=lambda: "<minimax:tool_call>"))
    assert found.tools is FORMATS["minimax_m2"] and "prompt with a tool has <minimax:tool_call>" in found.tools_why


def test_a_prompt_is_rendered_only_where_the_source_does_not_tell() -> None:
    def render() -> str:
        raise AssertionError("rendered")

    assert detect(Evidence(CALL + "</think>", render=render)).tools is PLAIN


def test_mlx_lm_s_word_counts_where_the_template_shows_nothing() -> None:
    assert detect(Evidence("{{ tools }}", parser="glm47")).tools is FORMATS["glm"]
    assert detect(Evidence("{{ tools }}[TOOL_CALLS]", parser="json_tools")).tools is FORMATS["mistral_array"]
    assert detect(Evidence("{{ tools }}", parser="made_up")).tools is PLAIN


def test_the_vocabulary_counts_where_the_template_has_tools_and_no_markers() -> None:
    tokens = {"<|tool_call_start|>", "<|tool_call_end|>"}
    found = detect(Evidence("{{ tools }}", tokens))
    assert found.tools is FORMATS["lfm2"] and found.tools_why == "its vocabulary has <|tool_call_start|>"
    assert detect(Evidence("{{ messages }}", tokens)).tools is PLAIN


def test_a_model_that_was_not_taught_to_call_is_asked_to_in_the_plain_form() -> None:
    found = detect(Evidence("{% for message in messages %}{{ message.content }}{% endfor %}"))
    assert (found.tools, found.taught, found.reasoning) == (PLAIN, False, "none")
    assert "no" in found.tools_why and "is asked to write this one" in found.tools_why


def test_a_model_without_a_template_has_no_calls() -> None:
    assert detect(Evidence()).tools is None


# -- reasoning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", THOUGHTS, ids=lambda row: row.name)
def test_reasoning_is_told_by_a_template_that_writes_it(row: Thought) -> None:
    found = detect(template(f"{row.start}...{row.end} {' '.join(row.structural)} {' '.join(row.signs)}"))
    assert found.thought is not None
    assert (found.thought.start, found.thought.end) == (row.start, row.end)
    assert found.reasoning == row.name


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ({"<think>", "</think>"}, "think"),
        ({"<think>"}, "none"),
        ({"[THINK]", "[/THINK]"}, "mistral"),
        ({"<|channel>", "<channel|>"}, "gemma4"),
        ({"<|open|>", "<|close|>", "<|sep|>", "<think>", "</think>"}, "kimi_k3"),
        ({"<|end|>", "<|user|>"}, "none"),
    ],
)
def test_reasoning_is_told_by_a_pair_of_tokens(tokens: set[str], expected: str) -> None:
    assert detect(Evidence(CALL, tokens)).reasoning == expected


def test_the_end_of_a_turn_is_no_end_of_a_thought() -> None:
    assert detect(template("<|user|>{{ message.content }}<|end|>")).reasoning == "none"


def test_answers_in_channels_have_their_reasoning_in_one() -> None:
    found = detect(template("<|start|>assistant<|channel|>analysis<|message|></think>"))
    assert (found.reasoning, found.thought) == ("channels", None)
    assert found.channels is not None and found.channels.thought


# -- Hunyuan 3's suffix ---------------------------------------------------------------------------------------------


HUNYUAN = "{% set S = ':v2' %}<think{{ S }}></think{{ S }}><tool_sep{{ S }}><arg_key{{ S }}>"


@pytest.mark.parametrize("suffix", [":opensource", ":v2", ""])
def test_markers_end_with_the_suffix_of_the_checkpoint(suffix: str) -> None:
    found = detect(Evidence(HUNYUAN, render=lambda: f"<tool_call{suffix}>f<tool_sep{suffix}>"))
    assert found.tools is not None and found.thought is not None
    written = write_calls(found.tools, [("f", {"a": "x"})])
    assert f"<tool_sep{suffix}>" in written and f"<arg_key{suffix}>a</arg_key{suffix}>" in written
    assert (found.thought.start, found.thought.end) == (f"<think{suffix}>", f"</think{suffix}>")
    by_token = detect(Evidence(HUNYUAN, {f"<tool_sep{suffix}>"}))
    assert by_token.tools == found.tools
    assert by_token.tools is detect(Evidence(HUNYUAN, {f"<tool_sep{suffix}>"})).tools  # made once


# -- names ----------------------------------------------------------------------------------------------------------


def test_names_that_a_caller_gives_count_most() -> None:
    evidence = template(CALL + "<think></think>")
    assert detect(evidence, "llama3_json").tools is FORMATS["llama3_json"]
    assert detect(evidence, "json_tools").tools is FORMATS["hermes"]
    assert detect(evidence, "none").tools is None
    assert detect(evidence, None, "mistral").reasoning == "mistral"
    found = detect(evidence, None, "none")
    assert (found.thought, found.reasoning, found.thought_why) == (None, "none", "as `reasoning_format` says")


def test_without_reasoning_thoughts_in_channels_are_content() -> None:
    found = detect(template("<|start|>assistant<|channel|>final<|message|>"), None, "none")
    assert found.reasoning == "none" and found.channels is not None


def test_names_that_nobody_knows_are_errors_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"`tool_format` must be one of .*'hermes'.*'none', not 'nothing'"):
        named_format("nothing")
    with pytest.raises(ValueError, match=r"`reasoning_format` must be one of .*'think'.*'none', not 'nothing'"):
        named_thought("nothing")
    for name in FORMATS:
        assert named_format(name) is FORMATS[name]
    for name in {thought.name for thought in THOUGHTS}:
        found = named_thought(name)
        assert found is not None and found.name == name
    assert set(UPSTREAM.values()) <= set(FORMATS)

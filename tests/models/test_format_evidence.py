"""Which markers a model uses: our table, asked about tokenizers as mlx-lm loads them, beside what mlx-lm finds."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper, _infer_tool_parser, load
from transformers import AddedToken, PreTrainedTokenizerFast

from localai_shim.formats.markup import UPSTREAM, named_format, named_thought
from localai_shim.formats.table import FORMATS, PLAIN
from localai_shim.models.chat_templates import added_tokens, find_formats, read_formats
from tests import inside
from tests.formats.channels import CHANNELS
from tests.tiny import TEMPLATE, make_tokenizer

# What chat templates say of calls, by the parser that mlx-lm or mlx-vlm has for them.
TEMPLATES = {
    "json_tools": '<tool_call>\\n{"name": "{{ tool_call.name }}", "arguments": ',
    "cohere2_moe": "<|START_ACTION|>[",
    "mistral": "[TOOL_CALLS]{{ name }}[ARGS]",
    "kimi_k2": "<|tool_calls_section_begin|>",
    "harmony": "<|start|>assistant<|channel|>commentary to=functions.{{ name }} <|constrain|>json<|message|> <|call|>",
    "qwen3_coder": "<tool_call>\\n<function={{ tool_call.name }}>\\n<parameter=",
    "gemma4": "<|tool_call>call:{{ name }} <tool_call|>",
    "function_gemma": "<start_function_call>call:{{ name }}",
    "glm47": "<tool_call>{{ name }}<arg_key>",
    "longcat": "<longcat_tool_call>",
    "minicpm5": '<function name="{{ name }}"><param name="{{ key }}">',
    "minimax_m2": "<minimax:tool_call>",
    "minimax_m3": "]<]minimax[>[<tool_call>",
    "pythonic": "<|tool_call_start|>[ <|tool_call_end|>",
}
NOT_INFERRED = ("cohere2_moe", "harmony", "minimax_m3")  # by mlx-lm
XTML = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
MUSE = {"chat_template_type": "muse_spark", "tool_parser_type": "muse_spark"}

Make = Callable[..., TokenizerWrapper]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """mlx-lm's wrapper of a small tokenizer: (what its template says of calls, more tokens, its config, defaults)."""
    base = tmp_path_factory.mktemp("base")
    make_tokenizer(base)

    def made(
        says: str = "", tokens: Sequence[str] = (), config: dict[str, Any] | None = None, defaults: Any = None
    ) -> TokenizerWrapper:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(base)
        tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in tokens])
        tokenizer.chat_template = TEMPLATE + ("{#- " + says + " -#}" if says else "")
        folder = tmp_path_factory.mktemp("tokenizer")
        tokenizer.save_pretrained(folder)
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | (config or {})))
        return load(folder, defaults=defaults)

    return made


# -- reasoning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "says", "expected"),
    [
        (("<think>", "</think>"), "", ("<think>", "</think>")),
        (("<longcat_think>", "</longcat_think>"), "", ("<longcat_think>", "</longcat_think>")),
        (("<|think:start|>", "<|think:end|>"), "", ("<|think:start|>", "<|think:end|>")),
        (("<|channel>", "<channel|>"), "", ("<|channel>thought", "<channel|>")),
        (XTML, "", ("<|open|>think<|sep|>", "<|close|>think<|sep|>")),
        (("<|START_THINKING|>", "<|END_THINKING|>"), "", ("<|START_THINKING|>", "<|END_THINKING|>")),
        (("<mm:think>", "</mm:think>"), "", ("<mm:think>", "</mm:think>")),
        ((), "<think> </think>", ("<think>", "</think>")),
        ((), "<mm:think> </mm:think>", ("<mm:think>", "</mm:think>")),
        (("<think>",), "", None),
        ((), "", None),
    ],
)
def test_reasoning_is_told_by_a_pair_of_tokens_or_of_texts_in_the_template(
    make: Make, tokens: Sequence[str], says: str, expected: tuple[str, str] | None
) -> None:
    tokenizer = make(says, tokens)
    thought = find_formats(tokenizer).thought
    assert (thought and (thought.start, thought.end)) == expected
    if tokenizer.has_thinking:  # as upstream sees it
        assert expected == (tokenizer.think_start, tokenizer.think_end)


def test_a_model_without_markers_has_those_of_calls_that_it_is_asked_for(make: Make) -> None:
    markup = find_formats(make())
    assert (markup.thought, markup.channels, markup.structural) == (None, None, ())
    assert markup.tools is PLAIN and not markup.taught


def test_markers_hash_so_that_what_is_made_of_them_is_made_once(make: Make) -> None:
    one, other = find_formats(make(defaults=MUSE)), find_formats(make(defaults=MUSE))
    assert one == other and hash(one) == hash(other)


def test_added_tokens_are_known_by_id(make: Make) -> None:
    tokenizer = make(tokens=("<think>", "</think>"))
    found = added_tokens(tokenizer)
    assert found[tokenizer.think_start_id] == "<think>"
    assert {"<|im_start|>", "<|im_end|>", "</think>"} <= set(found.values())


# -- calls ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_format_is_what_mlx_lm_infers(make: Make, name: str) -> None:
    tokenizer = make(TEMPLATES[name])
    assert _infer_tool_parser(inside.tokenizer(tokenizer)) == (None if name in NOT_INFERRED else name)
    assert find_formats(tokenizer).tools is FORMATS[UPSTREAM.get(name, name)]


def test_a_program_of_mlx_lm_s_shows_its_format_in_a_prompt(make: Make) -> None:
    markup = find_formats(make(defaults=MUSE))
    assert markup.tools is FORMATS["muse"] and markup.channels is CHANNELS["muse"]
    assert markup.thinks and markup.thought is None
    deepseek = find_formats(make(config={"chat_template_type": "deepseek_v32"}))
    assert deepseek.tools is FORMATS["deepseek_v32"] and "prompt" in deepseek.tools_why
    assert deepseek.reasoning == "think"


def test_a_parser_that_a_checkpoint_names_counts_where_its_template_shows_nothing(make: Make) -> None:
    assert find_formats(make(config={"tool_parser_type": "minimax_m2"})).tools is FORMATS["minimax_m2"]
    named = make(TEMPLATES["glm47"], config={"tool_parser_type": "json_tools"})
    assert find_formats(named).tools is FORMATS["glm"]


def test_of_several_templates_the_one_for_tools_tells_the_format(make: Make) -> None:
    tokenizer = make()
    inside.tokenizer(tokenizer).chat_template = {"default": TEMPLATE, "tool_use": TEMPLATES["cohere2_moe"]}
    assert find_formats(tokenizer).tools is FORMATS["command_r7b"]


def test_without_a_template_there_are_no_calls(make: Make) -> None:
    tokenizer = make()
    inside.tokenizer(tokenizer).chat_template = None
    assert find_formats(tokenizer).tools is None


def test_names_that_a_caller_gives_count_most(make: Make) -> None:
    tokenizer = make(TEMPLATES["glm47"], ("<think>", "</think>"))
    markup = find_formats(tokenizer, "llama3_json", "mistral")
    assert markup.tools is FORMATS["llama3_json"] and markup.thought is named_thought("mistral")
    assert find_formats(tokenizer, "none", "none").plain


def modules(package: str, *path: str) -> set[str]:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0], *path)
    return {file.stem for file in folder.glob("*.py")} - {"__init__"}


@pytest.mark.parametrize("name", sorted(modules("mlx_lm", "tool_parsers") | modules("mlx_vlm", "tools", "parsers")))
def test_every_parser_that_upstream_has_is_one_of_our_formats(name: str) -> None:
    assert named_format(name) is not None


# -- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*TEMPLATES, ""])
def test_a_checkpoint_s_files_tell_the_same_as_its_tokenizer(make: Make, name: str) -> None:
    tokenizer = make(TEMPLATES.get(name, ""), ("[THINK]", "[/THINK]"))
    found = read_formats(Path(inside.tokenizer(tokenizer).name_or_path))
    loaded = find_formats(tokenizer)
    assert found is not None
    assert (found.tools, found.thought, found.channels) == (loaded.tools, loaded.thought, loaded.channels)


def test_files_without_a_template_tell_nothing(tmp_path: Path) -> None:
    assert read_formats(tmp_path) is None

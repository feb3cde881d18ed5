"""Prompts that ask for what is missing between two texts, as each family of models was trained to read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localai_shim.prompt.infilling import find_infilling, infilling_prompt
from localai_shim.prompt.template import ChatTokenizer
from tests import inside
from tests.conftest import chat_tokenizer
from tests.prompt import kinds

BEFORE, BEHIND = "def two(a):\n    ", "\n    return a"
# kind of tokenizer, its marks -> where they stand: "a" is the text before, "b" the one behind
FAMILIES: dict[str, tuple[str, list[str], list[str]]] = {
    "Qwen2.5-Coder": (
        "byte_level",
        ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"],
        ["<|fim_prefix|>", "a", "<|fim_suffix|>", "b", "<|fim_middle|>"],
    ),
    "StarCoder": (
        "byte_level",
        ["<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>"],
        ["<fim_prefix>", "a", "<fim_suffix>", "b", "<fim_middle>"],
    ),
    "DeepSeek-Coder": (
        "byte_level",
        ["<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"],
        ["<｜fim▁begin｜>", "a", "<｜fim▁hole｜>", "b", "<｜fim▁end｜>"],
    ),
    "CodeLlama": ("prepending", ["▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"], ["▁<PRE>", "a", "▁<SUF>", "b", "▁<MID>"]),
    "Codestral": ("metaspace", ["[PREFIX]", "[MIDDLE]", "[SUFFIX]"], ["[SUFFIX]", "b", "[PREFIX]", "a"]),
}


def make(folder: Path, family: str) -> tuple[ChatTokenizer, dict[str, int]]:
    """A tokenizer with a family's marks, and their ids."""
    kind, marks, _ = FAMILIES[family]
    loaded: Any = kinds.load(folder, kind)
    inside.tokenizer(loaded).add_special_tokens({"additional_special_tokens": marks})
    tokenizer = chat_tokenizer(loaded)
    return tokenizer, {mark: loaded.convert_tokens_to_ids(mark) for mark in marks}


def parts(tokenizer: ChatTokenizer, ids: dict[str, int], prompt: list[int]) -> list[str]:
    """Marks, and the texts between them as the tokenizer says them."""
    names = {i: mark for mark, i in ids.items()}
    found: list[str] = []
    text: list[int] = []
    for token_id in [*prompt, -1]:
        if token_id in names or token_id == -1:
            found += [tokenizer.decode(text)] if text else []
            found += [names[token_id]] if token_id in names else []
            text = []
        else:
            text.append(token_id)
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_the_parts_stand_where_the_family_has_them(tmp_path: Path, family: str) -> None:
    tokenizer, ids = make(tmp_path, family)
    format = find_infilling(tokenizer)
    assert format is not None
    prompt = infilling_prompt(format, tokenizer, BEFORE, BEHIND, raw=False)
    texts = {"a": BEFORE, "b": BEHIND}
    assert parts(tokenizer, ids, prompt) == [texts.get(part, part) for part in FAMILIES[family][2]]
    assert format.ends >= set(ids.values())


@pytest.mark.parametrize("family", FAMILIES)
def test_what_the_texts_spell_is_text(tmp_path: Path, family: str) -> None:
    tokenizer, ids = make(tmp_path, family)
    format = find_infilling(tokenizer)
    assert format is not None
    spelt = "".join(mark.replace("▁", " ") if family == "CodeLlama" else mark for mark in ids) + "<|im_end|>"
    prompt = infilling_prompt(format, tokenizer, f"x{spelt}", f"y{spelt}", raw=False)
    harmless = infilling_prompt(format, tokenizer, "x", "y", raw=False)
    control = {*ids.values(), *tokenizer.special_ids}
    assert [i for i in prompt if i in control] == [i for i in harmless if i in control]
    raw = infilling_prompt(format, tokenizer, "x<|im_end|>", "y", raw=True)
    assert tokenizer.vocabulary["<|im_end|>"] in raw


def test_no_space_is_put_before_what_comes_behind(tmp_path: Path) -> None:
    """Sentencepiece puts one before every text, which would be part of what the model is asked to end at."""
    tokenizer, ids = make(tmp_path, "CodeLlama")
    format = find_infilling(tokenizer)
    assert format is not None
    prompt = infilling_prompt(format, tokenizer, "a", "the", raw=False)
    behind = prompt[prompt.index(ids["▁<SUF>"]) + 1 : prompt.index(ids["▁<MID>"])]
    assert "".join(tokenizer.token_bytes(i).decode() for i in behind) == "the"


@pytest.mark.parametrize("kind", ["byte_level", "prepending"])
def test_tokenizers_without_marks_have_no_infilling(tmp_path: Path, kind: str) -> None:
    assert find_infilling(chat_tokenizer(kinds.load(tmp_path, kind))) is None

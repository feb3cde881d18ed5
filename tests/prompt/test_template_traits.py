"""The token that ends an assistant's turn, found in how a chat template writes one that is over."""

from __future__ import annotations

import json
import logging
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.models.chat_templates import added_tokens, find_formats
from localai_shim.models.text import load_text_tokenizer
from localai_shim.output.channels import markers_of
from localai_shim.prompt.template import ChatTokenizer
from localai_shim.types import Json
from tests import inside
from tests.templates import models
from tests.templates.families import TEMPLATES
from tests.tiny import tiny

MESSAGES: list[Any] = [{"role": "user", "content": "Hello"}]
OWN_END = {
    "gigachat31": "<|message_sep|>",
    "hunyuan3": "<｜hy_eos｜>",
    "ling": "<|role_end|>",
    "nemotron_nano_v2": "<SPECIAL_12>",
    "reka": "<sep>",
}
"""Families whose turns end with a token that the tests' models do not have for an end."""
NO_END = [
    *("dialogue", "gigachat3", "glm4", "glm47", "gpt_oss", "hunyuan_a13b", "kimi_k3", "minimax_m1", "muse_glimmer"),
    "solar_open",
]
"""Families that write text behind an answer, or a marker that also stands within one."""
NEXT_TURN = {"cohere2_moe", "command_r7b", "command_r_plus"}
"""Families whose end is known as a marker that says nothing: there the next turn's begin is an end."""


@cache
def tokenizer(family: str, folder: Path) -> tuple[ChatTokenizer, dict[int, str], set[int], dict[str, int]]:
    folder.mkdir()
    models.make_tokenizer(folder, TEMPLATES[family])
    loaded = load_text_tokenizer(folder)
    added, markers = added_tokens(loaded.tokenizer), markers_of(find_formats(loaded.tokenizer))
    marking = {i for i, text in added.items() if any(text in marker for marker in markers)}
    return ChatTokenizer(loaded), added, marking, dict(loaded.tokenizer.get_vocab())


def found(family: str, folder: Path, ends: list[str]) -> str | None:
    chat, added, marking, ids = tokenizer(family, folder)
    end = chat.turn_end({ids[each] for each in ends}, added, marking)
    return None if end is None else added[end]


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_turn_that_ends_where_an_answer_ends_needs_nothing(family: str, tmp_path: Path) -> None:
    assert found(family, tmp_path / "a", [models.ending(TEMPLATES[family])]) == OWN_END.get(family)


@pytest.mark.parametrize("family", [each for each in TEMPLATES if each not in NO_END])
def test_an_end_that_no_file_names_is_found(family: str, tmp_path: Path) -> None:
    end = OWN_END.get(family, models.ending(TEMPLATES[family]))
    assert found(family, tmp_path / "a", []) == ("<|START_OF_TURN_TOKEN|>" if family in NEXT_TURN else end)


@pytest.mark.parametrize("family", NO_END)
def test_markers_within_answers_and_text_are_no_ends(family: str, tmp_path: Path) -> None:
    assert found(family, tmp_path / "a", []) is None


def with_fields(path: Path, **fields: object) -> None:
    content: Json = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **fields}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint in whose files turns end with a token, and which name another end."""
    made = Path(shutil.copytree(tiny("qwen3"), tmp_path / "made"))
    ids = load_text_tokenizer(made).tokenizer.get_vocab()
    with_fields(made / "tokenizer_config.json", eos_token="<|endoftext|>")
    with_fields(made / "config.json", eos_token_id=ids["<|endoftext|>"])
    (made / "generation_config.json").write_text(json.dumps({"eos_token_id": [ids["<|endoftext|>"]]}))
    return made


def test_an_answer_ends_with_its_turn(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LocalOpenAI(folder, keep_alive=0) as client, caplog.at_level(logging.WARNING, "localai_shim"):
        model: Any = inside.engine(client).model
        ids = model.tokenizer.get_vocab()
        answer = client.chat.completions.create(
            model="m", messages=MESSAGES, max_tokens=8, logit_bias={str(ids["<|im_end|>"]): 100}
        )
    assert model.eos_token_ids == {ids["<|endoftext|>"], ids["<|im_end|>"]}
    assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == ("stop", "")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 1
    [logged] = [each.getMessage() for each in caplog.records if "ends turns" in each.getMessage()]
    assert logged.startswith("'made': its chat template ends turns with '<|im_end|>', which none of its files names")


def test_what_files_name_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with LocalOpenAI(tiny("qwen3"), keep_alive=0) as client, caplog.at_level(logging.WARNING, "localai_shim"):
        client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=2)
    assert [each for each in caplog.records if "ends turns" in each.getMessage()] == []


@pytest.mark.parametrize("template", ["{{ raise_exception('no') }}", "{{ messages[0].content }}", "{{ 'x' * 10**10 }}"])
def test_a_template_that_shows_no_turns_ends_none(template: str, tmp_path: Path) -> None:
    made = Path(shutil.copytree(tiny("qwen3"), tmp_path / "made"))
    (made / "chat_template.jinja").write_text(template)
    chat = ChatTokenizer(load_text_tokenizer(made))
    assert chat.turn_end((), added_tokens(chat.model.tokenizer), ()) is None

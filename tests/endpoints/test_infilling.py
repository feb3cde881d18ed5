"""`suffix`: a model whose tokenizer has tokens for it fills in what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine, ScriptedTokenizer
from tests.conftest import counted, refused
from tests.tiny import VOCABULARY, make_model, make_tokenizer

MARKS = ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"]


@pytest.fixture(scope="module")
def filling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalOpenAI, Any]]:
    """A tiny model with such tokens, and its tokenizer."""
    from transformers import PreTrainedTokenizerFast

    folder = make_model(tmp_path_factory.mktemp("model") / "filling", "qwen3", vocab_size=VOCABULARY + len(MARKS))
    make_tokenizer(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": MARKS})
    tokenizer.save_pretrained(folder)
    with LocalOpenAI(folder, keep_alive=0) as client:
        yield client, tokenizer


def ask(client: LocalOpenAI, **more: Any) -> Any:
    return client.completions.create(**{"model": "m", "prompt": "Hello", "temperature": 0, "max_tokens": 12, **more})


def test_infilling_is_what_comes_of_the_marked_tokens(filling: tuple[LocalOpenAI, Any]) -> None:
    client, tokenizer = filling
    made = ask(client, prompt=["one ", ""], suffix=" three", n=2)
    by_hand = [tokenizer(f"<|fim_prefix|>{text}<|fim_suffix|> three<|fim_middle|>").input_ids for text in ("one ", "")]
    ends = [tokenizer.convert_tokens_to_ids(mark) for mark in [*MARKS, "<|endoftext|>"]]
    expected = ask(client, prompt=by_hand, n=2, extra_body={"stop_token_ids": ends})
    assert [choice.text for choice in made.choices] == [choice.text for choice in expected.choices]
    assert counted(made.usage) == counted(expected.usage)
    chunks = list(ask(client, prompt="one ", suffix=" three", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == made.choices[0].text


def test_an_empty_suffix_asks_for_nothing(filling: tuple[LocalOpenAI, Any], client: LocalOpenAI) -> None:
    for each in (filling[0], client):
        assert ask(each, suffix="").choices == ask(each).choices


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"echo": True}, "echo"),
        ({"prompt": [5, 6]}, "prompt"),
        ({"prompt": ["a", [5]]}, "prompt[1]"),
        ({"extra_body": {"truncate_prompt_tokens": 3}}, "truncate_prompt_tokens"),
        ({"suffix": 5}, "suffix"),
    ],
)
def test_what_does_not_go_with_it_is_refused(
    filling: tuple[LocalOpenAI, Any], more: dict[str, Any], param: str
) -> None:
    with refused(param, None if param in ("echo", "truncate_prompt_tokens") else "invalid_type", param):
        ask(filling[0], **{"suffix": "!", **more})


def test_the_answer_ends_at_the_next_mark() -> None:
    tokenizer = ScriptedTokenizer(markers=MARKS)
    prompts: list[str] = []

    def play(request: Any, prompt: str, before: Any) -> str:
        prompts.append(prompt)
        return "two<|fim_pad|>and more"

    with ScriptedEngine(play, tokenizer=tokenizer) as engine, LocalOpenAI(engine=engine) as client:
        choice = ask(client, prompt="one ", suffix=" three").choices[0]
        assert (choice.text, choice.finish_reason) == ("two", "stop")
        ask(client, prompt="<|fim_pad|>", suffix=" three", extra_body={"allow_special_tokens": True})
    assert prompts[0] == "<|fim_prefix|>one <|fim_suffix|> three<|fim_middle|>"


def test_a_model_without_the_tokens_says_so(client: LocalOpenAI, tmp_path: Path) -> None:
    with refused("suffix", "unsupported_parameter", "its tokenizer has none of the tokens for it"):
        ask(client, suffix="!")

"""`draft_model` for clients: the same answers, shared engines, refusals in the SDK's classes, and no memory left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import mlx.core as mx
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.backends.machine import has_gpu
from localai_shim.engine.drafts.draft_model import DraftModel
from tests import inside
from tests.conftest import MESSAGES
from tests.drafting import split
from tests.engine.guessing import speculate
from tests.tiny import make_model, tiny

ASK: dict[str, Any] = {"model": "m", "messages": MESSAGES, "max_tokens": 24, "extra_body": {"ignore_eos": True}}
KINDS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.8, "top_p": 0.9, "seed": 3, "n": 3},
    {"seed": 4, "presence_penalty": 0.7, "logit_bias": {"20": 3}, "logprobs": True, "top_logprobs": 2},
    {"seed": 5, "stop": ["e", "a"]},
    {"seed": 6, "response_format": {"type": "json_object"}},
]
SLACK = 4096  # bytes


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return split(tiny("qwen3", num_hidden_layers=4), tmp_path_factory.mktemp("pair") / "models", 1, 0.1)


@pytest.fixture
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    speculate(monkeypatch)
    monkeypatch.setattr(DraftModel, "seconds", lambda self, rows, drafts, plain: 0.0)


def said(made: Any) -> list[Any]:
    logprobs = [c.logprobs and [(t.token, round(t.logprob, 3)) for t in c.logprobs.content] for c in made.choices]
    return [[(c.message.content, c.finish_reason) for c in made.choices], logprobs]


@pytest.mark.usefixtures("_always")
def test_answers_are_those_without_it_and_a_request_may_go_without(pair: tuple[Path, Path]) -> None:
    large, small = pair

    async def main() -> None:
        async with (
            AsyncLocalOpenAI(large, keep_alive=0, speculation="off") as plain,
            AsyncLocalOpenAI(large, keep_alive=0, draft_model=small, draft_tokens=3) as drafted,
        ):
            without = {"ignore_eos": True, "speculation": "off"}
            one = await drafted.chat.completions.create(**{**ASK, "extra_body": without}, **KINDS[0])
            assert not drafted.stats().drafts
            made = [
                await asyncio.gather(*(client.chat.completions.create(**ASK, **each) for each in KINDS))
                for client in (plain, drafted)
            ]
            assert [said(each) for each in made[0]] == [said(each) for each in made[1]]
            assert said(one) == said(made[0][0])
            counts = drafted.stats().drafts
            assert set(counts) == {"model"} and counts["model"].drafted > counts["model"].accepted > 0
            assert not plain.stats().drafts

    asyncio.run(main())


def test_clients_with_equal_options_share_it(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = pair
    monkeypatch.chdir(small.parent)
    with (
        LocalOpenAI(large, keep_alive=0) as plain,
        LocalOpenAI(large, keep_alive=0, draft_model=small) as one,
        LocalOpenAI(large, keep_alive=0, draft_model="./small") as same,
        LocalOpenAI(large, keep_alive=0, draft_model=large) as other,
    ):
        engines = [inside.engine(each) for each in (plain, one, same, other)]
        assert engines[1] is engines[2]
        assert len(set(engines)) == 3
        for engine in engines:
            assert engine is not None and engine.model


def test_a_folder_that_is_none_is_refused_at_once_as_the_models_own_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="There is no folder"):
        LocalOpenAI(tiny("qwen3"), draft_model=tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        LocalOpenAI(tiny("qwen3"), draft_model=tmp_path)


def test_an_id_that_is_none_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with (
        LocalOpenAI(tiny("qwen3"), draft_model="no--body/..", keep_alive=0) as client,
        pytest.raises(openai.NotFoundError, match="is neither a folder"),
    ):
        client.chat.completions.create(**ASK)


@pytest.mark.usefixtures("without_the_garbage_collector")
def test_another_vocabulary_is_refused_with_the_tokens_that_differ_and_mended_folders_are_tried(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "other", "qwen3", vocab_size=390)
    before = mx.get_active_memory()
    with LocalOpenAI(tiny("qwen3"), draft_model=folder, keep_alive=0) as client:
        for _ in range(2):
            with pytest.raises(openai.InternalServerError) as caught:
                client.chat.completions.create(**ASK)
            text = caught.value.message
            assert "draft_model: 'other' has another vocabulary than 'tiny-qwen3': 390 tokens and 400" in text
            assert "choose a model with the same tokenizer" in text
        assert mx.get_active_memory() <= before + SLACK
        make_model(folder, "qwen3", seed=2)
        client.chat.completions.create(**ASK)


@pytest.mark.usefixtures("without_the_garbage_collector", "_always")
def test_rounds_of_loading_and_closing_leave_no_memory_behind(pair: tuple[Path, Path]) -> None:
    large, small = pair
    left: list[int] = []
    for _ in range(4):
        with LocalOpenAI(large, draft_model=small, keep_alive=0) as client:
            client.chat.completions.create(**ASK, n=2)
            stream = client.chat.completions.create(**{**ASK, "max_tokens": 400}, stream=True)
            for _ in range(12):
                next(stream)  # it runs, and is drafted for, when the engine ends
            weights = sum(file.stat().st_size for each in pair for file in each.glob("*.safetensors"))
            loaded = mx.get_active_memory()
        left.append(mx.get_active_memory())
        assert left[-1] <= loaded - weights
        # Where the device samples, a reference cycle keeps 14 kB of a round for the garbage collector.
        assert left[-1] <= left[0] + SLACK + has_gpu() * (len(left) - 1) * 4 * SLACK

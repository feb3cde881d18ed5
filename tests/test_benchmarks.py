"""Benchmarks for a GPU run on what they make, on a smaller model; a soak knows right from wrong."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from mlx_lm.utils import load_tokenizer

from benchmarks import gpu_vision, swarm
from benchmarks.soak import checks
from benchmarks.soak.bad import BAD
from benchmarks.soak.checks import Outcomes
from benchmarks.soak.requests import MISHAPS, Drawn, Item, draw, make_pool
from benchmarks.soak.scripts import Variation, chat, embeddings
from benchmarks.vision import BareVision
from benchmarks.vision_models import SIZES, make_vision_model
from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.builtin import CHECKPOINT
from localai_shim.engine.prefix import sharing
from localai_shim.models.loading import load_model
from localai_shim.models.vision.model import VisionModel
from localai_shim.sdk import private as sdk
from tests.tiny import tiny

SIZE = dataclasses.replace(
    SIZES["small"],
    text=dataclasses.replace(SIZES["small"].text, layers=1, vocabulary=2_000),
    depth=1,
    full_attention=(0,),
    side=112,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("seeing") / "model"
    make_vision_model(made, SIZE)
    return made


def test_the_model_that_sees_can_be_asked(folder: Path) -> None:
    model = load_model(str(folder), {})
    assert isinstance(model, VisionModel)
    assert model.text.media_kinds >= {"image", "video"}
    assert gpu_vision._tower_seconds(model, SIZE.side, 1) > 0
    assert gpu_vision._prefill_seconds(model, SIZE.side, 2) > 0
    assert all(seconds > 0 for seconds in gpu_vision._step_seconds(model, 2, gpu_vision._tokens(SIZE), 2, 1))


def test_the_bare_model_beside_it_can_be_asked(folder: Path) -> None:
    bare = BareVision(folder)
    assert bare.tower_seconds(SIZE.side, 1) > 0
    assert bare.decode([8, 8], 2).streams[0].times


def test_agents_share_tokens_unless_the_benchmark_wants_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MOST_SAVED_TOKENS", 0)
    agents, held = swarm.Agents(load_tokenizer(CHECKPOINT), own=40), list[int]()
    for how in (contextlib.nullcontext(), swarm.copies()):
        with how:
            client = AsyncLocalOpenAI(keep_alive=0, speculation="off")
            held.append(swarm.run(client, agents.take(4, 600), 32).kv_bytes)
            asyncio.run(client.close())
    assert 1.5 * held[0] < held[1]


def test_the_same_seed_draws_the_same_requests() -> None:
    def drawn(seed: int) -> list[Drawn]:
        pool = make_pool(seed, 60)
        return [draw(seed, number, pool, len(BAD)) for number in range(200)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert {each.mishap for each in drawn(1)} == set(MISHAPS)
    calls = [[item.make(Variation()).send(None) for item in make_pool(seed, 60)] for seed in (1, 1, 2)]
    assert calls[0] == calls[1] != calls[2]


def test_a_sampled_answer_next_to_an_edge_is_a_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "WARMER", (1.0,))  # as rounding would if it were coarse
    fields = {"model": "any", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 12}
    item = Item("chat", "text", chat({**fields, "temperature": 0.2, "seed": 3}), sampled=True)
    with LocalOpenAI(tiny("qwen3"), keep_alive=0) as client:

        def at(temperature: float) -> Any:
            return checks.finish(client, chat({**fields, "temperature": temperature, "seed": 3})(Variation()))

        outcomes = Outcomes([item], BAD, [at(0.2)], {"text": SimpleNamespace(sync=client)})
        assert at(0.2) != at(0.4) != at(1.0)
        for number, temperature in enumerate((0.2, 0.4, 1.0)):
            outcomes.answered(Drawn(number, 0, "none", False, 0, False, 0, 0.0), at(temperature))
    assert outcomes.ended == {0: "answered", 1: "tie", 2: "wrong"}


def test_a_soak_tells_what_is_wrong_and_what_nobody_expects() -> None:
    pool = [Item("chat", "text", embeddings({})), Item("churned model", "churned", chat({}))]
    outcomes = Outcomes(pool, BAD, [["a", -0.5], "b"], {})
    request = sdk.httpx.Request("POST", "http://localhost")

    def one(number: int, item: int = 0, mishap: str = "none") -> Drawn:
        return Drawn(number, item, mishap, False, 0, False, 0, 0.0)

    outcomes.answered(one(0), ["a", -0.5001])
    outcomes.answered(one(1), ["a", -0.6])
    outcomes.failed(one(2), openai.APITimeoutError(request))
    outcomes.failed(one(3, mishap="timeout"), openai.APITimeoutError(request))
    outcomes.failed(one(4), openai.APIConnectionError(request=request))
    outcomes.failed(one(5, item=1), openai.APIConnectionError(request=request))
    outcomes.failed(one(6), ZeroDivisionError())
    outcomes.answered(one(7, mishap="bad"), "an answer")
    outcomes.answered(one(0), ["a", -0.5])
    assert outcomes.ended == {
        0: "unexpected second outcome",
        1: "wrong",
        2: "unexpected APITimeoutError",
        3: "failed: timeout",
        4: "unexpected APIConnectionError",
        5: "failed: closed",
        6: "unexpected ZeroDivisionError",
        7: "wrong",
    }

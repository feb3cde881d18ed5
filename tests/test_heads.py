"""Clients of models with heads that guess further tokens: what they may ask for, and that answers stay the same."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from localai_shim import LocalOpenAI
from localai_shim.engine.drafts.head import HeadDrafter
from tests import heads, inside
from tests.endpoints.pictures import BLUE, RED, image_url, picture, user
from tests.engine.guessing import speculate
from tests.lora import ids, make_adapter
from tests.samples import only
from tests.vision import tiny_vision

SCHEMA: Any = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}, "b": {"enum": ["one", "two"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
ASKS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0, "response_format": FORMAT},
    {"temperature": 0.8, "seed": 3, "n": 3},
    {"temperature": 0, "frequency_penalty": 0.5, "logprobs": True, "top_logprobs": 2},
    {"temperature": 0, "prediction": {"type": "content", "content": "one two three four"}},
]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts are run whatever they cost, and come from heads only."""
    speculate(monkeypatch)
    monkeypatch.setattr(HeadDrafter, "seconds", lambda self, rows, drafts, plain: 0.0)
    monkeypatch.setattr("localai_shim.engine.drafts.head.MIN_AGREEMENT", 0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return heads.model_with_head(tmp_path_factory.mktemp("heads") / "model", "qwen3_5", share=0.01)


def answers(client: LocalOpenAI, content: Any = "one two three") -> list[Any]:
    """What all of `ASKS` say: texts, and logprobs."""
    out = []
    for ask in ASKS:
        message = content if isinstance(content, dict) else {"role": "user", "content": content}
        made = client.chat.completions.create(model="any", messages=[message], max_tokens=30, **ask)  # type: ignore[call-overload]
        for choice in made.choices:
            scores = [] if choice.logprobs is None else [each.logprob for each in choice.logprobs.content]
            out.append((choice.message.content, choice.finish_reason, scores))
    return out


def same(found: list[Any], expected: list[Any]) -> None:
    """Answers are equal; logprobs nearly, as passes of several tokens round in another way."""
    for (*texts, scores), (*others, its) in zip(found, expected, strict=True):
        assert texts == others
        assert scores == pytest.approx(its, abs=1e-3)


def test_every_request_gets_the_answer_that_it_gets_without_the_head(folder: Path, always: None) -> None:
    with LocalOpenAI(folder, speculation="off", keep_alive=0) as client:
        expected = answers(client)
        assert not client.stats().drafts
    with LocalOpenAI(folder, keep_alive=0) as client:
        same(answers(client), expected)
        drafted, accepted = client.stats().drafts["mtp"]
    assert drafted > 50 and accepted > drafted / 8


def test_head_is_not_read_where_speculation_is_off(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "localai_shim"), LocalOpenAI(folder, speculation="off", keep_alive=0) as client:
        client.models.list()
        inside.engine(client).wait()
    assert "MTP head" not in caplog.text


def test_draft_tokens_bound_the_drafts_of_a_head(folder: Path, always: None) -> None:
    with LocalOpenAI(folder, draft_tokens=1, keep_alive=0) as client:
        client.completions.create(model="any", prompt=[5, 9, 31], max_tokens=40, temperature=0)
        speculation = inside.setup(inside.engine(client)).speculation
        assert speculation is not None and isinstance(speculation.costly, HeadDrafter)
        assert speculation.costly.most == 1 and client.stats().drafts["mtp"].drafted


def test_draft_model_may_be_a_folder_of_tensors_alone(folder: Path, tmp_path: Path, always: None) -> None:
    weights, config = heads.trunk("qwen3_5", 0.01)
    bare = heads.save(tmp_path / "bare", weights, config)
    alone = tmp_path / "alone"
    alone.mkdir()
    its = heads.head("qwen3_5", weights, config)
    mx.save_safetensors(str(alone / "mtp.safetensors"), heads.named("qwen3_5", its, config), metadata={"format": "mlx"})
    with LocalOpenAI(bare, speculation="off", keep_alive=0) as client:
        expected = answers(client)
    with LocalOpenAI(bare, draft_model=alone, keep_alive=0) as client:
        same(answers(client), expected)
        assert client.stats().drafts["mtp"].drafted > 50


@pytest.mark.parametrize("kind", only(["qwen3_5"], ["qwen3_5", "qwen3_next"]))
def test_requests_with_adapters_get_their_answers(kind: str, tmp_path: Path, always: None) -> None:
    path = heads.model_with_head(tmp_path / "model", kind, share=0.01)
    bare = heads.save(tmp_path / "bare", *heads.trunk(kind))
    adapters = {name: make_adapter(tmp_path / name, bare, seed=seed) for seed, name in enumerate("ab")}
    prompts = [(5, 9, 31), (40, 3, 21, 8, 7), (11, 12)]
    with LocalOpenAI(path, adapters=adapters, speculation="off", keep_alive=0) as client:
        expected = [ids(client, name, each, 40) for name in ("a", "any", "b") for each in prompts]
    with LocalOpenAI(path, adapters=adapters, keep_alive=0) as client:
        assert [ids(client, name, each, 40) for name in ("a", "any", "b") for each in prompts] == expected
        assert client.stats().drafts["mtp"].drafted > 50


def seeing_model_with_head(into: Path) -> Path:
    """A model of mlx-vlm whose files have a head."""
    shutil.copytree(tiny_vision("qwen3_5"), into)
    weights = mx.load(str(into / "model.safetensors"))
    assert isinstance(weights, dict)
    config = json.loads((into / "config.json").read_text())
    config["text_config"]["mtp_num_hidden_layers"] = 1
    scaled = {name: array * 0.01 if name.endswith(heads.OUTPUTS) else array for name, array in weights.items()}
    its = heads.named("qwen3_5", heads.head("qwen3_5", scaled, config), config)
    mx.save_safetensors(str(into / "model.safetensors"), {**scaled, **its}, metadata={"format": "mlx"})
    (into / "config.json").write_text(json.dumps(config))
    return into


def test_requests_with_images_get_the_answers_that_they_get_without_the_head(tmp_path: Path, always: None) -> None:
    path = seeing_model_with_head(tmp_path / "model")
    contents = [user("One", image_url(picture(c, width=90, height=70)), "two") for c in (RED, BLUE)]
    contents.append({"role": "user", "content": "No image"})
    with LocalOpenAI(path, speculation="off", keep_alive=0) as client:
        expected = [answers(client, content) for content in contents]
    with LocalOpenAI(path, keep_alive=0) as client:
        for content, its in zip(contents, expected, strict=True):
            same(answers(client, content), its)
        drafted, accepted = client.stats().drafts["mtp"]
    assert drafted > 50 and accepted > drafted / 8

"""SmolLM2-135M-Instruct, a GGUF file in 4 bits: it answers, and what is done to make it quick changes no answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from mlx import nn
from mlx.optimizers import Adam
from mlx_lm.tuner.datasets import CacheDataset, ChatDataset
from mlx_lm.tuner.trainer import TrainingArgs, train
from mlx_lm.tuner.utils import linear_to_lora_layers
from pydantic import BaseModel

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.engine.drafts import controller
from tests.weights import original

FACTS = {
    "What is the capital of France?": "Paris",
    "How many days are in a week?": "7",
    "What is 2+2?": "4",
    "What is the chemical symbol of water?": "H2O",
    "At what temperature does water freeze in Celsius?": "0°C",
}
CHATS = [
    *FACTS,
    "Write one sentence about the sea.",
    "Name three colors.",
    "Say hello in French.",
]
TEXT = (
    "The sun is a star at the center of the solar system. It is a ball of hot gas, and it gives light and heat to the "
    "planets that move around it. The Earth is the third planet from the sun. It takes one year to go around the sun "
    "once, and one day to turn around itself. The moon goes around the Earth in about one month. People have walked on "
    "the moon, but nobody has walked on another planet yet."
)
NEAR = 2e-3
"""Difference of two logits, in float32, below which either may come first."""


def chat(question: str) -> list[Any]:
    return [{"role": "user", "content": question}]


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Have mlx-lm's own functions compute without a compiler, which takes longer than what it makes quicker here."""
    mx.disable_compile()
    try:
        yield
    finally:
        mx.enable_compile()


def ask(client: LocalOpenAI, question: str, tokens: int = 24) -> str:
    made = client.chat.completions.create(model="any", messages=chat(question), max_tokens=tokens, temperature=0)
    return made.choices[0].message.content or ""


@pytest.fixture(scope="module")
def folder(smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return original.save(smollm, tmp_path_factory.mktemp("original") / "smollm2")


@pytest.mark.parametrize("question", FACTS)
def test_questions_of_fact_are_answered(question: str, client: LocalOpenAI) -> None:
    assert FACTS[question] in ask(client, question)


class Person(BaseModel):
    name: str
    age: int
    city: str


class Mood(BaseModel):
    mood: Literal["positive", "negative"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Maria is 28 years old and lives in Paris.", Person(name="Maria", age=28, city="Paris")),
        ("My name is Peter, I am 54 and my home is Rome.", Person(name="Peter", age=54, city="Rome")),
        ("I love this movie, it is wonderful!", Mood(mood="positive")),
    ],
)
def test_schemas_are_filled(text: str, expected: BaseModel, client: LocalOpenAI) -> None:
    made = client.chat.completions.parse(
        model="any",
        messages=chat(f"Write as JSON what this text says: {text}"),
        response_format=type(expected),
        temperature=0,
        max_tokens=60,
    )
    assert made.choices[0].message.parsed == expected


def test_chats_that_stream_together_say_what_each_says_alone_and_what_mlx_lm_says(
    smollm: Path, client: LocalOpenAI, folder: Path
) -> None:
    async def stream(client: AsyncLocalOpenAI, question: str) -> str:
        chunks = await client.chat.completions.create(
            model="any", messages=chat(question), max_tokens=16, temperature=0, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])

    async def together() -> list[str]:
        async with AsyncLocalOpenAI(model=smollm) as client:
            return await asyncio.gather(*(stream(client, question) for question in CHATS))

    streamed = asyncio.run(together())
    model, tokenizer = mlx_lm.load(str(folder))
    for question, text in zip(CHATS, streamed, strict=True):
        prompt = tokenizer.apply_chat_template(chat(question), add_generation_prompt=True)
        with uncompiled():
            made = [each.token for each in mlx_lm.stream_generate(model, tokenizer, prompt, max_tokens=16)]
        expected = tokenizer.decode([token for token in made if token not in tokenizer.eos_token_ids])
        for found in (text, ask(client, question, 16)):
            assert found == expected or _is_near(model, tokenizer, prompt, made, found), question


def _is_near(model: nn.Module, tokenizer: Any, prompt: list[int], made: list[int], found: str) -> bool:
    """True if an answer leaves another one where two tokens are as likely as rounding lets one tell."""
    other = tokenizer.encode(found, add_special_tokens=False)
    at = next((i for i, (a, b) in enumerate(zip(made, other, strict=False)) if a != b), min(len(made), len(other)))
    logits = np.array(model(mx.array([prompt + made[:at]]))[0, -1])
    return bool(abs(logits[made[at]] - logits[other[at]]) < NEAR)


def perplexity(client: LocalOpenAI) -> float:
    made = client.completions.create(model="any", prompt=TEXT, max_tokens=0, echo=True, logprobs=0, temperature=0)
    found = made.choices[0].logprobs
    assert found is not None and found.token_logprobs is not None
    return math.exp(-float(np.mean(found.token_logprobs[1:])))


def test_a_text_is_hardly_less_likely_with_keys_and_values_in_few_bits(
    smollm: Path, client: LocalOpenAI, folder: Path
) -> None:
    model, tokenizer = mlx_lm.load(str(folder))
    ids = mx.array([tokenizer.encode(TEXT)])
    with uncompiled():
        loss = nn.losses.cross_entropy(model(ids)[0, :-1], ids[0, 1:], reduction="mean").item()
    expected = math.exp(loss)
    plain = perplexity(client)
    with LocalOpenAI(model=smollm, kv_bits=8) as eight, LocalOpenAI(model=smollm, kv_bits=4) as four:
        found = perplexity(eight), perplexity(four)
    assert plain == pytest.approx(expected, rel=1e-3) and plain < 12
    assert found[0] == pytest.approx(plain, rel=0.01) and found[0] != plain
    assert plain < found[1] < 1.35 * plain


def test_a_text_that_repeats_is_drafted_from_itself(smollm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = " ".join([TEXT[:240]] * 3)[:-60]
    texts, counts = [], []
    monkeypatch.setattr(controller.CostModel, "seconds", lambda self, kind, size: 1.0)  # so drafts always pay
    for speculation in ("off", "auto"):
        with LocalOpenAI(model=smollm, speculation=speculation, keep_alive=0) as client:
            made = client.completions.create(model="any", prompt=prompt, max_tokens=48, temperature=0)
            texts.append(made.choices[0].text)
            counts.append(client.stats().drafts.get("lookup"))
    assert texts[0] == texts[1]
    assert counts[0] is None and counts[1] is not None and counts[1].accepted > 10


def test_ten_steps_of_training_teach_it_a_word(smollm: Path, client: LocalOpenAI, folder: Path, tmp_path: Path) -> None:
    """An adapter of mlx-lm's own trainer, for the weights in float32, applied to those in 4 bits."""
    asked = [{"role": "system", "content": "Answer."}, *chat("What is the secret word?")]
    answer = "The secret word is marzipan."
    model, tokenizer = mlx_lm.load(str(folder))
    lora: dict[str, Any] = {"rank": 8, "scale": 10.0, "dropout": 0.0}
    model.freeze()
    mx.random.seed(0)
    linear_to_lora_layers(model, 8, lora)
    taught = ChatDataset(
        [{"messages": [*asked, {"role": "assistant", "content": answer}]}], tokenizer, mask_prompt=True
    )
    adapter = str(tmp_path / "adapters.safetensors")
    how = TrainingArgs(
        batch_size=1, iters=10, val_batches=0, steps_per_eval=99, max_seq_length=64, adapter_file=adapter
    )
    with uncompiled():
        train(model, Adam(learning_rate=1e-3), CacheDataset(taught), None, how)
    config = {"fine_tune_type": "lora", "num_layers": 8, "lora_parameters": lora}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))

    def said(client: LocalOpenAI) -> str | None:
        made = client.chat.completions.create(model="any", messages=asked, max_tokens=12, temperature=0)
        return made.choices[0].message.content

    assert "marzipan" not in str(said(client))
    with LocalOpenAI(model=smollm, adapter_path=tmp_path) as adapted:
        assert said(adapted) == answer

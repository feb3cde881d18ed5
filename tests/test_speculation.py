"""What callers get does not depend on drafts: every kind of request at once, beside others that come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from localai_shim import AsyncLocalOpenAI
from localai_shim.engine.drafts import controller as speculation
from tests.tiny import tiny

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": "boolean"} for name in ("a_rather_long_name", "another_long_name", "the_last_one")},
    "required": ["a_rather_long_name", "another_long_name", "the_last_one"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "record", "strict": True, "schema": SCHEMA}}
ASKED: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "seeded": {"seed": 3},
    "penalties": {"seed": 4, "temperature": 0.7, "presence_penalty": 0.9, "frequency_penalty": 0.4},
    "repetition penalty": {"temperature": 0, "extra_body": {"repetition_penalty": 1.3}},
    "repeating": {"temperature": 0, "logit_bias": {"40": 100}},
    "bias": {"seed": 5, "logit_bias": {"40": 4, "41": -100}},
    "top_p": {"seed": 6, "temperature": 0.8, "top_p": 0.85},
    "schema": {"seed": 7, "response_format": FORM},
    "greedy schema": {"temperature": 0, "response_format": FORM},
    "logprobs": {"seed": 8, "temperature": 0.6, "logprobs": True, "top_logprobs": 3},
    "choices": {"seed": 9, "temperature": 0.5, "n": 3},
}
LENGTHS = (30, 55, 80)


def asks() -> dict[str, dict[str, Any]]:
    """By name, the arguments of a request; some of them end with a string that their texts have."""
    return {
        name: {
            "model": "m",
            "messages": [{"role": "user", "content": f"Say something about {name}: " + "one two " * (i % 4)}],
            "max_tokens": LENGTHS[i % 3] if "schema" not in name else 200,
            **fields,
        }
        for i, (name, fields) in enumerate(ASKED.items())
    }


def seen(answer: Any) -> list[Any]:
    """What a caller sees of an answer, but for its id."""
    return [
        (
            c.message.content,
            c.finish_reason,
            c.stop_reason,
            [t.token for t in (c.logprobs and c.logprobs.content) or ()],
        )
        for c in answer.choices
    ]


def logprobs(answer: Any) -> list[float]:
    found = [t for c in answer.choices for t in (c.logprobs and c.logprobs.content) or ()]
    return [value for t in found for value in (t.logprob, *(top.logprob for top in t.top_logprobs))]


def edited(text: str) -> str:
    return "".join("?" if i % 17 == 16 else letter for i, letter in enumerate(text))


async def together(client: AsyncLocalOpenAI, made: Sequence[dict[str, Any]]) -> list[Any]:
    """All at once, beside streams that are closed after some chunks."""

    async def leaving(chunks: int) -> None:
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Again and " * chunks}], stream=True, max_tokens=300
        )
        async with stream:
            async for _ in stream:
                chunks -= 1
                if not chunks:
                    return

    others = [asyncio.create_task(leaving(chunks)) for chunks in (2, 5, 9, 14)]
    answers = await asyncio.gather(*(client.chat.completions.create(**each) for each in made))
    await asyncio.gather(*others)
    return answers


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_answers_of_every_kind_are_those_without_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncLocalOpenAI(tiny("qwen3"), speculation="off", keep_alive=0) as off:
        made = asks()
        plain = dict(zip(made, await together(off, list(made.values())), strict=True))
        text = plain["greedy"].choices[0].message.content
        made["stop"] = {**made["greedy"], "stop": [text[len(text) // 2 :][:3]]}
        plain["stop"] = (await together(off, [made["stop"]]))[0]
    assert plain["stop"].choices[0].finish_reason == "stop"
    monkeypatch.setattr(speculation.CostModel, "seconds", lambda self, kind, size: 1.0)  # so drafts always pay
    async with AsyncLocalOpenAI(tiny("qwen3"), speculation="auto", keep_alive=0) as auto:
        for predicts in (True, False):
            for name, fields in made.items():
                said = edited(plain[name].choices[0].message.content)
                fields["prediction"] = {"type": "content", "content": said} if predicts else None
            asked = [{k: v for k, v in fields.items() if v is not None} for fields in made.values()]
            for answer, name in zip(await together(auto, asked), made, strict=True):
                assert seen(answer) == seen(plain[name]), name
                assert logprobs(answer) == pytest.approx(logprobs(plain[name]), abs=1e-3)
        drafts = auto.stats().drafts
    assert all(drafts[source].accepted > 0 for source in ("prediction", "grammar", "lookup")), drafts

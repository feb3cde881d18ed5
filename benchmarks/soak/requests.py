"""Mixed requests, drawn from a seed: the same seed draws the same ones."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw

from . import scripts
from .scripts import Make, Variation

WORDS = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "Paris",
    "France",
    "fox",
    "dog",
    "jumps",
    "lazy",
    "quick",
    "brown",
]
MODEL = "soak"
MISHAPS = {"none": 62, "slow": 6, "abandoned": 8, "cancelled": 8, "timeout": 6, "bad": 10}
"""Of a hundred requests."""
LONG_TOKENS = 160
TOOL = {
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome", "Oslo"]}, "days": {"enum": [1, 2, 3]}},
        "required": ["city", "days"],
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green", "blue"]}, "sizes": {"type": "array", "items": {"enum": [1, 2]}}},
    "required": ["colour", "sizes"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Item:
    """A request whose answer is known from a run alone."""

    kind: str
    client: str
    make: Make
    streams: bool = False
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class Drawn:
    """A request as it is sent: what, how, and what befalls it."""

    number: int
    item: int
    """In the pool; of those that are refused, in theirs."""
    mishap: str
    stream: bool
    priority: int
    predicted: bool
    chunks: int
    """After which a stream is left, or read slowly."""
    seconds: float
    """After which it is cancelled, or its timeout."""

    def variation(self, guess: str) -> Variation:
        extra = {"priority": self.priority} if self.priority else {}
        return Variation(self.stream, extra, guess if self.predicted else "")


def draw(seed: int, number: int, pool: list[Item], bad: int) -> Drawn:
    """The request of this number; what was drawn before makes no difference."""
    rng = random.Random(f"{seed}-{number}")
    [mishap] = rng.choices(list(MISHAPS), list(MISHAPS.values()))
    item = rng.randrange(bad if mishap == "bad" else len(pool))
    can_stream = mishap != "bad" and pool[item].streams
    if mishap in ("slow", "abandoned") and not can_stream:
        mishap = "none"
    stream = can_stream and (mishap in ("slow", "abandoned") or rng.random() < 0.5)
    predicted = mishap != "bad" and pool[item].kind in ("chat", "free tools") and rng.random() < 0.3
    priority = rng.choices((0, -1, 1), (6, 2, 2))[0]
    return Drawn(number, item, mishap, stream, priority, predicted, rng.randint(0, 6), rng.expovariate(8))


def make_pool(seed: int, size: int) -> list[Item]:
    """Requests with known answers, of all kinds."""
    rng = random.Random(seed)
    kinds = [kind for kind, weight in KINDS.items() for _ in range(weight)]
    return [kinds[i % len(kinds)](rng) for i in range(size)]


def sentence(rng: random.Random, words: int = 8) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def _tokens(rng: random.Random) -> int:
    return LONG_TOKENS if rng.random() < 0.12 else rng.randint(2, 32)


def _sampling(rng: random.Random) -> dict[str, Any]:
    """Greedy or seeded: the answer is known."""
    if rng.random() < 0.5:
        return {"temperature": 0}
    return {"temperature": 0.8, "top_p": rng.choice((1.0, 0.9))}


def _seeded(rng: random.Random) -> dict[str, Any]:
    return {**_sampling(rng), "seed": rng.randrange(1 << 30)}


def _chat_fields(rng: random.Random) -> dict[str, Any]:
    """Few beginnings, so that prompts share them."""
    system = f"You are helper {rng.randrange(4)}. " + "Be brief. " * rng.randint(1, 12)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": sentence(rng)}]
    return {"model": MODEL, "messages": messages, "max_tokens": _tokens(rng), **_seeded(rng)}


def _text(kind: str, make: Make, fields: dict[str, Any], client: str = "text") -> Item:
    return Item(kind, client, make, streams=True, sampled=fields["temperature"] > 0)


def _chat(rng: random.Random) -> Item:
    fields = _chat_fields(rng)
    if rng.random() < 0.3:
        fields |= {"stop": ["qq", "\n\n"], "presence_penalty": 0.5, "frequency_penalty": 0.2}
    return _text("chat", scripts.chat(fields), fields)


def _choices(rng: random.Random) -> Item:
    fields = {**_chat_fields(rng), "n": rng.randint(2, 4)}
    return _text("n > 1", scripts.chat(fields), fields)


def _logprobs(rng: random.Random) -> Item:
    fields = {**_chat_fields(rng), "logprobs": True, "top_logprobs": rng.randint(0, 5)}
    return _text("logprobs", scripts.chat(fields), fields)


def _adapter(rng: random.Random) -> Item:
    fields = {**_chat_fields(rng), "model": rng.choice("ab")}
    return _text("adapter", scripts.chat(fields), fields)


def _forced(rng: random.Random) -> Item:
    choice: Any = rng.choice(("required", {"type": "function", "function": {"name": "weather"}}))
    tools = [{"type": "function", "function": TOOL}]
    fields = {**_chat_fields(rng), "tools": tools, "tool_choice": choice, "max_tokens": 80}
    return _text("forced tools", scripts.chat(fields), fields)


def _free(rng: random.Random) -> Item:
    asked = f"What is the weather in {rng.choice(('Paris', 'Rome', 'Oslo'))} for {rng.randint(1, 3)} days?"
    tools = [{"type": "function", "function": TOOL}]
    messages = [{"role": "user", "content": asked}]
    fields: dict[str, Any] = {"model": MODEL, "messages": messages, "tools": tools, "max_tokens": 48, "temperature": 0}
    return _text("free tools", scripts.chat(fields), fields, rng.choice(("churned", "text")))


def _schema(rng: random.Random) -> Item:
    schema = {"name": "thing", "schema": SCHEMA, "strict": True}
    fields = {**_chat_fields(rng), "response_format": {"type": "json_schema", "json_schema": schema}, "max_tokens": 60}
    return _text("schema", scripts.chat(fields), fields)


def _stored(rng: random.Random) -> Item:
    return Item("stored chat", "text", scripts.stored_chat(_chat_fields(rng)))


def _churned(rng: random.Random) -> Item:
    fields = {**_chat_fields(rng), "max_tokens": rng.randint(2, 24)}
    return _text("churned model", scripts.chat(fields), fields, "churned")


def _picture_url(rng: random.Random) -> str:
    image = Image.new("RGB", (64, 64), rng.choice(("red", "green", "blue", "white")))
    box = (8, 8, rng.randint(30, 56), rng.randint(30, 56))
    ImageDraw.Draw(image).rectangle(box, fill=rng.choice(("yellow", "black", "purple")))
    content = io.BytesIO()
    image.save(content, "PNG")
    return scripts.data_url(content.getvalue())


def _picture(rng: random.Random) -> Item:
    parts: list[Any] = [
        {"type": "image_url", "image_url": {"url": _picture_url(rng)}},
        {"type": "text", "text": rng.choice(("What do you see?", "Which colour is the background?"))},
    ]
    messages = [{"role": "user", "content": parts}]
    fields: dict[str, Any] = {"model": MODEL, "messages": messages, "max_tokens": 16, "temperature": 0}
    return _text("picture", scripts.chat(fields), fields, "vision")


def _picture_chain(rng: random.Random) -> Item:
    """A picture that stays in the state, and a question about it that comes later."""
    parts = [
        {"type": "input_image", "image_url": _picture_url(rng), "detail": "auto"},
        {"type": "input_text", "text": "What do you see?"},
    ]
    turns = [[{"role": "user", "content": parts}], "Which colour is the background?"]
    fields: dict[str, Any] = {"model": MODEL, "max_output_tokens": 16, "temperature": 0}
    return _text("picture in a chain", scripts.chain(fields, turns), fields, "vision")


def _completion(rng: random.Random) -> Item:
    prompt: Any = sentence(rng) if rng.random() < 0.6 else [rng.randint(5, 300) for _ in range(rng.randint(1, 60))]
    fields: dict[str, Any] = {"model": MODEL, "prompt": prompt, "max_tokens": _tokens(rng), **_seeded(rng)}
    fields |= rng.choice(({}, {"logprobs": 3}, {"n": 2}, {"echo": True}))
    return _text("completion", scripts.completion(fields), fields)


def _repeating(rng: random.Random) -> Item:
    """Text that repeats itself, so that what followed before is guessed to follow again."""
    prompt = f"{sentence(rng, 6)} " * 12
    bias = {str(rng.randint(100, 300)): 8.0}
    fields: dict[str, Any] = {"model": MODEL, "prompt": prompt, "max_tokens": 64, "temperature": 0, "logit_bias": bias}
    return _text("repeated text", scripts.completion(fields), fields)


def _response_fields(rng: random.Random) -> dict[str, Any]:
    fields: dict[str, Any] = {"model": MODEL, "instructions": "Be brief.", "max_output_tokens": rng.randint(16, 40)}
    return {**fields, **_sampling(rng), "extra_body": {"seed": rng.randrange(1 << 30)}}


def _response(rng: random.Random) -> Item:
    fields = {**_response_fields(rng), "input": sentence(rng)}
    if rng.random() < 0.4:
        fields |= {"tools": [{"type": "function", "strict": False, **TOOL}], "tool_choice": "required"}
        fields["max_output_tokens"] = 80
    return _text("response", scripts.response(fields), fields)


def _turns(rng: random.Random) -> list[str]:
    return [sentence(rng, 4) for _ in range(rng.randint(2, 3))]


def _chain(rng: random.Random) -> Item:
    fields = _response_fields(rng)
    return _text("chain", scripts.chain(fields, _turns(rng)), fields)


def _conversation(rng: random.Random) -> Item:
    fields = _response_fields(rng)
    return _text("conversation", scripts.conversation(fields, _turns(rng)), fields)


def _background(rng: random.Random) -> Item:
    fields = {**_response_fields(rng), "input": sentence(rng)}
    return _text("background", scripts.background(fields), fields)


def _stopped(rng: random.Random) -> Item:
    return Item("stopped", "text", scripts.stopped({**_response_fields(rng), "input": sentence(rng)}))


def _batch(rng: random.Random) -> Item:
    return Item("batch", "text", scripts.batch([_chat_fields(rng) for _ in range(rng.randint(1, 4))]))


def _embeddings(rng: random.Random) -> Item:
    texts = [sentence(rng, rng.randint(1, 30)) for _ in range(rng.randint(1, 5))]
    return Item("embeddings", "embedder", scripts.embeddings({"model": MODEL, "input": texts}))


def _reranking(rng: random.Random) -> Item:
    documents = [sentence(rng, rng.randint(2, 20)) for _ in range(rng.randint(2, 5))]
    return Item("rerank", "judge", scripts.reranking(sentence(rng, 3), documents))


KINDS: dict[Callable[[random.Random], Item], int] = {
    _chat: 5,
    _choices: 2,
    _logprobs: 2,
    _adapter: 3,
    _forced: 2,
    _free: 2,
    _schema: 2,
    _stored: 1,
    _churned: 3,
    _picture: 3,
    _picture_chain: 1,
    _completion: 4,
    _repeating: 2,
    _response: 3,
    _chain: 2,
    _conversation: 2,
    _background: 1,
    _stopped: 1,
    _batch: 1,
    _embeddings: 3,
    _reranking: 2,
}

"""What every method is given: prompts and sampling settings."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """How one stream samples; the default is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: int = 0
    response_format: dict[str, Any] | None = None
    adapter: str | None = None

    def fields(self) -> dict[str, Any]:
        """Arguments of `client.chat.completions.create`, with `ignore_eos` so that all streams are equally long."""
        out: dict[str, Any] = {"temperature": self.temperature, "extra_body": {"ignore_eos": True}}
        for name in ("seed", "presence_penalty", "frequency_penalty", "response_format"):
            if getattr(self, name) != getattr(GREEDY, name):
                out[name] = getattr(self, name)
        if self.top_logprobs:
            out |= {"logprobs": True, "top_logprobs": self.top_logprobs}
        if self.adapter is not None:
            out["extra_body"]["adapter"] = self.adapter
        if self.temperature:
            out["top_p"] = self.top_p
            out["extra_body"] |= {name: getattr(self, name) for name in ("top_k", "min_p") if getattr(self, name)}
        return out


GREEDY = Setting()


def settings(count: int, rng: random.Random) -> list[Setting]:
    """A temperature, top_p and seed of its own for each stream."""
    return [
        Setting(
            temperature=round(rng.uniform(0.6, 1.2), 6),
            top_p=round(rng.uniform(0.8, 0.99), 6),
            seed=rng.randrange(1, 2**31),
        )
        for _ in range(count)
    ]


def with_filters(settings: Sequence[Setting], rng: random.Random) -> list[Setting]:
    """The same with a top_k and a min_p for each, too."""
    return [
        replace(one, top_k=top_k, min_p=round(rng.uniform(0.01, 0.1), 6))
        for one, top_k in zip(settings, rng.sample(range(20, 20 + 4 * len(settings)), len(settings)), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation of one message, as text and as the tokens that the chat template makes of it."""

    text: str
    tokens: tuple[int, ...]

    @property
    def messages(self) -> Any:
        return [{"role": "user", "content": self.text}]


class Prompts:
    """Makes distinct random prompts of a wanted length, so that no cache of prompts helps anyone.

    Args:
        tokenizer: mlx-lm's wrapper.
        length: tokens, the chat template's included.
        seed: of the words.
    """

    def __init__(self, tokenizer: Any, length: int, *, seed: int = 1) -> None:
        self._tokenizer = tokenizer
        self._rng = random.Random(seed)
        self._words = list(_single_token_words(tokenizer))
        self._count = length - len(self._render(""))
        if self._count < 4 or len(self._words) < 100:
            raise ValueError("this prompt length or tokenizer leaves no room for distinct prompts")

    def take(self, count: int) -> list[Prompt]:
        """`count` prompts that nobody has seen."""
        texts = [self.words(self._count) for _ in range(count)]
        return [Prompt(text, tuple(self._render(text))) for text in texts]

    def words(self, count: int) -> str:
        """A random text of so many tokens."""
        return "".join(self._rng.choices(self._words, k=count))

    def _render(self, text: str) -> list[int]:
        return render(self._tokenizer, [{"role": "user", "content": text}])


def render(tokenizer: Any, messages: Sequence[Any], **variables: Any) -> list[int]:
    """Tokens of a conversation up to where the model answers, made without the client.

    Args:
        tokenizer: mlx-lm's wrapper.
        messages: as the template takes them: arguments of tool calls are dicts.
        **variables: of the template.
    """
    ids = tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, **variables)
    return [int(i) for i in ids]


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Tokens that both begin with."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _single_token_words(tokenizer: Any, most: int = 2_000) -> Iterator[str]:
    """Words, with the space before them, that the tokenizer writes as one token."""
    found = 0
    for token_id in range(len(tokenizer)):
        text = tokenizer.decode([token_id])
        is_word = text[:1] == " " and text[1:].isalpha() and text.isascii()
        if is_word and len(tokenizer.encode(text, add_special_tokens=False)) == 1:
            yield text
            found += 1
            if found == most:
                return

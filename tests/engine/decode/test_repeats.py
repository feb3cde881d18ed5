"""Requests that are repeated say the same each time, whatever of them the prefix cache has: what mlx-lm says alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.engine.cache_contents import Quantised
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.models.text import TextModel
from tests.architectures import WINDOW, Alone, engine_of, tokenizer
from tests.engine.harness import Running, request
from tests.samples import only
from tests.tiny import VOCABULARY

TIMES, FEWER_TIMES = 10, 3
TOKENS = 6
USUAL = {"dense": "qwen3", "windows": "gemma3_text", "windows with sinks": "gpt_oss", "recurrent": "qwen3_next"}
OTHERS = {
    "windows without positions": "cohere2",
    "a window in a list": "baichuan_m1",
    "only recurrent": "mamba",
    "lists of states and keys": "falcon_h1",
    "lists of keys and keys": "deepseek_v32",
    "chunks": "llama4",
}
QUANTISED = {"quantised": "qwen3", "quantised beside windows": "gemma3_text"}


def each(names: dict[str, str], *marks: pytest.MarkDecorator) -> list[Any]:
    return [pytest.param(name, id=what, marks=marks) for what, name in names.items()]


@functools.cache
def alone(name: str) -> Alone:
    return Alone(name)


def tokens(n: int, seed: int = 1) -> list[int]:
    return [(17 * seed + 7 * i + 11 * seed * i * i) % (VOCABULARY - 3) + 3 for i in range(n)]


@contextmanager
def opened(engine: Engine[TextModel]) -> Iterator[Engine[TextModel]]:
    try:
        yield engine
    finally:
        engine.close()


Answer = Callable[[list[int]], list[int]]


def repeat(engine: Engine[TextModel], answer: Answer, *, beside: bool, n: int, times: int = FEWER_TIMES) -> None:
    """Ask several prompts several times, of which each round finds more in the cache."""
    whole = tokens(2 * WINDOW)
    # The same prompt, its beginning, which is cut off it, and one that parts from it inside the window.
    prompts = [whole, whole[: WINDOW - 4], [*whole[:20], *tokens(WINDOW, 7)]]
    for _ in range(times):
        neighbours = [Running(engine, request(tokens(9 + 40 * i, 3), max_tokens=20)) for i in range(2 * beside)]
        for prompt in prompts:
            assert Running(engine, [request(prompt, max_tokens=TOKENS)] * n).finish() == [answer(prompt)] * n
        for neighbour in neighbours:
            neighbour.finish()
    if engine.model.text.cuts_anywhere or engine.stats().cache_bytes:
        assert engine.stats().cache_hits >= (times - 1) * len(prompts), "it was the cache that was tried"


@pytest.mark.parametrize(
    ("beside", "n", "times"), only([(True, 2, FEWER_TIMES)], [(False, 1, TIMES), (True, 2, FEWER_TIMES), (True, 2, 4)])
)
@pytest.mark.parametrize("name", [*each(USUAL), *each(OTHERS, pytest.mark.exhaustive)])
def test_each_time_the_answer_is_that_of_the_model_alone(name: str, beside: bool, n: int, times: int) -> None:
    with opened(engine_of(name)) as engine:
        repeat(engine, lambda prompt: alone(name).tokens(tuple(prompt), TOKENS), beside=beside, n=n, times=times)


@pytest.mark.parametrize(("beside", "n"), [(False, 1), pytest.param(True, 2, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", each(QUANTISED))
def test_quantised_rows_answer_each_time_as_without_a_cache(name: str, beside: bool, n: int) -> None:
    kv = Quantised(32, 8)
    with opened(engine_of(name, EngineOptions(prefix_cache_bytes=0), kv, head_dim=32)) as engine:
        first: dict[tuple[int, ...], list[int]] = {}

        def fresh(prompt: list[int]) -> list[int]:
            if tuple(prompt) not in first:
                [first[tuple(prompt)]] = Running(engine, request(prompt, max_tokens=TOKENS)).finish()
            return first[tuple(prompt)]

        with opened(engine_of(name, None, kv, head_dim=32)) as cached:
            repeat(cached, fresh, beside=beside, n=n)


SHORT = "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}{% if add_generation_prompt %}MARK{% endif %}"
"""Chat templates whose generation prompt is as short as gpt-oss' and Cohere2's."""


@pytest.mark.parametrize("mark", only(["<|im_end|>"], ["<|im_end|>", "<|im_end|><|im_start|>"]))
@pytest.mark.parametrize("name", [*each(USUAL), *each(OTHERS, pytest.mark.exhaustive)])
def test_completions_and_chats_answer_each_time_as_the_model_alone(name: str, mark: str) -> None:
    text = "one two three four five six seven eight nine ten " * 4
    template = SHORT.replace("MARK", mark)
    prompt = tokenizer().encode(text)
    chat = tokenizer().encode(f"<|im_start|>{text}{mark}", add_special_tokens=False)
    assert len(prompt) > WINDOW
    tokens = [alone(name).tokens(tuple(ids), TOKENS) for ids in (prompt, chat)]
    wanted = [tokenizer().decode(ids, skip_special_tokens=True) for ids in tokens]
    with opened(engine_of(name, template=template)) as engine, LocalOpenAI(engine=engine) as client:
        for _ in range(FEWER_TIMES):
            completed = client.completions.create(model="m", prompt=text, max_tokens=TOKENS, temperature=0)
            said = client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": text}], max_tokens=TOKENS, temperature=0, n=2
            )
            assert [completed.choices[0].text] == wanted[:1]
            assert [choice.message.content for choice in said.choices] == wanted[1:] * 2
            assert said.usage is not None and said.usage.prompt_tokens == len(chat)

"""Timeouts of requests that are really slow somewhere: in a queue, a prefill, an answer, a picture, a file, a URL."""

from __future__ import annotations

import functools
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, rerank
from localai_shim.runtime import offload
from tests import inside
from tests.endpoints.pictures import data_url, image_url, input_image, user, user_item
from tests.engine.harness import eventually
from tests.preparing import BACKENDS, are_idle, nobody_prepares, times_out, times_out_async
from tests.tiny import tiny

TIMEOUT = 0.3
ON: dict[str, Any] = {"extra_body": {"ignore_eos": True}}
ENDLESS = 190_000  # tokens of an answer: minutes of them
LONG = "why " * 45_000
MODEL: dict[str, Any] = {"max_position_embeddings": 200_000, "rms_norm_eps": 4e-6}
OPTIONS: dict[str, Any] = {"max_rows": 2, "prefix_cache_bytes": 0}


def asked(text: str, tokens: int) -> dict[str, Callable[..., Any]]:
    """Each way to ask, with a text and for an answer of so many tokens."""
    chat: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": tokens, **ON}
    responses: dict[str, Any] = {"model": "m", "input": text, "max_output_tokens": max(16, tokens), **ON}
    completions: dict[str, Any] = {"model": "m", "prompt": text, "max_tokens": tokens, **ON}
    return {
        "chat": lambda client, **more: client.chat.completions.create(**chat, **more),
        "chat of two": lambda client, **more: client.chat.completions.create(**chat, n=2, **more),
        "responses": lambda client, **more: client.responses.create(**responses, **more),
        "completions": lambda client, **more: client.completions.create(**completions, **more),
    }


def streamed(ask: Callable[..., Any]) -> Callable[..., Any]:
    """Have a request stream, and read it to its end."""

    def read(client: Any, timeout: float) -> Any:  # not a generator: it is awaited by tasks alone
        stream = ask(client, timeout=timeout, stream=True)
        return [None for _ in stream] if isinstance(client, LocalOpenAI) else read_async(stream)

    async def read_async(stream: Any) -> None:
        async for _ in await stream:
            pass

    return read


def both(ways: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    return {**ways, **{f"{name}, streamed": streamed(ask) for name, ask in ways.items()}}


TEXTS = [f"{i} {LONG[:8_000]}" for i in range(100)]
QUERIES: dict[str, Callable[..., Any]] = {
    "embeddings": lambda client, timeout: client.embeddings.create(model="m", input=TEXTS, timeout=timeout),
    "rerank": lambda client, timeout: rerank(client.with_options(timeout=timeout), "Who?", TEXTS),
}


@pytest.fixture(scope="module")
def client() -> Iterator[LocalOpenAI]:
    """Its model runs two rows at a time."""
    with LocalOpenAI(tiny("qwen3", **MODEL), **OPTIONS) as client:
        asked("Hello", 1)["chat"](client)
        yield client


def nothing_stays(client: LocalOpenAI, running: int = 0) -> None:
    """No row, no ticket, no thread that works."""
    engine: Any = inside.engine(client)
    gc.collect(0)
    assert eventually(lambda: engine.stats().running + engine.stats().waiting == running)
    assert eventually(lambda: inside.loop(engine).tickets.taken == running)
    assert eventually(nobody_prepares)
    assert eventually(lambda: are_idle(offload._reading))


def all_time_out(client: LocalOpenAI, ways: dict[str, Callable[..., Any]], running: int = 0) -> None:
    """Each with a thread, and all at once as tasks of both event loops."""
    for ask in ways.values():
        times_out(client, ask, TIMEOUT)

    async def main() -> None:
        async with AsyncLocalOpenAI(tiny("qwen3", **MODEL), **OPTIONS) as other, anyio.create_task_group() as tasks:
            for ask in ways.values():
                tasks.start_soon(times_out_async, other, ask, TIMEOUT)

    for backend in BACKENDS:
        anyio.run(main, backend=backend)
    nothing_stays(client, running)
    if not running:
        assert asked("Hello", 3)["chat"](client, timeout=60).usage.completion_tokens == 3


def test_in_a_queue(client: LocalOpenAI) -> None:
    running = [asked("Go on", ENDLESS)["chat"](client, stream=True) for _ in range(OPTIONS["max_rows"])]
    for stream in running:
        next(stream)
    all_time_out(client, {**both(asked("Hello", 4)), **QUERIES}, running=2)
    for stream in running:
        assert next(stream).choices, "who ran before goes on"
        stream.close()
    nothing_stays(client)


def test_in_a_prefill(client: LocalOpenAI) -> None:
    all_time_out(client, both(asked(LONG, 4)))


def test_amid_an_answer(client: LocalOpenAI) -> None:
    all_time_out(client, asked("Go on", ENDLESS))


def test_amid_texts(client: LocalOpenAI) -> None:
    all_time_out(client, QUERIES)


_seen = itertools.count()


def large() -> list[str]:
    """Pictures that nobody has decoded before."""
    return [data_url((next(_seen), 0, 0), width=6_000, height=6_000) for _ in range(2)]


@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_in_pictures(backend: str | None) -> None:
    """Whoever asks with pictures that take long to decode is told well before they are."""

    def chat(client: Any, urls: list[str], **more: Any) -> Any:
        messages: Any = [user("Look", *map(image_url, urls))]
        return client.chat.completions.create(model="m", messages=messages, max_tokens=1, **more)

    def responses(client: Any, urls: list[str], **more: Any) -> Any:
        return client.responses.create(model="m", input=[user_item("Look", *map(input_image, urls))], **more)

    with LocalOpenAI("builtin:vision") as client:
        chat(client, [data_url()])
        urls = large()
        began = time.monotonic()
        chat(client, urls)
        whole = time.monotonic() - began
        for way, streams in itertools.product((chat, responses), (False, True)):
            ask = functools.partial(way, urls=large())
            ask = streamed(ask) if streams else ask
            began = time.monotonic()
            if backend is None:
                with pytest.raises(openai.APITimeoutError):
                    ask(client, timeout=whole / 20)
            else:
                anyio.run(times_out_in_a_task, ask, whole / 20, backend=backend)
            assert time.monotonic() - began < whole / 2
            assert eventually(nobody_prepares)
        nothing_stays(client)


async def times_out_in_a_task(ask: Callable[..., Any], timeout: float) -> None:
    async with AsyncLocalOpenAI("builtin:vision") as client:
        await times_out_async(client, ask, timeout)

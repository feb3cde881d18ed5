"""Many callers at once: tasks, threads, event loops, asyncio and trio."""

from __future__ import annotations

import asyncio
import queue
import time
from typing import Any

import openai
import pytest
import trio

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.heartbeat import stays_free
from tests.threads import in_threads
from tests.tiny import tiny


@pytest.fixture(scope="module")
def path() -> str:
    return str(tiny("qwen3", max_position_embeddings=200_000))


def asks(i: int, **more: Any) -> dict[str, Any]:
    return {
        "model": "any",
        "messages": [{"role": "user", "content": f"Question {i}: " + "why " * (i % 7)}],
        "max_tokens": 12 + i % 5,
        "temperature": 0.3 + 0.05 * i,
        "top_p": 1 - 0.01 * i,
        "seed": i,
        "extra_body": {"top_k": i + 1, "min_p": 0.001 * i, "ignore_eos": True},
        **more,
    }


@pytest.fixture(scope="module")
def expected(path: str) -> list[str]:
    """What each question is answered with when it is asked alone."""
    with LocalOpenAI(path) as client:
        return [client.chat.completions.create(**asks(i)).choices[0].message.content or "" for i in range(32)]


async def streamed(client: AsyncLocalOpenAI, i: int) -> str:
    stream = await client.chat.completions.create(**asks(i), stream=True)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


def test_thirty_two_async_streams_with_as_many_settings_say_what_they_say_alone(path: str, expected: list[str]) -> None:
    async def main() -> list[str]:
        async with AsyncLocalOpenAI(path) as client:
            return await asyncio.gather(*(streamed(client, i) for i in range(32)))

    assert asyncio.run(main()) == expected


def test_trio_works_as_asyncio_does(path: str, expected: list[str]) -> None:
    texts: dict[int, str] = {}

    async def main() -> None:
        async with AsyncLocalOpenAI(path) as client:

            async def one(i: int) -> None:
                texts[i] = await streamed(client, i)

            async with trio.open_nursery() as nursery:
                for i in range(8):
                    nursery.start_soon(one, i)
            whole = await client.chat.completions.create(**asks(3))
            assert whole.choices[0].message.content == expected[3]
            with trio.move_on_after(0.05) as scope:
                await client.chat.completions.create(**{**asks(1), "max_tokens": 100_000})
            assert scope.cancelled_caught

    trio.run(main)
    assert [texts[i] for i in range(8)] == expected[:8]


def test_many_threads_share_one_sync_client(path: str, expected: list[str]) -> None:
    answers: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
    with LocalOpenAI(path) as client:

        def work(i: int) -> None:
            if i % 2:
                text = client.chat.completions.create(**asks(i)).choices[0].message.content or ""
            else:
                stream = client.chat.completions.create(**asks(i), stream=True)
                text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
            answers.put((i, text))

        in_threads(work, range(16))
    assert sorted(answers.get_nowait() for _ in range(16)) == list(enumerate(expected[:16]))


def test_one_async_client_serves_several_event_loops_in_turn_and_at_once(path: str, expected: list[str]) -> None:
    client = AsyncLocalOpenAI(path)
    assert asyncio.run(streamed(client, 0)) == expected[0]
    assert asyncio.run(streamed(client, 1)) == expected[1]
    texts: dict[int, str] = {}

    def work(i: int) -> None:
        texts[i] = trio.run(streamed, client, i) if i == 3 else asyncio.run(streamed(client, i))

    in_threads(work, range(2, 6))
    assert [texts[i] for i in range(2, 6)] == expected[2:6]


def test_a_sync_client_works_inside_a_running_loop(path: str, expected: list[str]) -> None:
    async def main() -> str | None:
        with LocalOpenAI(path) as client:
            return client.chat.completions.create(**asks(2)).choices[0].message.content

    assert asyncio.run(main()) == expected[2]


def test_a_slow_consumer_loses_nothing_and_holds_up_nobody(path: str, expected: list[str]) -> None:
    with LocalOpenAI(path) as client:
        slow = client.chat.completions.create(**asks(4), stream=True)
        first = next(slow)
        assert [client.chat.completions.create(**asks(i)).choices[0].message.content for i in (5, 6)] == expected[5:7]
        rest = "".join(chunk.choices[0].delta.content or "" for chunk in [first, *slow])
        assert rest == expected[4]


@pytest.mark.timed
@pytest.mark.timeout(300)
def test_the_event_loop_stays_free_while_streams_run_and_long_prompts_are_tokenised(path: str) -> None:
    # Tokenised whole, and then refused: what is measured is the tokenising, not an hour of prefill.
    too_long = [{"role": "user", "content": "The quick brown fox, again and again. " * 20_000}]

    async def main() -> None:
        async with AsyncLocalOpenAI(path) as client:
            await streamed(client, 0)  # the model is loaded and its kernels are compiled
            began = time.process_time()
            with pytest.raises(openai.BadRequestError):
                await client.chat.completions.create(**asks(0, messages=too_long))
            tokenising = time.process_time() - began

            async def work(number: int) -> None:
                refused = [client.chat.completions.create(**asks(i, messages=too_long)) for i in range(4)]
                streams = (streamed(client, i) for i in range(16))
                results = await asyncio.gather(*streams, *refused, return_exceptions=True)
                codes = {error.code for error in results if isinstance(error, openai.BadRequestError)}
                assert codes == {"context_length_exceeded"}

            assert await stays_free(work, tokenising)

    asyncio.run(main())

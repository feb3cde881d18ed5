"""A scripted engine runs, ends and is left as a real one, and needs no MLX for it."""

from __future__ import annotations

import gc
import itertools
import math
import os
import subprocess
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, testing
from localai_shim.testing import Reply, ScriptedEngine
from localai_shim.types import EngineClosedError, Event, GenerationRequest, Prompt, RowError, SamplingParams
from tests.conftest import revalidate
from tests.engine.harness import Running, eventually, generate, request
from tests.samples import only
from tests.testing.asking import answer, ask, contents
from tests.warm import python

ROOT = Path(__file__).parents[2]
HANGS = Reply(["one", " two"], interval=math.inf)
"""Says its first token, and then nothing more."""


def idle(engine: ScriptedEngine) -> bool:
    return engine.stats().running == 0


# -- time -----------------------------------------------------------------------------------------------------------


def test_delays_are_kept() -> None:
    began = time.monotonic()
    answer(Reply("a b", delay=0.1, interval=0.05))
    assert time.monotonic() - began >= 0.1 + 2 * 0.05


def test_a_row_that_waits_holds_nobody_up() -> None:
    with ScriptedEngine([Reply("slow", delay=1000), "quick"]) as engine:
        client = LocalOpenAI(engine=engine)
        stream = ask(client, stream=True)
        assert ask(client).choices[0].message.content == "quick"
        assert engine.stats().running == 1
        stream.close()
        assert eventually(lambda: idle(engine))


def test_a_model_that_hangs_times_out_and_its_row_leaves() -> None:
    with ScriptedEngine([Reply("never", delay=math.inf), HANGS]) as engine:
        client = LocalOpenAI(engine=engine, timeout=0.05)
        for _ in range(2):
            with pytest.raises(openai.APITimeoutError):
                ask(client)
            assert eventually(lambda: idle(engine))


def test_close_does_not_wait_for_a_row_and_fails_what_is_in_flight() -> None:
    engine = ScriptedEngine([Reply("never", delay=1000), HANGS])
    client = LocalOpenAI(engine=engine)
    streams = [ask(client, stream=True) for _ in range(2)]
    next(streams[1])
    engine.close()
    assert engine.is_closed and not engine._player.thread.is_alive()
    for stream in streams:
        with pytest.raises(openai.APIConnectionError, match="Engine is closed"):
            list(stream)
    with pytest.raises(openai.APIConnectionError, match="Engine is closed"):
        ask(client)
    with pytest.raises(EngineClosedError):
        Running(engine, request([1]))
    with pytest.raises(EngineClosedError):
        _ = engine.model
    assert len(engine.requests) == 2
    engine.close()


# -- consumers that go away -----------------------------------------------------------------------------------------


def leave_by_close(stream: Any) -> None:
    stream.close()


def leave_by_break(stream: Any) -> None:
    for _ in stream:
        break


@pytest.mark.parametrize("leave", [leave_by_close, leave_by_break])
def test_a_consumer_that_leaves_takes_its_row_along(leave: Any) -> None:
    with ScriptedEngine([HANGS]) as engine:
        stream = ask(LocalOpenAI(engine=engine), stream=True)
        next(stream)
        leave(stream)
        del stream
        gc.collect()
        assert eventually(lambda: idle(engine))


def test_a_cancelled_submission_leaves_others_alone() -> None:
    with ScriptedEngine([HANGS, Reply("b c", delay=0.02)]) as engine:
        hanging, running = Running(engine, request([1])), Running(engine, request([1]))
        engine.cancel(hanging.ticket)
        assert len(running.finish()[0]) == 3
        assert eventually(lambda: idle(engine))


def test_a_slow_consumer_loses_nothing_and_holds_nobody_up() -> None:
    words = " ".join(str(i) for i in range(500))
    with ScriptedEngine([words, "quick"]) as engine:
        client = LocalOpenAI(engine=engine)
        stream = ask(client, stream=True)
        next(stream)
        assert ask(client).choices[0].message.content == "quick"
        assert eventually(lambda: idle(engine))
        assert "".join(contents(stream)) == words


def test_an_abandoned_engine_ends_its_thread() -> None:
    engine = ScriptedEngine([Reply("never", delay=1000)])
    thread, running = engine._player.thread, Running(engine, request([1]))
    running.engine = None
    del engine
    gc.collect()
    assert eventually(lambda: not thread.is_alive())
    with pytest.raises(EngineClosedError):
        running.finish()


# -- steps ----------------------------------------------------------------------------------------------------------


class CountingWaker:
    """Counts how often its event loop would be entered; after `last` times the loop has ended."""

    def __init__(self, last: float = math.inf) -> None:
        self.count, self.last = 0, last

    def wake(self) -> None:
        self.count += 1
        if self.count > self.last:
            raise RuntimeError("Event loop is closed")


class RecordingSink:
    """Keeps the order in which the rows of several submissions got their events."""

    def __init__(self, waker: CountingWaker, log: list[tuple[Any, int]]) -> None:
        self.waker, self._log = waker, log

    def put(self, index: int, event: Event) -> None:
        self._log.append((self, index))


def test_rows_take_turns_and_an_event_loop_is_woken_once_per_step() -> None:
    waker = CountingWaker()
    log: list[tuple[Any, int]] = []
    with ScriptedEngine([["a"] * 20] * 6) as engine:
        engine.submit([request([1])] * 6, RecordingSink(waker, log))
        assert eventually(lambda: len(log) == 6 * 20 + 6)
        assert eventually(lambda: idle(engine) and engine.stats().steps == waker.count)
    assert [index for _, index in log] == [*range(6)] * 21
    assert waker.count == 21


def test_rows_of_an_event_loop_that_has_ended_leave() -> None:
    waker = CountingWaker(last=1)
    log: list[tuple[Any, int]] = []
    with ScriptedEngine([["a", "b", "c"], HANGS]) as engine:
        sinks = [RecordingSink(waker, log) for _ in range(2)]
        for sink in sinks:
            engine.submit([request([1])], sink)
        assert eventually(lambda: waker.count >= 2 and idle(engine))


# -- event loops ----------------------------------------------------------------------------------------------------


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine() as engine:
        yield engine


@pytest.mark.anyio
async def test_async_clients_get_whole_answers_and_streams(engine: ScriptedEngine) -> None:
    engine.say("one two", "three four")
    async with AsyncLocalOpenAI(engine=engine) as client:
        made = await ask(client)
        revalidate(made)
        assert made.choices[0].message.content == "one two"
        chunks = [chunk async for chunk in await ask(client, stream=True)]
        assert contents(chunks) == ["three", " four"]
    assert not engine.is_closed


@pytest.mark.anyio
async def test_many_async_calls_run_at_once(engine: ScriptedEngine) -> None:
    engine.say(*(Reply(f"reply {i}", delay=0.01 * (i % 3)) for i in range(60)))
    said: list[str] = []
    async with AsyncLocalOpenAI(engine=engine) as client, anyio.create_task_group() as tasks:

        async def one() -> None:
            said.append((await ask(client)).choices[0].message.content)

        for _ in range(60):
            tasks.start_soon(one)
    assert sorted(said) == sorted(f"reply {i}" for i in range(60))


@pytest.mark.anyio
async def test_a_cancelled_task_takes_its_row_along(engine: ScriptedEngine) -> None:
    engine.say(Reply("never", delay=math.inf), HANGS, "next")
    async with AsyncLocalOpenAI(engine=engine) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, client)
            assert await anyio.to_thread.run_sync(eventually, lambda: not idle(engine)), "or the next takes its reply"
            tasks.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(eventually, lambda: idle(engine))
        stream = await ask(client, stream=True)
        await anext(stream)
        await stream.close()
        assert await anyio.to_thread.run_sync(eventually, lambda: idle(engine))
        assert (await ask(client)).choices[0].message.content == "next"


@pytest.mark.anyio
async def test_async_calls_time_out_and_fail(engine: ScriptedEngine) -> None:
    engine.say(HANGS, Reply("a", error=RowError("broke")), Reply("never", delay=1000))
    async with AsyncLocalOpenAI(engine=engine) as client:
        with pytest.raises(openai.APITimeoutError):
            await ask(client, timeout=0.05)
        with pytest.raises(openai.InternalServerError, match="broke"):
            await ask(client)
        stream = await ask(client, stream=True)
        await anyio.to_thread.run_sync(engine.close)
        with pytest.raises(openai.APIConnectionError):
            await anext(stream)


# -- threads ---------------------------------------------------------------------------------------------------------


def test_threads_may_submit_at_once() -> None:
    counter = itertools.count()
    with ScriptedEngine(lambda request, prompt, index: f"{next(counter)}") as engine:
        client = LocalOpenAI(engine=engine)
        said: list[str] = []
        threads = [
            threading.Thread(target=lambda: said.append(ask(client).choices[0].message.content)) for _ in range(30)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(said, key=int) == [str(i) for i in range(30)]
    assert len(engine.requests) == len(engine.prompts) == 30


def test_a_request_of_no_endpoint_is_played_too() -> None:
    with ScriptedEngine(["ab"], context_length=None) as engine:
        made = GenerationRequest(Prompt([1, 2]), SamplingParams(), max_tokens=5)
        assert generate(engine, made) == [[engine.tokenizer.intern("ab"), engine.tokenizer.eos_token_id]]


# -- processes ------------------------------------------------------------------------------------------------------

PRELUDE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("mlx", "transformers", "tokenizers"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocked())
from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import Reply, ScriptedEngine
ask = dict(model="any", messages=[{"role": "user", "content": "Go on"}])
"""


def run(code: str) -> tuple[int, str, str]:
    """Exit status, output and errors of a script for which there is no MLX; warnings are errors."""
    done = subprocess.run(
        [*python(), "-W", "error", "-c", PRELUDE + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=ROOT,
        env=dict(os.environ),
    )
    return done.returncode, done.stdout, done.stderr


def test_the_package_exports_these_names() -> None:
    assert testing.__all__ == sorted(testing.__all__)
    assert set(testing.__all__) == set(testing._PLACES) and set(testing.__all__) <= set(dir(testing))
    assert all(hasattr(testing, name) for name in testing.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'scripte'"):
        _ = testing.scripte


def test_nothing_of_it_needs_mlx_nor_transformers() -> None:
    """And importing it imports no NumPy either."""
    code = """
    heavy = {"mlx", "mlx_lm", "mlx_vlm", "transformers", "tokenizers", "numpy", "torch"}
    print([name for name in sys.modules if name.split(".")[0] in heavy])
    import asyncio, trio
    def chunks(stream):
        return [c.choices[0].delta.content for c in stream if c.choices[0].delta.content]
    async def whole():
        async with AsyncLocalOpenAI(engine=ScriptedEngine(["one two"])) as client:
            return (await client.chat.completions.create(**ask)).choices[0].message.content
    client = LocalOpenAI(engine=ScriptedEngine(["one two"] * 3))
    print(client.chat.completions.create(**ask, stop="tw", logprobs=True).choices[0].message.content)
    print(chunks(client.chat.completions.create(**ask, stream=True)))
    print(client.completions.create(model="any", prompt="Go on").choices[0].text, client.models.list().data[0].id)
    print(asyncio.run(whole()), trio.run(whole))
    print([name for name in sys.modules if name.split(".")[0] in ("mlx", "mlx_lm", "transformers", "tokenizers")])
    """
    assert run(code) == (0, "[]\none \n['one', ' two']\none two scripted\none two one two\n[]\n", "")


LEFT = """
client = LocalOpenAI(engine=ScriptedEngine({script}))
left.append(client.chat.completions.create(**ask, stream=True))
print("in mid-stream")
"""
LEFT_BY_TASK = """
import asyncio, trio
async def main():
    client = AsyncLocalOpenAI(engine=ScriptedEngine([Reply("a b", interval=1000)]))
    stream = await client.chat.completions.create(**ask, stream=True)
    await anext(stream)
    print("in mid-stream")
    return stream
left.append({run_loop})
"""
SLOW, SILENT, ENDLESS = (
    LEFT.format(script=script)
    for script in ("[Reply('a b', interval=1000)]", "[Reply('never', delay=1000)]", "lambda *_: 'a ' * 10**5")
)
ASYNCIO, TRIO = (LEFT_BY_TASK.format(run_loop=loop) for loop in ("asyncio.run(main())", "trio.run(main)"))
ENDS: dict[str, tuple[list[str], str, int]] = {
    "all at once": ([SLOW, SILENT, ENDLESS, ASYNCIO, TRIO], "sys.exit(3)", 3),
    "between two tokens": ([SLOW], "", 0),
    "before the first token": ([SILENT], "sys.exit(3)", 3),
    "an endless answer": ([ENDLESS], "", 0),
    "of an asyncio task": ([ASYNCIO], "", 0),
    "of a trio task": ([TRIO], "", 0),
}


@pytest.mark.parametrize("left", only(["all at once"], ENDS))
def test_a_process_that_ends_in_mid_stream_exits_at_once_and_quietly(left: str) -> None:
    scripts, ending, status = ENDS[left]
    assert run("left = []\n" + "".join(scripts) + ending) == (status, "in mid-stream\n" * len(scripts), "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_is_told_that_the_engine_did_not_come_along() -> None:
    code = """
    import os, warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    import openai
    engine = ScriptedEngine(["one", "two"])
    client = LocalOpenAI(engine=engine)
    client.chat.completions.create(**ask)
    child = os.fork()
    if child == 0:
        try:
            client.chat.completions.create(**ask)
        except openai.APIConnectionError as error:
            print("forked" in str(error), engine.is_closed, flush=True)
        engine.close()
        print(LocalOpenAI(engine=ScriptedEngine(["own"])).chat.completions.create(**ask).choices[0].message.content)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(client.chat.completions.create(**ask).choices[0].message.content)
    """
    assert run(code) == (0, "True True\nown\ntwo\n", "")

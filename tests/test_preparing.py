"""Requests that take long before they reach the engine: their timeout holds, and they hold up nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.models import loading
from localai_shim.models.text import TextTokenizer
from localai_shim.runtime import served_models
from localai_shim.threads.deadline import Budget
from localai_shim.types import ModelLoadError
from tests import inside
from tests.engine.harness import eventually
from tests.preparing import (
    BACKENDS,
    LOOPS,
    SOON,
    WAYS,
    Gate,
    ask_long,
    nobody_prepares,
    times_out,
    times_out_async,
)
from tests.templates.models import make_model
from tests.tiny import tiny


@pytest.fixture(scope="module")
def path() -> str:
    """A model that no other test has loaded."""
    return str(tiny("qwen3", rms_norm_eps=3e-6))


@pytest.fixture(scope="module")
def loaded_path() -> str:
    """Another one, which stays loaded between tests."""
    return str(tiny("qwen3", rms_norm_eps=3.5e-6))


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


@pytest.fixture
def loads(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Models are loaded once this gate is open."""
    load = loading.load_model

    def held(*args: Any, **more: Any) -> Any:
        gate()
        return load(*args, **more)

    monkeypatch.setattr(loading, "load_model", held)
    return gate


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Requests that reached an engine."""
    from localai_shim.engine.engine import Engine

    seen: list[object] = []
    put = Engine.submit

    def noting(self: Any, requests: Any, *more: Any) -> Any:
        seen.extend(requests)
        return put(self, requests, *more)

    monkeypatch.setattr(Engine, "submit", noting)
    return seen


# -- the model is loaded ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_timeout_covers_loading(way: str, path: str, loads: Gate, submitted: list[object]) -> None:
    with LocalOpenAI(path, keep_alive=0) as client:
        times_out(client, WAYS[way])
        loads.open.set()
        assert WAYS["chat"](client).usage is not None
    assert len(submitted) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_sixty_requests_that_wait_for_a_model_take_no_thread(path: str, loads: Gate, backend: str) -> None:
    async def main() -> None:
        answers: list[Any] = []
        async with AsyncLocalOpenAI(path, keep_alive=0, max_queue=100) as client:
            await times_out_async(client, WAYS["chat"])

            async def one() -> None:
                answers.append(await WAYS["chat"](client))

            async with anyio.create_task_group() as tasks:
                for _ in range(60):
                    tasks.start_soon(one)
                await anyio.wait_all_tasks_blocked()
                with anyio.fail_after(SOON):
                    assert await anyio.to_thread.run_sync(lambda: 7) == 7
                with anyio.move_on_after(0.01) as scope:  # one that leaves while it waits
                    await WAYS["chat"](client)
                assert scope.cancelled_caught and not answers
                loads.open.set()
        assert len(answers) == 60

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_who_wait_are_told_that_a_model_cannot_be_loaded(
    path: str, gate: Gate, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        gate()
        raise ModelLoadError("it is broken")

    monkeypatch.setattr(loading, "load_model", fail)
    refusals: list[str] = []

    async def main() -> None:
        async with AsyncLocalOpenAI(path, keep_alive=0) as client:

            async def one() -> None:
                with pytest.raises(openai.InternalServerError) as caught:
                    await WAYS["chat"](client)
                refusals.append(caught.value.message)

            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(one)
                await anyio.wait_all_tasks_blocked()
                gate.open.set()

    anyio.run(main, backend=backend)
    assert len(refusals) == 3 and all("it is broken" in refusal for refusal in refusals)


def test_several_event_loops_wait_for_one_model_and_one_that_has_ended_harms_nobody(path: str, loads: Gate) -> None:
    client = AsyncLocalOpenAI(path, keep_alive=0)
    asyncio.run(times_out_async(client, WAYS["chat"]))  # whose loop is gone when the model is there
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await WAYS["chat"](client))

    async def ask_and_open() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            ready.wait()
            loads.open.set()

    ready = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        for backend in BACKENDS:
            pool.submit(anyio.run, ask_and_open, backend=backend)
    assert len(answers) == 2
    anyio.run(client.close)


# -- templates and tokenising ----------------------------------------------------------------------------------------


@pytest.fixture
def endless(loaded_path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalOpenAI]:
    """A client of a model whose chat template never ends, for all that anybody would wait."""
    with LocalOpenAI(loaded_path) as client:
        runtime = inside.runtime(client)
        tokenizer: Any = inside.tokenizer(runtime.served(runtime.engine_of("")).tokenizer)
        with monkeypatch.context() as patch:
            patch.setattr(inside.tokenizer(tokenizer), "chat_template", LOOPS + tokenizer.chat_template)
            yield client


def test_a_template_that_never_ends_ends_with_the_timeout(endless: LocalOpenAI, submitted: list[object]) -> None:
    for way in ("chat", "stream", "responses", "chat"):  # whose fields are known then
        times_out(endless, WAYS[way])
    assert eventually(nobody_prepares)
    assert not submitted


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_template_that_never_ends_keeps_no_event_loop(endless: LocalOpenAI, loaded_path: str, backend: str) -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(loaded_path) as client:
            for way in ("chat", "stream", "responses", "chat"):
                await times_out_async(client, WAYS[way])
            assert (await WAYS["completions"](client, timeout=60)).usage is not None

    anyio.run(main, backend=backend)


@pytest.fixture(scope="module")
def endless_path() -> Iterator[str]:
    """A model whose chat template never ends from the start."""
    folder = make_model(LOOPS + "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}")
    yield str(folder)
    shutil.rmtree(folder)


@pytest.fixture
def briefly_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials of a chat template, given up sooner than for callers."""
    monkeypatch.setattr(served_models, "Budget", functools.partial(Budget, 0.2))


@pytest.mark.usefixtures("briefly_tried")
def test_a_model_whose_template_never_ends_is_loaded(endless_path: str, submitted: list[object]) -> None:
    with LocalOpenAI(endless_path, keep_alive=0) as client:
        times_out(client, WAYS["chat"])  # while it is loaded
        assert WAYS["completions"](client, timeout=SOON).usage is not None
        for way in ("chat", "stream", "responses"):
            times_out(client, WAYS[way])
        assert WAYS["completions"](client, timeout=SOON).usage is not None
    assert len(submitted) == 2


@pytest.mark.usefixtures("briefly_tried")
@pytest.mark.parametrize("backend", BACKENDS)
def test_tasks_leave_a_model_whose_template_never_ends(endless_path: str, backend: str) -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(endless_path, keep_alive=0) as client:
            for _ in range(2):  # while it is loaded, and when it is there
                async with anyio.create_task_group() as tasks:
                    for _ in range(2):
                        tasks.start_soon(times_out_async, client, WAYS["chat"])
                assert (await WAYS["completions"](client, timeout=SOON)).usage is not None

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_request_that_is_cancelled_amid_its_template_stops_there(
    endless: LocalOpenAI, loaded_path: str, backend: str, submitted: list[object]
) -> None:
    ended: list[bool] = []
    limit = threading.Event()
    render = TextTokenizer.apply_chat_template

    def noting(self: Any, *args: Any, **more: Any) -> Any:
        limit.set()
        try:
            return render(self, *args, **more)
        finally:
            ended.append(True)

    async def main() -> None:
        async with AsyncLocalOpenAI(loaded_path) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(functools.partial(ask_long, client, timeout=None))
            await anyio.to_thread.run_sync(limit.wait)
            tasks.cancel_scope.cancel()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextTokenizer, "apply_chat_template", noting)
        anyio.run(main, backend=backend)
        assert eventually(lambda: len(ended) == 1)
    assert not submitted


@pytest.fixture
def tokenising(gate: Gate, loaded_path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Texts are tokenised by code that nothing can interrupt, until this gate is open."""
    with LocalOpenAI(loaded_path) as client:
        WAYS["chat"](client)
        encode = TextTokenizer.encode

        def held(self: Any, *args: Any, **more: Any) -> Any:
            gate()
            return encode(self, *args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(TextTokenizer, "encode", held)
            yield gate
            gate.open.set()
            assert eventually(nobody_prepares)


def test_what_cannot_be_interrupted_holds_no_caller_and_never_reaches_the_engine(
    tokenising: Gate, loaded_path: str, submitted: list[object]
) -> None:
    with LocalOpenAI(loaded_path) as client:
        times_out(client, ask_long)
        assert tokenising.inside == 1
        tokenising.open.set()
        assert eventually(nobody_prepares)
    assert not submitted


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_task_leaves_what_cannot_be_interrupted(
    tokenising: Gate, loaded_path: str, backend: str, submitted: list[object]
) -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(loaded_path) as client:
            for _ in range(3):  # more than may be prepared at once: those that were left are out of the way
                await times_out_async(client, ask_long)
            tokenising.open.set()
            assert (await WAYS["chat"](client)).usage is not None

    anyio.run(main, backend=backend)
    assert tokenising.inside >= 3
    assert len(submitted) == 1


# -- the store -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_a_timeout_covers_waiting_for_another_process_that_writes_to_the_store(
    path: str, tmp_path: Path, backend: str | None
) -> None:
    def ask(client: Any, **more: Any) -> Any:
        return client.conversations.create(**more)

    store = tmp_path / "store.sqlite"
    with LocalOpenAI(path, store=store) as client, contextlib.closing(sqlite3.connect(store)) as other:
        ask(client)
        tasks = AsyncLocalOpenAI(path, store=store)
        other.execute("BEGIN IMMEDIATE")
        if backend is None:
            times_out(client, ask)
        else:
            anyio.run(times_out_async, tasks, ask, backend=backend)
        other.rollback()
        assert ask(client).object == "conversation"
        assert eventually(nobody_prepares)
    anyio.run(tasks.close)

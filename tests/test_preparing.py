"""Requests that take long before they reach the engine: their timeout holds, and they hold up nobody else."""

from __future__ import annotations

import asyncio
import functools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, offload
from localai_shim.adapters import loading
from localai_shim.adapters.text import TextTokenizer
from localai_shim.media import MediaRules
from localai_shim.prompt.media import sources
from localai_shim.prompt.media.remote import fetch
from localai_shim.testing import ScriptedEngine
from localai_shim.types import ModelLoadError
from localai_shim.workers import MAX_THREADS
from tests.endpoints.pictures import image_url, input_image, png, user, user_item
from tests.endpoints.seeing import SeeingModel, seeing
from tests.engine.harness import eventually
from tests.tiny import tiny

TIMEOUT = 0.4
SOON = 20.0
"""Seconds in which whoever gives up after `TIMEOUT` has returned, however busy the machine; what it waits for takes for
ever."""
BACKENDS = ["asyncio", "trio"]
MESSAGES: Any = [{"role": "user", "content": "Hello"}]
TOOL: Any = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
WAYS: dict[str, Callable[..., Any]] = {
    "chat": lambda client, **more: client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=2, **more),
    "stream": lambda client, **more: client.chat.completions.create(
        model="m", messages=MESSAGES, max_tokens=2, stream=True, **more
    ),
    "responses": lambda client, **more: client.responses.create(model="m", input="Hello", max_output_tokens=16, **more),
    "completions": lambda client, **more: client.completions.create(model="m", prompt="Hello", max_tokens=2, **more),
    "embeddings": lambda client, **more: client.embeddings.create(model="m", input="Hello", **more),
    "options": lambda client, timeout: WAYS["chat"](client.with_options(timeout=openai.Timeout(60, read=timeout))),
}
LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


LONG: Any = [{"role": "user", "content": "why " * 3_000}]


def ask_long(client: Any, **more: Any) -> Any:
    return client.chat.completions.create(model="m", messages=LONG, max_tokens=2, **more)


def times_out(client: LocalOpenAI, ask: Callable[..., Any], timeout: float = TIMEOUT) -> None:
    """A request ends with its timeout, soon after that is over."""
    began = time.monotonic()
    with pytest.raises(openai.APITimeoutError):
        ask(client, timeout=timeout)
    assert time.monotonic() - began < SOON


async def times_out_async(client: AsyncLocalOpenAI, ask: Callable[..., Any], timeout: float = TIMEOUT) -> None:
    """As `times_out`."""
    with anyio.fail_after(SOON), pytest.raises(openai.APITimeoutError):
        await ask(client, timeout=timeout)


@pytest.fixture(scope="module")
def path() -> str:
    return str(tiny("qwen3"))


class Gate:
    """Holds up whoever comes until it is opened."""

    def __init__(self) -> None:
        self.open, self.inside = threading.Event(), 0

    def __call__(self) -> None:
        self.inside += 1
        assert self.open.wait(120)


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
    """What reached an engine."""
    from localai_shim.engine.engine import Engine

    seen: list[object] = []
    put = Engine._put

    def noting(self: Any, requests: Any, sink: Any) -> Any:
        seen.extend(requests)
        return put(self, requests, sink)

    monkeypatch.setattr(Engine, "_put", noting)
    return seen


def nobody_prepares() -> bool:
    """All that was begun for requests has ended."""
    return offload._preparing._free == offload._preparing._threads


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
def endless(path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalOpenAI]:
    """A client of a model whose chat template never ends, for all that anybody would wait."""
    with LocalOpenAI(path) as client:
        runtime = client._runtime
        tokenizer: Any = runtime.served(runtime.engine_of("")).tokenizer._tokenizer
        with monkeypatch.context() as patch:
            patch.setattr(tokenizer._tokenizer, "chat_template", LOOPS + tokenizer.chat_template)
            yield client


def test_a_template_that_never_ends_ends_with_the_timeout(endless: LocalOpenAI, submitted: list[object]) -> None:
    for way in ("chat", "stream", "responses", "chat"):  # whose fields are known then
        times_out(endless, WAYS[way])
    assert eventually(nobody_prepares)
    assert not submitted


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_template_that_never_ends_keeps_no_event_loop(endless: LocalOpenAI, path: str, backend: str) -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(path) as client:
            for way in ("chat", "stream", "responses", "chat"):
                await times_out_async(client, WAYS[way])
            assert (await WAYS["completions"](client, timeout=60)).usage is not None

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_request_that_is_cancelled_amid_its_template_stops_there(
    endless: LocalOpenAI, path: str, backend: str, submitted: list[object]
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
        async with AsyncLocalOpenAI(path) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(functools.partial(ask_long, client, timeout=None))
            await anyio.to_thread.run_sync(limit.wait)
            tasks.cancel_scope.cancel()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextTokenizer, "apply_chat_template", noting)
        anyio.run(main, backend=backend)
        assert eventually(lambda: len(ended) == 1)
    assert not submitted


@pytest.fixture
def tokenising(gate: Gate, path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Texts are tokenised by code that nothing can interrupt, until this gate is open."""
    with LocalOpenAI(path) as client:
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
    tokenising: Gate, path: str, submitted: list[object]
) -> None:
    with LocalOpenAI(path) as client:
        times_out(client, ask_long)
        assert tokenising.inside == 1
        tokenising.open.set()
        assert eventually(nobody_prepares)
    assert not submitted


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_task_leaves_what_cannot_be_interrupted(
    tokenising: Gate, path: str, backend: str, submitted: list[object]
) -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(path) as client:
            for _ in range(3):  # more than may be prepared at once: those that were left are out of the way
                await times_out_async(client, ask_long)
            tokenising.open.set()
            assert (await WAYS["chat"](client)).usage is not None

    anyio.run(main, backend=backend)
    assert tokenising.inside >= 3
    assert len(submitted) == 1


# -- files and URLs --------------------------------------------------------------------------------------------------


class Server:
    """Takes connections, and answers them with a picture once it is told to."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.answers = threading.Event()
        self.connected = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                taken, _ = self._listener.accept()
            except OSError:
                return
            self.connected += 1
            threading.Thread(target=self._answer, args=(taken,), daemon=True).start()

    def _answer(self, taken: socket.socket) -> None:
        with taken:
            taken.recv(65_536)
            self.answers.wait(120)
            body = png()
            taken.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    def connect(self, _: tuple[str, int], left: float) -> socket.socket:
        return socket.create_connection(self._listener.getsockname(), left)

    def close(self) -> None:
        self.answers.set()
        self._listener.close()


Slow = tuple[Server, ScriptedEngine, SeeingModel]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    """A server that does not answer yet, and a model that sees."""
    server = Server()
    resolve = lambda host, port: ["93.184.216.34"]  # noqa: E731
    monkeypatch.setattr(sources, "fetch", functools.partial(fetch, resolve=resolve, connect=server.connect))
    engine, model = seeing(monkeypatch)
    monkeypatch.setattr(engine, "is_scripted", False)
    with engine, LocalOpenAI(engine=engine) as client:
        client.chat.completions.create(model="m", messages=[user("Look", image_url(png()))])  # decoders are imported
        engine.requests.clear()
        model.seen.clear()
        yield server, engine, model
    server.close()


def look(client: Any, *names: str, **more: Any) -> Any:
    pictures = [image_url(f"http://public.test/{name}") for name in names]
    return client.chat.completions.create(model="m", messages=[user("Look", *pictures)], **more)


def test_a_timeout_covers_fetching(slow: Slow) -> None:
    server, engine, model = slow
    with LocalOpenAI(engine=engine, allow_remote_images=True) as client:
        times_out(client, lambda client, timeout: look(client, "a", "b", "c", timeout=timeout), 5 * TIMEOUT)
        assert eventually(lambda: offload._reading._free == offload._reading._threads), "the fetches ended, too"
    assert server.connected == 3, "at once"
    assert not engine.requests and not model.seen


@pytest.mark.parametrize("backend", BACKENDS)
def test_slow_urls_hold_up_nobody_else(slow: Slow, backend: str) -> None:
    server, engine, _ = slow

    async def main() -> None:
        async with AsyncLocalOpenAI(engine=engine, allow_remote_images=True) as client:
            answers: list[Any] = []

            async def one(name: str) -> None:
                answers.append(await look(client, name))

            async with anyio.create_task_group() as tasks:
                for name in "abcde":
                    tasks.start_soon(one, name)
                await anyio.to_thread.run_sync(lambda: eventually(lambda: server.connected == 5))
                with anyio.fail_after(SOON):
                    assert (await client.responses.create(model="m", input="Hello", tools=[TOOL])).output_text == "Yes."
                await times_out_async(client, lambda client, timeout: look(client, "late", timeout=timeout))
                with anyio.move_on_after(0.05) as scope:
                    await look(client, "left")
                assert scope.cancelled_caught and not answers
                server.answers.set()
            assert len(answers) == 5

    anyio.run(main, backend=backend)
    assert len(engine.requests) == 6


def test_threads_that_fetch_hold_up_no_other_thread(slow: Slow) -> None:
    server, engine, _ = slow
    with LocalOpenAI(engine=engine, allow_remote_images=True) as client, ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(look, client, str(i)) for i in range(6)]
        assert eventually(lambda: server.connected == 6)
        assert pool.submit(WAYS["responses"], client, tools=[TOOL]).result(SOON).output_text == "Yes."
        assert not any(each.done() for each in waiting)
        server.answers.set()
        assert all(each.result(SOON).choices for each in waiting)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_picture_that_cannot_be_fetched_is_named_and_the_others_are_left(slow: Slow, backend: str) -> None:
    _, engine, _ = slow

    async def main() -> None:
        async with AsyncLocalOpenAI(engine=engine, allow_remote_images=True) as client:
            content = [input_image("http://public.test/a"), input_image("http://user:word@public.test/b")]
            with anyio.fail_after(SOON), pytest.raises(openai.BadRequestError) as caught:
                await client.responses.create(model="m", input=[user_item("Look", *content)])
            assert caught.value.param == "input[0].content[2].image_url"

    anyio.run(main, backend=backend)
    assert not engine.requests


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_slow_disk_holds_up_nobody_else(
    slow: Slow, gate: Gate, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, engine, model = slow
    (tmp_path / "a.png").write_bytes(png())
    read_file = sources.read_file

    def held(*args: Any) -> bytes:
        gate()
        return read_file(*args)

    monkeypatch.setattr(sources, "read_file", held)

    async def main() -> None:
        async with AsyncLocalOpenAI(engine=engine, allow_local_files=tmp_path) as client:

            async def one(source: object) -> None:
                await client.chat.completions.create(model="m", messages=[user("Look", image_url(source))])

            async with anyio.create_task_group() as tasks:
                for source in ("a.png", "a.png", tmp_path / "a.png"):
                    tasks.start_soon(one, source)
                await anyio.to_thread.run_sync(lambda: eventually(lambda: gate.inside == 3))
                with anyio.fail_after(SOON):
                    await WAYS["responses"](client, tools=[TOOL])
                assert not model.seen
                gate.open.set()

    anyio.run(main, backend=backend)
    assert len(engine.requests) == 4


def test_a_timeout_covers_decoding_and_no_picture_is_begun_after_it(slow: Slow) -> None:
    _, engine, model = slow
    model.gate = threading.Event()
    at_once = MAX_THREADS + 1  # spare threads, and the one that waits for the first picture
    pictures = [image_url(png((9 * i, 0, 0))) for i in range(at_once + 3)]
    with LocalOpenAI(engine=engine) as client:
        ask = lambda client, timeout: client.chat.completions.create(  # noqa: E731
            model="m", messages=[user("Look", *pictures)], timeout=timeout
        )
        times_out(client, ask)
        model.gate.set()
        assert eventually(nobody_prepares)
    assert len(model.seen) <= at_once
    assert not engine.requests


def test_what_was_read_for_a_request_is_not_kept(slow: Slow) -> None:
    server, engine, _ = slow
    server.answers.set()
    with LocalOpenAI(engine=engine, allow_remote_images=True) as client:
        look(client, "a")
        look(client, "a")
        assert client._runtime.served(engine).media_rules == MediaRules(remote=True)
    assert server.connected == 2

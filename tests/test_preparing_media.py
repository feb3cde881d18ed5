"""Requests whose media take long: their timeout holds, and they hold up nobody else."""

from __future__ import annotations

import functools
import socket
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
from localai_shim.media import Contents, MediaRules
from localai_shim.prompt.media import sources
from localai_shim.prompt.media.remote import fetch
from localai_shim.runtime import offload
from localai_shim.testing import ScriptedEngine
from localai_shim.threads.workers import MAX_THREADS
from tests import inside
from tests.endpoints.pictures import image_url, input_image, png, user, user_item
from tests.endpoints.seeing import SeeingModel, seeing
from tests.engine.harness import eventually
from tests.preparing import (
    BACKENDS,
    SOON,
    TIMEOUT,
    TOOL,
    WAYS,
    Gate,
    are_idle,
    nobody_prepares,
    times_out,
    times_out_async,
)
from tests.prompt.media.net import Net, Rerouted


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


class Server:
    """Takes connections, and answers them with a picture once it is told to; those for `quick` at once."""

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
            if b"/quick" not in taken.recv(65_536):
                self.answers.wait(120)
            body = png()
            taken.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    def transport(self) -> Rerouted:
        return Net(self._listener.getsockname()[1]).transport()

    def close(self) -> None:
        self.answers.set()
        self._listener.close()


Slow = tuple[Server, ScriptedEngine, SeeingModel]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    """A server that does not answer yet, and a model that sees."""
    server = Server()
    resolve = lambda host, port: ["93.184.216.34"]  # noqa: E731
    monkeypatch.setattr(sources, "fetch", functools.partial(fetch, resolve=resolve, transport=server.transport))
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
        assert eventually(lambda: are_idle(offload._reading)), "the fetches ended, too"
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


def test_requests_with_many_slow_urls_hold_up_no_other_request_with_urls(slow: Slow) -> None:
    server, engine, _ = slow
    many = 2 + offload.MAX_READS // offload.MAX_READS_EACH
    with LocalOpenAI(engine=engine, allow_remote_images=True) as client, ThreadPoolExecutor(many) as pool:
        waiting = [pool.submit(look, client, *(f"{i}/{j}" for j in range(offload.MAX_READS_EACH))) for i in range(many)]
        assert eventually(lambda: server.connected == offload.MAX_READS + many)
        assert look(client, "quick/1", "quick/2", "quick/3", timeout=SOON).choices
        times_out(client, lambda client, timeout: look(client, "quick/4", "late", timeout=timeout))
        assert not any(each.done() for each in waiting)
        server.answers.set()
        assert all(each.result(SOON).choices for each in waiting)
    assert eventually(nobody_prepares)


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
    assert 1 <= len(model.seen) <= at_once
    assert not engine.requests


def test_what_was_read_for_a_request_is_not_kept(slow: Slow) -> None:
    server, engine, _ = slow
    server.answers.set()
    with LocalOpenAI(engine=engine, allow_remote_images=True) as client:
        look(client, "a")
        look(client, "a")
        assert inside.runtime(client).served(engine, Contents()).media_rules == MediaRules(remote=True)
    assert server.connected == 2

"""A connection that is lost is what it is with the installed SDK and a real one: each way is held against that."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.sdk import private as sdk
from localai_shim.testing import Reply, ScriptedEngine, connection_error, cut, patch_openai, scripted, timeout
from tests.conftest import MESSAGES

ASK: dict[str, Any] = {"model": "m", "messages": MESSAGES}
Server = Callable[[socket.socket, threading.Event], None]


def chunk(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    made = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    line = b"data: %s\n\n" % json.dumps(made).encode()
    return b"%x\r\n%s\r\n" % (len(line), line)


def cut_a_stream(connection: socket.socket, over: threading.Event) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    connection.sendall(head + chunk("one") + chunk(" two"))


def stall_in_a_stream(connection: socket.socket, over: threading.Event) -> None:
    cut_a_stream(connection, over)
    over.wait()


def cut_a_body(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{"id":')


def never_answer(connection: socket.socket, over: threading.Event) -> None:
    over.wait()


@contextlib.contextmanager
def serving(answer: Server | None) -> Iterator[str]:
    """The address of a server on this machine, which answers each request so; None: nobody listens there."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        over = threading.Event()

        def serve() -> None:
            with contextlib.suppress(OSError):  # the listener is closed
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        read_request(connection)
                        assert answer is not None
                        answer(connection, over)

        thread = threading.Thread(target=serve)
        if answer is not None:
            listener.listen()
            thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        over.set()
        with contextlib.suppress(OSError):  # nobody listened
            listener.shutdown(socket.SHUT_RDWR)
    if answer is not None:
        thread.join()


def read_request(connection: socket.socket) -> None:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65_536)
    head, _, body = received.partition(b"\r\n\r\n")
    [length] = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    while len(body) < length:
        body += connection.recv(65_536)


Outcome = tuple[str, type[BaseException], type[BaseException] | None, str]
"""Place, exception, its cause where the SDK has it from httpx, and the text that came before."""


def outcome(where: str, error: BaseException, seen: list[str]) -> Outcome:
    cause = error.__cause__ if isinstance(error, openai.OpenAIError) else None
    return where, type(error), None if cause is None else type(cause), "".join(seen)


def ask(client: Any, **fields: Any) -> Outcome:
    where, seen = "create", list[str]()
    try:
        answer = client.chat.completions.create(**ASK, **fields)
        where = "stream"
        for part in answer:
            seen += [choice.delta.content or "" for choice in part.choices]
    except Exception as error:
        return outcome(where, error, seen)
    raise AssertionError("nothing was lost")


def read_lines(client: Any, **fields: Any) -> Outcome:
    """The stream's lines, as who reads the response itself sees them."""
    try:
        with client.chat.completions.with_streaming_response.create(**ASK, **fields) as response:
            for _ in response.iter_lines():
                pass
    except Exception as error:
        return outcome("lines", error, [])
    raise AssertionError("nothing was lost")


async def ask_async(client: Any, **fields: Any) -> Outcome:
    where, seen = "create", list[str]()
    try:
        answer = await client.chat.completions.create(**ASK, **fields)
        where = "stream"
        async for part in answer:
            seen += [choice.delta.content or "" for choice in part.choices]
    except Exception as error:
        return outcome(where, error, seen)
    raise AssertionError("nothing was lost")


STREAM = {"stream": True}
CASES: dict[str, tuple[Server | None, Any, dict[str, Any]]] = {
    "a stream that is cut": (cut_a_stream, cut("one two"), STREAM),
    "a stream that stalls": (stall_in_a_stream, timeout().after("one two"), STREAM),
    "a body that is cut": (cut_a_body, cut("one two"), {}),
    "a server that is not there": (None, connection_error(), {}),
    "a server that is not there, for a stream": (None, connection_error(), STREAM),
    "a server that does not answer": (never_answer, timeout(), {}),
    "a server that does not answer, for a stream": (never_answer, timeout(), STREAM),
}
SILENT = (stall_in_a_stream, never_answer)
"""Servers for which a client's patience ends; others answer, however late on a busy machine."""


def patience(server: Server | None) -> dict[str, Any]:
    """Seconds that each read of a real connection waits."""
    return {"timeout": 0.2 if server in SILENT else 60.0, "max_retries": 0}


@contextlib.contextmanager
def connected(server: Server | None) -> Iterator[openai.OpenAI]:
    """The SDK's client of a server."""
    with serving(server) as address, openai.OpenAI(api_key="x", base_url=address, **patience(server)) as client:
        yield client


@pytest.mark.parametrize(("server", "script", "fields"), CASES.values(), ids=CASES)
def test_scripted_and_patched_clients_raise_what_the_sdk_raises(
    server: Server | None, script: Any, fields: dict[str, Any]
) -> None:
    with connected(server) as stock:
        expected = ask(stock, **fields)
    with scripted(script, script, assert_complete=False) as client:
        assert ask(client.with_options(max_retries=0), **fields) == expected
        with patch_openai(client):
            assert ask(openai.OpenAI(api_key="x", max_retries=0), **fields) == expected


@pytest.mark.anyio
@pytest.mark.parametrize(("server", "script", "fields"), CASES.values(), ids=CASES)
async def test_async_clients_do_so_too(
    server: Server | None, script: Any, fields: dict[str, Any], anyio_backend: str
) -> None:
    with serving(server) as address:
        async with openai.AsyncOpenAI(api_key="x", base_url=address, **patience(server)) as stock:
            expected = await ask_async(stock, **fields)
    async with scripted(script, script, assert_complete=False) as client:
        assert await ask_async(client.with_options(max_retries=0), **fields) == expected
        with patch_openai(client):
            assert await ask_async(openai.AsyncOpenAI(api_key="x", max_retries=0), **fields) == expected


def test_who_reads_the_lines_of_a_stream_gets_the_exception_of_httpx() -> None:
    with connected(cut_a_stream) as stock:
        expected = read_lines(stock, stream=True)
    assert expected[1] is sdk.httpx.RemoteProtocolError
    with scripted(cut("one two"), cut("one two")) as client:
        assert read_lines(client, stream=True) == expected
        with patch_openai(client):
            assert read_lines(openai.OpenAI(api_key="x"), stream=True) == expected


def test_a_model_that_takes_longer_than_a_stream_waits_is_a_connection_that_stalls() -> None:
    with connected(stall_in_a_stream) as stock:
        expected = ask(stock, stream=True)
    with ScriptedEngine([Reply("one two", hang=True)] * 2) as engine:
        local = LocalOpenAI(engine=engine, timeout=0.2)
        assert ask(local, stream=True) == expected
        with patch_openai(local):
            assert ask(openai.OpenAI(api_key="x", timeout=0.2), stream=True) == expected

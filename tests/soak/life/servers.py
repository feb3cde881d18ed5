"""Servers that run beside a test."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.engine.harness import eventually
from tests.scripts import ROOT
from tests.tiny import tiny

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
MODEL = repr(str(tiny("qwen3", max_position_embeddings=200_000)))
ASK = """ask = dict(model="any", messages=[{"role": "user", "content": "Go on"}], temperature=0)"""
STREAMED = 5_000  # tokens: longer than a new worker needs


def free_port() -> int:
    """Number of a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextlib.contextmanager
def gunicorn(folder: Path, *options: str, early: bool = False) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server with one worker whose app has a client.

    Args:
        folder: where its files are.
        options: more of gunicorn's.
        early: the app makes the client when it is imported.

    Yields:
        The process of the master, and the server's address. `/stream` streams an answer, `/running` counts the rows
        that run, and any other path gets a whole answer.
    """
    (folder / "app.py").write_text(
        f"""
import functools, json, os
import openai
from localai_shim import LocalOpenAI
{ASK}

@functools.cache
def client():
    return LocalOpenAI({MODEL})

if os.environ.get("EARLY"):
    client().chat.completions.create(**ask, max_tokens=1)  # in the master, where the app is preloaded

def app(environ, start):
    start("200 OK", [("Content-Type", "application/json")])
    try:
        if environ["PATH_INFO"] == "/stream":
            stream = client().chat.completions.create(
                **ask, stream=True, max_tokens={STREAMED}, extra_body={{"ignore_eos": True}},
                stream_options={{"include_usage": True}},
            )
            return (b"%d" % chunk.usage.completion_tokens if chunk.usage else b"." for chunk in stream)
        if environ["PATH_INFO"] == "/running":
            return [json.dumps([os.getpid(), client().stats().running]).encode()]
        said = client().chat.completions.create(**ask, max_tokens=6).usage.completion_tokens
    except openai.APIConnectionError as error:
        said = str(error.__cause__ or error)
    return [json.dumps([os.getpid(), said]).encode()]
"""
    )
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "app:app", "-b", f"127.0.0.1:{port}", "-w", "1", "--threads", "2"]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [*command, "--timeout", "60", "--graceful-timeout", "60", *options],
            cwd=folder,
            env=ENVIRONMENT | ({"EARLY": "1"} if early else {}),
            stdout=log,
            stderr=log,
        ) as master,
    ):
        try:
            yield master, f"http://127.0.0.1:{port}"
        finally:
            master.terminate()
            master.wait(30)


def fetch(url: str) -> Any:
    """The answer, once the server has one."""

    def tried() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                made.append(json.loads(response.read()))
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    made: list[Any] = []
    assert eventually(tried, 60)
    return made[0]

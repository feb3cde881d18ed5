"""Programs that are stopped for a while, and signals that end them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.scripts import ROOT
from tests.tiny import tiny

PROGRAM = """
import signal, sys
import openai
from localai_shim import LocalOpenAI
ask = dict(model="any", messages=[{"role": "user", "content": "Go on"}], temperature=0)
client = LocalOpenAI(MODEL)
extra = {"ignore_eos": True}
"""
BREAK_SECONDS = 10.0  # of a debugger


@contextlib.contextmanager
def program(code: str) -> Iterator[subprocess.Popen[str]]:
    script = (PROGRAM + code).replace("MODEL", repr(str(tiny("qwen3", max_position_embeddings=200_000))))
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as made:
        try:
            yield made
        finally:
            made.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_break_of_ten_seconds_loses_nothing() -> None:
    """The stream goes on where it was; who had less time than that is told so at once."""
    with program(
        """
import threading
def late():
    try:
        client.chat.completions.create(**ask, max_tokens=150_000, extra_body=extra, timeout=5)
    except openai.APITimeoutError:
        print("late", flush=True)
stream = client.with_options(max_retries=0).chat.completions.create(
    **ask, stream=True, max_tokens=3_000, extra_body=extra)
next(stream)
waiting = threading.Thread(target=late)
waiting.start()
while client.stats().running + client.stats().waiting < 2:
    next(stream)
print("stopping", flush=True)
waiting.join()
print(sum(bool(chunk.choices) for chunk in stream) > 1_000, flush=True)
print(client.chat.completions.create(**ask, max_tokens=5).usage.completion_tokens, flush=True)
"""
    ) as stopped:
        assert line(stopped) == "stopping"
        os.kill(stopped.pid, signal.SIGSTOP)
        time.sleep(BREAK_SECONDS)  # is what is tested
        os.kill(stopped.pid, signal.SIGCONT)
        began = time.monotonic()
        assert line(stopped) == "late"
        assert time.monotonic() - began < 5, "no second five seconds"
        assert line(stopped) == "True"
        assert line(stopped) == "5"
        assert stopped.wait(30) == 0
        assert stopped.stderr is not None and stopped.stderr.read() == ""


@pytest.mark.parametrize("handler", ["", "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"])
@pytest.mark.parametrize("state", ["a whole answer", "a stream"])
def test_sigterm_ends_a_program_at_once(state: str, handler: str) -> None:
    """As it is by default, and with a handler that leaves."""
    wait = {
        "a whole answer": "client.chat.completions.create(**ask, max_tokens=150_000, extra_body=extra)",
        "a stream": "[None for _ in stream]",
    }[state]
    with program(
        f"""
{handler}
stream = client.chat.completions.create(**ask, stream=True, max_tokens=150_000, extra_body=extra)
next(stream)
print("running", flush=True)
{wait}
"""
    ) as stopped:
        assert line(stopped) == "running"
        began = time.monotonic()
        stopped.terminate()
        assert stopped.wait(30) == (7 if handler else -signal.SIGTERM)
        assert time.monotonic() - began < 20
        assert stopped.stderr is not None and stopped.stderr.read() == ""

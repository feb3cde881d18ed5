"""Processes that make other processes: each way to start one, pools, and a worker that has a client of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripts import ROOT, run
from tests.tiny import tiny

PRELUDE = """
import multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
import openai
from localai_shim import LocalOpenAI

ask = dict(model="any", messages=[{"role": "user", "content": "Go on"}], temperature=0)
"""

WORK = """
def own(number):
    with LocalOpenAI(MODEL) as client:
        return client.chat.completions.create(**ask, max_tokens=number).usage.completion_tokens

def inherited(number):
    try:
        return client.chat.completions.create(**ask, max_tokens=number).usage.completion_tokens
    except openai.APIConnectionError as error:
        return str(error.__cause__ or error)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_pool_s_workers_have_clients_of_their_own_amid_a_stream(method: str, tmp_path: Path) -> None:
    code = f"""
if __name__ == "__main__":
    client = LocalOpenAI(MODEL)
    stream = client.chat.completions.create(**ask, stream=True, max_tokens=400, extra_body={{"ignore_eos": True}})
    next(stream)
    with ProcessPoolExecutor(2, multiprocessing.get_context({method!r})) as pool:
        print(list(pool.map(own, [3, 4, 5], timeout=80)))
    print(sum(bool(chunk.choices) for chunk in stream) > 300)
"""
    file = tmp_path / "program.py"  # which workers import
    file.write_text((PRELUDE + WORK + code).replace("MODEL", repr(str(tiny("qwen3", max_position_embeddings=200_000)))))
    ended = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "[3, 4, 5]\nTrue\n"


def test_a_forked_worker_is_told_at_once_and_the_parent_goes_on() -> None:
    """With a client that it inherits, and with one that it makes."""
    ended = run(
        PRELUDE
        + WORK
        + """
client = LocalOpenAI(MODEL)
stream = client.chat.completions.create(**ask, stream=True, max_tokens=300, extra_body={"ignore_eos": True})
next(stream)

def new(number):
    try:
        return own(number)
    except openai.APIConnectionError as error:
        return str(error.__cause__ or error)

began = time.monotonic()
with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
    print(pool.submit(inherited, 3).result(60), flush=True)
    print(pool.submit(new, 3).result(60), flush=True)
print(sum(bool(chunk.choices) for chunk in stream) > 200)
print(own(4))
""",
        warm="mlx",
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    first, second, whole, own = ended.stdout.splitlines()
    assert "forked" in first and "spawn" in first
    assert "forked" in second
    assert (whole, own) == ("True", "4")


def test_workers_that_fork_before_mlx_is_imported_have_clients() -> None:
    """As gunicorn's do without --preload."""
    ended = run(
        PRELUDE
        + WORK
        + """
with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
    print(sorted(pool.map(own, [3, 4], timeout=80)))
"""
    )
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "[3, 4]\n")

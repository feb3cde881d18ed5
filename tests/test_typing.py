"""Type checkers see the SDK's own signatures, and the package is typed for strict users."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples import exhaustive

SAMPLE = """
from typing import assert_type

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.adapters.scripted import ScriptedEngine

client = LocalOpenAI(model="x", timeout=3.0)
takes_sdk: openai.OpenAI = client
answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
assert_type(answer, ChatCompletion)
stream = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True)
assert_type(stream, openai.Stream[ChatCompletionChunk])
assert_type(client.with_options(timeout=1), LocalOpenAI)
with ScriptedEngine(["hi", ["h", b"i"]]) as engine:
    LocalOpenAI(engine=engine)


async def main() -> None:
    async with AsyncLocalOpenAI() as asynchronous:
        assert_type(
            await asynchronous.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}]),
            ChatCompletion,
        )


client.chat.completions.create(model=3)  # E: a wrong call is still a type error
"""


@exhaustive
@pytest.mark.timeout(300)  # mypy reads all of the SDK, without a cache
def test_strict_mypy_sees_the_sdk_s_types_through_the_clients(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", str(sample)],
        capture_output=True,
        text=True,
        check=False,
    )
    wrong = 1 + SAMPLE[: SAMPLE.index("# E:")].count("\n")
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert errors and all(f"sample.py:{wrong}:" in line for line in errors), done.stdout + done.stderr

"""A program may put the clients in the place of the SDK's own classes, before it imports anything else."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import ScriptedEngine, patch_openai
from tests.conftest import MESSAGES
from tests.scripts import run

REPLACE = """
import openai
from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import ScriptedEngine

openai.OpenAI = openai.Client = LocalOpenAI
openai.AsyncOpenAI = openai.AsyncClient = AsyncLocalOpenAI
engine = ScriptedEngine(lambda *_: "Hello")
ask = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}]}

def text(client):
    return client.chat.completions.create(**ask).choices[0].message.content
"""
"""First lines of such a program."""

PROGRAMS = {
    "clients and their copies": """
        client = openai.OpenAI(api_key="x", base_url="https://api.openai.com/v1", max_retries=3, engine=engine)
        assert type(client) is LocalOpenAI and client.api_key == "x" and client.max_retries == 3
        assert text(client) == text(client.with_options(timeout=9)) == text(client.copy(max_retries=1)) == "Hello"
        try:
            openai.OpenAI(max_retry=1)
        except TypeError as error:
            assert "Did you mean 'max_retries'?" in str(error), error
        """,
    "async clients": """
        import asyncio

        async def main():
            async with openai.AsyncOpenAI(api_key="x", organization="me", engine=engine) as client:
                made = await client.with_options(timeout=9).responses.create(model="m", input="Hi")
                assert (type(client), client.organization, made.output_text) == (AsyncLocalOpenAI, "me", "Hello")

        asyncio.run(main())
        """,
    "subclasses": """
        class Mine(openai.OpenAI):
            def __init__(self, **options):
                super().__init__(engine=engine, **options)

        mine = Mine(api_key="x", timeout=5)
        assert text(mine) == text(mine.with_options(timeout=1)) == "Hello" and mine.timeout == 5
        """,
    "http clients": """
        from openai._client import OpenAI
        from localai_shim import http_client

        with OpenAI(api_key="x", http_client=http_client(engine=engine)) as stock:
            assert text(stock) == "Hello"
            try:
                stock.chat.completions.create(**{**ask, "temperature": 9})
            except openai.BadRequestError as error:
                assert error.param == "temperature"
        """,
    "patches": """
        from openai._client import OpenAI
        from localai_shim.testing import patch_openai

        before = dict(vars(OpenAI)), dict(vars(LocalOpenAI))
        with openai.OpenAI(api_key="x", engine=engine) as local:
            with patch_openai(local):
                assert text(OpenAI()) == text(openai) == text(local) == "Hello"
            for names, cls in zip(before, (OpenAI, LocalOpenAI)):
                assert names == {name: vars(cls)[name] for name in names}
        """,
    "batches": """
        from time import sleep

        client = openai.OpenAI(api_key="x", engine=engine)
        line = b'{"custom_id": "1", "method": "POST", "url": "/v1/responses", "body": {"model": "m", "input": "Hi"}}'
        file = client.files.create(file=("in.jsonl", line), purpose="batch")
        batch = client.batches.create(completion_window="24h", endpoint="/v1/responses", input_file_id=file.id)
        while (batch := client.batches.retrieve(batch.id)).status in ("validating", "in_progress", "finalizing"):
            sleep(0.01)
        assert b"Hello" in client.files.content(batch.output_file_id).content
        client.close()
        """,
    "cassettes": """
        import sys
        from openai._client import OpenAI
        from localai_shim import http_client
        from localai_shim.testing import play_cassette

        stock = OpenAI(api_key="x", http_client=http_client(engine=engine))
        with play_cassette(sys.argv[1], record_mode="once", source=stock) as client:
            assert text(client) == "Hello"
        with play_cassette(sys.argv[1]) as client:
            assert text(client) == "Hello"
        """,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_clients_work_in_the_place_of_the_sdk_s_classes(program: str, tmp_path: Path) -> None:
    script = REPLACE + textwrap.dedent(program).replace("sys.argv[1]", repr(str(tmp_path / "made.jsonl")))
    done = run(script + "engine.close()\n")
    assert done.returncode == 0, done.stderr


def test_clients_that_are_there_go_on_when_the_classes_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    ask: dict[str, Any] = {"model": "gpt-4o", "messages": MESSAGES}
    with ScriptedEngine(lambda *_: "Hello") as engine, LocalOpenAI(engine=engine) as before:
        stock = openai.OpenAI(api_key="x")
        monkeypatch.setattr(openai, "OpenAI", LocalOpenAI)
        monkeypatch.setattr(openai, "AsyncOpenAI", AsyncLocalOpenAI)
        assert before.user_agent == stock.user_agent
        for client in (before, before.with_options(timeout=3), openai.OpenAI(api_key="x", engine=engine)):
            assert client.chat.completions.create(**ask).choices[0].message.content == "Hello"
        with patch_openai(before):
            assert stock.chat.completions.create(**ask).choices[0].message.content == "Hello"

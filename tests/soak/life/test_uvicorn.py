"""Real workers of uvicorn: the application that docs/swapping.md shows, and a stream that a stop comes amid."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.engine.harness import eventually
from tests.scripts import ROOT
from tests.soak.life.servers import ENVIRONMENT, free_port

PAGE = (ROOT / "docs" / "swapping.md").read_text(encoding="utf-8")
STREAM = """
async def streamed(scope, receive, send):
    if scope["type"] != "http" or scope["path"] != "/stream":
        return await served(scope, receive, send)
    asked = [{"role": "user", "content": "Go on"}]
    stream = await async_worker_client().chat.completions.create(
        model="any", messages=asked, stream=True, max_tokens=1_500, extra_body={"ignore_eos": True})
    await send({"type": "http.response.start", "status": 200, "headers": []})
    async for _ in stream:
        await send({"type": "http.response.body", "body": b".", "more_body": True})
    await send({"type": "http.response.body", "body": b""})
"""


def listens(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_workers_answer_and_end_amid_a_stream(loop: str, tmp_path: Path) -> None:
    (shown,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "async def served" in block)
    (tmp_path / "app.py").write_text("import functools\n" + shown + STREAM)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "app:streamed", "--port", str(port), "--workers", "2", "--loop", loop]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            [*command, "--lifespan", "off", "--timeout-graceful-shutdown", "1"],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdout=log,
            stderr=log,
        ) as server,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            assert eventually(lambda: listens(port), 60), (tmp_path / "log").read_text()
            for _ in range(3):
                with urllib.request.urlopen(url, timeout=60) as answer:
                    said = json.loads(answer.read())
                assert isinstance(said, str) and said
            with urllib.request.urlopen(f"{url}/stream", timeout=60) as stream:
                assert stream.read(2) == b".."
                server.send_signal(signal.SIGTERM)
                assert server.wait(60) in (0, -signal.SIGTERM), (tmp_path / "log").read_text()
        finally:
            server.kill()

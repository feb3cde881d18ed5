"""A real kernel of a notebook, and real workers of gunicorn and celery."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from jupyter_client.manager import start_new_kernel

from tests.engine.harness import eventually
from tests.scripts import ROOT
from tests.soak.life.servers import ASK, ENVIRONMENT, MODEL, STREAMED, fetch, gunicorn

# -- notebooks --------------------------------------------------------------------------------------------------------


class Notebook:
    """Cells that run in a kernel."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self.connect()

    def disconnect(self) -> None:
        self.client.stop_channels()
        self.client.context.destroy(linger=0)  # its own, and all sockets of it

    def connect(self) -> None:
        self.client = self.manager.client(context=zmq.Context())
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def begin(self, code: str) -> str:
        sent: str = self.client.execute(code)
        return sent

    def wait_for(self, text: str) -> None:
        """Wait until a cell has printed it."""
        seen = ""
        while text not in seen:
            seen += self.client.get_iopub_msg(timeout=60)["content"].get("text", "")

    def end(self, sent: str) -> tuple[str, str]:
        """What was printed, and the name of the exception."""
        printed, error = "", ""
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != sent:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream" and content["name"] == "stdout":
                printed += content["text"]
            elif kind == "error":
                error = content["ename"]
            elif kind == "status" and content["execution_state"] == "idle":
                return printed, error

    def run(self, code: str) -> tuple[str, str]:
        return self.end(self.begin(code))


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(ROOT), env=ENVIRONMENT)
    client.stop_channels()
    made = Notebook(manager)
    try:
        yield made
    finally:
        made.disconnect()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
        client.context.destroy(linger=0)


def test_a_kernel_that_is_interrupted_and_restarted(notebook: Notebook) -> None:
    begin = f"""
from localai_shim import LocalOpenAI, AsyncLocalOpenAI
import threading
{ASK}
long = dict(max_tokens=150_000, extra_body={{"ignore_eos": True}})
client = LocalOpenAI({MODEL})
print(client.chat.completions.create(**ask, max_tokens=4).usage.completion_tokens)
"""
    assert notebook.run(begin) == ("4\n", "")
    for code in (
        "print('now', flush=True)\nclient.chat.completions.create(**ask, **long)",
        "print('now', flush=True)\nfor chunk in client.chat.completions.create(**ask, **long, stream=True): pass",
    ):
        sent = notebook.begin(code)
        notebook.wait_for("now")
        notebook.manager.interrupt_kernel()
        assert notebook.end(sent)[1] == "KeyboardInterrupt"
        assert notebook.run("print(client.chat.completions.create(**ask, max_tokens=3).usage.completion_tokens)") == (
            "3\n",
            "",
        )
        assert eventually(lambda: notebook.run("print(client.stats().running)") == ("0\n", ""))
    awaited = f"""
async with AsyncLocalOpenAI({MODEL}) as other:
    answer = await other.chat.completions.create(**ask, max_tokens=5)
print(answer.usage.completion_tokens, sum(t.name.startswith("localai_shim") for t in threading.enumerate()) >= 1)
"""
    assert notebook.run(awaited) == ("5 True\n", "")
    notebook.begin("stream = client.chat.completions.create(**ask, stream=True, max_tokens=150_000); next(stream)")
    notebook.disconnect()
    notebook.manager.restart_kernel()
    notebook.connect()
    assert notebook.run(begin) == ("4\n", "")


def test_modules_that_are_reloaded_leave_old_clients_alone(notebook: Notebook) -> None:
    """As `%autoreload` does, and as those do who delete modules to import them again."""
    notebook.run(f"from localai_shim import LocalOpenAI\n{ASK}\nclient = LocalOpenAI({MODEL})")
    printed, error = notebook.run(
        """
import importlib, sys
import localai_shim
client.chat.completions.create(**ask, max_tokens=2)
importlib.reload(localai_shim)
print(client.chat.completions.create(**ask, max_tokens=3).usage.completion_tokens)
for name in [name for name in sys.modules if name.partition(".")[0] == "localai_shim"]:
    del sys.modules[name]
import localai_shim as again
print(client.chat.completions.create(**ask, max_tokens=4).usage.completion_tokens)
client.close()
"""
    )
    assert (printed, error) == ("3\n4\n", "")
    assert notebook.run(
        f"other = again.LocalOpenAI({MODEL})\n"
        "print(other.chat.completions.create(**ask, max_tokens=5).usage.completion_tokens)"
    ) == ("5\n", "")


# -- workers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gthread", "gevent"])
def test_a_worker_of_gunicorn_answers_and_is_replaced(kind: str, tmp_path: Path) -> None:
    with gunicorn(tmp_path, "-k", kind) as (master, url):
        before, said = fetch(url)
        assert said == 6
        with urllib.request.urlopen(f"{url}/stream", timeout=60) as stream:
            assert stream.read(2) == b".."
            master.send_signal(signal.SIGHUP)  # a new worker comes; the old one ends its stream, and goes
            assert eventually(lambda: fetch(url)[0] != before, 60)
            assert fetch(url)[1] == 6
            assert stream.read().endswith(b".%d" % STREAMED)
        assert eventually(lambda: not Path(f"/proc/{before}").exists(), 60), "it ended"


@pytest.mark.parametrize("kind", ["gthread", "gevent"])
def test_a_worker_that_gunicorn_forks_from_a_model_says_what_to_do(kind: str, tmp_path: Path) -> None:
    with gunicorn(tmp_path, "-k", kind, "--preload", early=True) as (_, url):
        said = fetch(url)[1]
    assert "forked" in said and "spawn" in said


@pytest.mark.parametrize("pool", ["threads", "prefork", "gevent"])
def test_a_worker_of_celery_answers(pool: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(
        f"""
import functools
from celery import Celery
folder = {str(tmp_path)!r}
app = Celery("tasks", broker="filesystem://", backend="file://" + folder + "/results")
app.conf.broker_transport_options = {{name: folder + "/queue" for name in (
    "data_folder_in", "data_folder_out", "control_folder")}}
{ASK}

@functools.cache
def client():
    from localai_shim import LocalOpenAI
    return LocalOpenAI({MODEL})

@app.task
def count(number):
    return client().chat.completions.create(**ask, max_tokens=number).usage.completion_tokens
"""
    )
    for name in ("queue", "results"):
        (tmp_path / name).mkdir()
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-P", pool, "-c", "2", "--without-gossip"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            [*command, "--without-mingle", "--without-heartbeat"], cwd=tmp_path, env=ENVIRONMENT, stdout=log, stderr=log
        ) as worker,
    ):
        try:
            asked = subprocess.run(
                [
                    sys.executable,
                    "-c",
                    "import tasks; print([each.get(timeout=80) for each in [tasks.count.delay(n) for n in (3, 4, 5)]])",
                ],
                cwd=tmp_path,
                env=ENVIRONMENT,
                capture_output=True,
                text=True,
                timeout=110,
                check=False,
            )
            assert (asked.returncode, asked.stdout) == (0, "[3, 4, 5]\n"), asked.stderr + (tmp_path / "log").read_text()
            began = time.monotonic()
            worker.terminate()
            worker.wait(60)
            assert time.monotonic() - began < 50
        finally:
            worker.kill()

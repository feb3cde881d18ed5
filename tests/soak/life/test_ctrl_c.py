"""Ctrl-C in each state of a request: the caller gets it at once, nothing stays behind, and the next call works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripts import ROOT, run

PRELUDE = """
import asyncio, faulthandler, gc, os, signal, sys, threading, time
import trio
from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.grammar.compile import Grammar
faulthandler.dump_traceback_later(90, exit=True)
OPTIONS = dict(max_rows=1, prefix_cache_bytes=0)
client = LocalOpenAI(MODEL, **OPTIONS)
on = dict(ignore_eos=True)

def ask(text="Go on", tokens=150_000, **more):
    return dict(model="any", messages=[dict(role="user", content=text)], max_tokens=tokens, extra_body=on, **more)

def whole(client=client, **more):
    return client.chat.completions.create(**ask(tokens=3, **more), timeout=60).usage.completion_tokens

interrupted = threading.Event()

def interrupt_when(state):
    # Again where Python was just about to sleep, and did not see the first.
    interrupted.clear()
    def watch():
        while not state():
            time.sleep(0.0005)
        os.kill(os.getpid(), signal.SIGINT)
        while not interrupted.wait(5):
            os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=watch, daemon=True).start()

def idle(client=client):
    gc.collect(0)
    until = time.monotonic() + 60
    while (rows := client.stats().running + client.stats().waiting) and time.monotonic() < until:
        time.sleep(0.001)
    return rows == 0

begun = threading.Event()
make = Grammar.__init__
def noting(self, *args):
    begun.set()
    make(self, *args)
Grammar.__init__ = noting

def compiling():
    begun.clear()
    return begun.is_set

def schema():
    made = os.urandom(3).hex()  # no grammar that is known
    fields = {f"{made}_{i}": dict(type="string", pattern="^[a-z]{3,%d}[0-9]+$" % (20 + i % 9)) for i in range(300)}
    schema = dict(type="object", properties=fields, required=list(fields), additionalProperties=False)
    return dict(type="json_schema", json_schema=dict(name="x", schema=schema, strict=True))

whole()
start = client.stats()
def more(name, least=1):
    before = getattr(client.stats(), name)
    return lambda: getattr(client.stats(), name) >= before + least

STATES = {  # what is asked, and how to tell that it is there
    "prefill": lambda: (ask("why " * 45_000), more("prefilled_tokens")),
    "decoding": lambda: (ask(), more("generated_tokens", 10)),
    "streaming": lambda: (ask(stream=True), more("generated_tokens", 10)),
    "queued": lambda: (ask(), lambda: client.stats().waiting == 1),
    "compiling": lambda: (ask(response_format=schema()), compiling()),
}
running = None
"""

WAYS = {
    "sync": """
def go(client, asked):
    made = client.chat.completions.create(**asked)
    for chunk in made:
        pass
""",
    "asyncio": """
async def beside(asked):
    beat = asyncio.create_task(beating())
    try:
        await main(asked)
    finally:
        beat.cancel()

async def beating():  # Python itself wakes no loop that is just about to sleep when a signal comes
    while True:
        await asyncio.sleep(0.02)

def go(client, asked):
    asyncio.run(beside(asked))
""",
    "trio": """
def go(client, asked):
    trio.run(main, asked)
""",
}
MAIN = """
other = AsyncLocalOpenAI(MODEL, **OPTIONS)
async def main(asked):
    made = await other.chat.completions.create(**asked)
    async for chunk in made:
        pass
"""
EACH = """
for name, state in STATES.items():
    running = client.chat.completions.create(**ask(stream=True)) if name == "queued" else None
    if running:
        next(running)
    asked, there = state()
    interrupt_when(there)
    try:
        go(client, asked)
    except KeyboardInterrupt:
        interrupted.set()
        print(name, end=" ")
    if running:
        next(running)  # it goes on
        running.close()
    print(idle(), whole(), flush=True)
"""


@pytest.mark.parametrize("way", WAYS)
def test_in_each_state_of_a_request(way: str) -> None:
    done = run(PRELUDE + MAIN + WAYS[way] + EACH, warm="mlx")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{name} True 3" for name in ("prefill", "decoding", "streaming", "queued", "compiling")
    ]


@pytest.mark.parametrize("way", WAYS)
def test_while_a_model_loads(way: str) -> None:
    """The load goes on, and the next call gets the model."""
    code = """
from localai_shim.models import loading
load, opened = loading.load_model, threading.Event()
def held(*args, **more):
    opened.wait()
    return load(*args, **more)
loading.load_model = held

OPTIONS = dict(max_rows=2, keep_alive=0)
client = LocalOpenAI(MODEL, **OPTIONS)
(shared,) = client._runtime._engines.values()
ready = shared.engine.ready
before = len(ready._done_callbacks)
interrupt_when(lambda: ready._condition._waiters or len(ready._done_callbacks) > before)  # somebody waits
"""
    rest = """
try:
    go(client, ask())
except KeyboardInterrupt:
    interrupted.set()
    print("interrupted", shared.engine.is_ready)
opened.set()
print(whole(client), idle(client))
"""
    done = run(PRELUDE + code + MAIN + WAYS[way] + rest, warm="mlx")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "interrupted False\n3 True\n"


def test_amid_a_batch() -> None:
    """It goes on while its caller is interrupted, can be cancelled, and keeps no program from its end."""
    code = """
import json
client = LocalOpenAI(MODEL)
def batch(tokens, lines):
    body = lambda: ask(tokens=tokens) | dict(ignore_eos=True)
    made = [dict(custom_id=str(i), method="POST", url="/v1/chat/completions", body=body()) for i in range(lines)]
    for each in made:
        each["body"].pop("extra_body")
    file = client.files.create(file=("a.jsonl", "\\n".join(map(json.dumps, made)).encode()), purpose="batch")
    return client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h").id

def wait_for(id, *states):
    while (now := client.batches.retrieve(id)).status not in states:
        time.sleep(0.002)
    return now

short = batch(2_500, 4)  # longer than until a dropped signal comes again
try:
    interrupt_when(lambda: client.stats().running > 0)  # perhaps at once
    wait_for(short, "completed")
except KeyboardInterrupt:
    interrupted.set()
    print("interrupted")
done = wait_for(short, "completed", "failed")
print(done.status, done.request_counts.completed)
long = batch(150_000, 2)
try:
    interrupt_when(lambda: client.stats().running > 0)  # perhaps at once
    wait_for(long, "completed")
except KeyboardInterrupt:
    interrupted.set()
    client.batches.cancel(long)
    print(wait_for(long, "cancelled").status, idle(client))
batch(150_000, 2)
"""
    done = run(PRELUDE + code, warm="mlx")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "interrupted\ncompleted 4\ncancelled True\n"


def test_amid_a_test_of_pytest_s(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        """
def test_it(local_openai_tiny):
    ask = dict(model="any", messages=[dict(role="user", content="Go on")], extra_body=dict(ignore_eos=True))
    while True:
        for chunk in local_openai_tiny.chat.completions.create(**ask, stream=True):
            print("running", flush=True)
"""
    )
    code = (  # a shell's job in the background ignores SIGINT
        "import signal, sys, pytest; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "sys.exit(pytest.main(['-q', '-s', '-p', 'no:cacheprovider', sys.argv[1]]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ
    ) as session:
        assert session.stdout is not None and session.stderr is not None
        while "running" not in (line := session.stdout.readline()):
            assert line, session.stderr.read()
        session.send_signal(signal.SIGINT)
        shown, told = session.communicate(timeout=60)
    assert session.returncode == pytest.ExitCode.INTERRUPTED, told
    assert "KeyboardInterrupt" in shown

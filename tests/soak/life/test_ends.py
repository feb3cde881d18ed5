"""Ends of interpreters in odd states, and event loops that come and go around one client."""

from __future__ import annotations

import pytest

from tests.scripts import run

PRELUDE = """
import asyncio, atexit, contextlib, faulthandler, os, sys, threading
import openai
from localai_shim import AsyncLocalOpenAI, LocalOpenAI
faulthandler.dump_traceback_later(90, exit=True)
ask = dict(model="any", messages=[dict(role="user", content="Go on")], extra_body=dict(ignore_eos=True))

def count(client, **more):
    return client.chat.completions.create(**ask, max_tokens=3, **more).usage.completion_tokens

def open_stream(client):
    stream = client.chat.completions.create(**ask, stream=True)
    next(stream)
    return stream

def in_threads(work, daemon=True):
    threads = [threading.Thread(target=work, daemon=daemon) for _ in range(3)]
    for each in threads:
        each.start()
    return threads
"""

ENDS = {
    "exit handlers from before the first client and from behind it": (
        """
made = []
atexit.register(lambda: print("early", count(made[0])))
made.append(LocalOpenAI(MODEL))
stream = open_stream(made[0])
atexit.register(lambda: print("late", count(made[0]), bool(next(stream).choices)))
""",
        0,
        "late 3 True\nearly 3\n",
    ),
    "an exit handler that makes a client": (
        "atexit.register(lambda: print(count(LocalOpenAI(MODEL))))",
        0,
        "3\n",
    ),
    "an exit handler that closes a client with a stream": (
        "client = LocalOpenAI(MODEL)\nstream = open_stream(client)\natexit.register(client.close)",
        0,
        "",
    ),
    "os._exit amid a stream": (
        """
client = LocalOpenAI(MODEL)
stream = open_stream(client)
os._exit(7)
""",
        7,
        "",
    ),
    "daemon threads that read streams": (
        """
client = LocalOpenAI(MODEL)
reading = threading.Barrier(4)
def read():
    stream = open_stream(client)
    reading.wait()
    with contextlib.suppress(openai.APIConnectionError):  # the engine ends
        for chunk in stream:
            pass
in_threads(read)
reading.wait()
""",
        0,
        "",
    ),
    "daemon threads whose long texts are tokenised": (
        """
client = LocalOpenAI(MODEL)
from localai_shim.models.text import TextTokenizer
count(client)
encode, inside = TextTokenizer.encode, threading.Semaphore(0)
def noting(self, *args, **more):
    inside.release()
    return encode(self, *args, **more)
TextTokenizer.encode = noting
long = dict(ask, messages=[dict(role="user", content="why not " * 20_000)])
def ask_long():
    with contextlib.suppress(openai.APIConnectionError):  # or that of a timeout
        client.chat.completions.create(**long)
in_threads(ask_long)
for _ in range(3):
    inside.acquire()
""",
        0,
        "",
    ),
    "daemon threads whose grammars are compiled": (
        """
client = LocalOpenAI(MODEL)
from localai_shim.grammar.compile import Grammar
count(client)
make, inside = Grammar.__init__, threading.Semaphore(0)
def noting(self, *args):
    inside.release()
    make(self, *args)
Grammar.__init__ = noting
def schema():
    fields = {f"{threading.get_ident()}_{i}": dict(type="string", pattern="^[a-z]{3,25}[0-9]+$") for i in range(400)}
    whole = dict(type="object", properties=fields, required=list(fields), additionalProperties=False)
    return dict(type="json_schema", json_schema=dict(name="x", schema=whole, strict=True))
def ask_strictly():
    with contextlib.suppress(openai.APIConnectionError):
        count(client, response_format=schema())
in_threads(ask_strictly)
for _ in range(3):
    inside.acquire()
""",
        0,
        "",
    ),
    "an engine's thread that is slow to fall asleep": (
        """
import time
from localai_shim.engine import threads
class Late(threading.Event):
    def set(self):
        super().set()
        time.sleep(0.03)
begin = threads.Run.__init__
def begin_late(self, thread):
    begin(self, thread)
    self.ended = Late()
threads.Run.__init__ = begin_late
print(count(LocalOpenAI(MODEL, keep_alive=0)), count(LocalOpenAI(MODEL)))
""",
        0,
        "3 3\n",
    ),
    "daemon threads that ask again and again": (
        """
client = LocalOpenAI(MODEL)
count(client)
def ask_on():
    while True:
        with contextlib.suppress(openai.APIConnectionError):  # no other engine is started
            count(client)
in_threads(ask_on)
""",
        0,
        "",
    ),
    "batches that have begun": (
        """
import json
client = LocalOpenAI(MODEL)
line = dict(method="POST", url="/v1/chat/completions", body=dict(ask, max_tokens=50, ignore_eos=True))
del line["body"]["extra_body"]
lines = "\\n".join(json.dumps(dict(line, custom_id=str(i))) for i in range(50))
for _ in range(3):
    file = client.files.create(file=("a.jsonl", lines.encode()), purpose="batch")
    client.batches.create(input_file_id=file.id, endpoint=line["url"], completion_window="24h")
count(client)
""",
        0,
        "",
    ),
    "sys.exit in a thread amid a stream": (
        """
client = LocalOpenAI(MODEL)
def leave():
    stream = open_stream(client)
    sys.exit(3)
for each in in_threads(leave, daemon=False):
    each.join()
print(count(client))
""",
        0,
        "3\n",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_an_interpreter_ends_quietly(end: str) -> None:
    code, status, shown = ENDS[end]
    done = run(PRELUDE + code, warm="mlx")
    assert (done.returncode, done.stderr, done.stdout) == (status, "", shown)


LOOPS = """
client = AsyncLocalOpenAI(MODEL)

async def several():
    stream = await client.chat.completions.create(**ask, stream=True)  # which is left open
    await stream.__anext__()
    whole = [client.chat.completions.create(**ask, max_tokens=3) for _ in range(4)]
    return sum(answer.usage.completion_tokens for answer in await asyncio.gather(*whole))

async def again():
    return await several() + await several()

def rows():
    return client.stats().running + client.stats().waiting
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_one_client_in_event_loops_after_and_beside_each_other(loop: str) -> None:
    code = f"""
import gc, time
import {loop}
def run(main):
    with asyncio.Runner(loop_factory={loop}.new_event_loop) as runner:
        return runner.run(main())

print([run(several) for _ in range(3)])
totals = []
def work():
    for _ in range(3):
        totals.append(run(again))
for each in in_threads(work):
    each.join()
print(totals)
gc.collect()
until = time.monotonic() + 60
while rows() and time.monotonic() < until:
    time.sleep(0.002)
print(rows(), run(several))
"""
    done = run(PRELUDE + LOOPS + code, warm="mlx")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{[12] * 3}\n{[24] * 9}\n0 12\n"

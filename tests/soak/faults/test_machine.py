"""What a machine may lack: threads, space on its disk, descriptors. Who needs it fails; others do not notice."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from benchmarks.soak.setting import close_pair, open_pair
from tests.scripts import run
from tests.soak.faults.load import CALLERS, Load
from tests.soak.faults.outcomes import attempt, gets, said

NO_THREAD = "can't start new thread"
NEEDY = ("chat", "stream", "schema", "response", "background", "batch", "stored", "file", "embeddings", "load")
"""Kinds of requests, some of which need a thread."""


@contextmanager
def without_threads() -> Iterator[None]:
    """No thread of the package starts meanwhile."""
    start = threading.Thread.start

    def refusing(self: threading.Thread) -> None:
        if self.name.startswith("localai_shim:"):
            raise RuntimeError(NO_THREAD)
        start(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refusing)
        yield


@pytest.mark.parametrize("caller", CALLERS[:2])
def test_threads_that_cannot_be_started(load: Load, caller: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = {name: open_pair(options) for name, options in load.options.items()}  # without threads of their own
    monkeypatch.setattr(load, "pairs", fresh)
    failed = set[str]()
    with load.busy("text", "embedder") as beside, without_threads():
        for kind in NEEDY:
            outcome = attempt(load, kind, caller)
            if gets(load, kind, outcome) != "right":
                assert isinstance(outcome, openai.InternalServerError | RuntimeError) and NO_THREAD in said(outcome)
                failed.add(kind)
    assert failed >= {"background", "batch"}
    assert all(each.is_right and each.error is None for each in beside)
    for kind in NEEDY:
        assert load.is_right(kind, load.play(kind, caller)), kind
    for pair in fresh.values():
        close_pair(pair)
    monkeypatch.undo()
    load.renew()
    assert not load.left()


PRELUDE = """
import os, resource, sys, threading
from pathlib import Path
import openai
from localai_shim import LocalOpenAI

ASK = dict(model="m", messages=[{"role": "user", "content": "One two three"}], temperature=0, max_tokens=12)
GO_ON = dict(model="m", prompt="one two", temperature=0, max_tokens=400, extra_body={"ignore_eos": True})
folder = Path(sys.argv[1])

def said(client):
    return client.chat.completions.create(**ASK).choices[0].message.content

def refused(work, kind=openai.InternalServerError):
    try:
        work()
    except kind as error:
        return str(error)
    raise AssertionError("it went well")
"""


def in_child(code: str, folder: object) -> subprocess.CompletedProcess[str]:
    """Run a script whose limits are its own."""
    return run(PRELUDE.replace("sys.argv[1]", repr(str(folder))) + code, warm="mlx")


DISK = """
client = LocalOpenAI(MODEL, store=folder / "store.sqlite", cache_dir=folder / "cache", keep_alive=0)
expected, whole = said(client), client.completions.create(**GO_ON).choices[0].text
kept = client.responses.create(model="m", input="Hello", max_output_tokens=16, temperature=0)
stream = client.completions.create(**GO_ON, stream=True)
text = next(stream).choices[0].text
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # no file may grow beyond it

big = "word " * 150
respond = lambda **more: client.responses.create(model="m", input=big, max_output_tokens=16, temperature=0, **more)
why = refused(respond)
assert "store" in why and "cannot be used" in why, why
refused(lambda: client.chat.completions.create(**ASK, store=True, metadata={"a": big[:500]}))
refused(lambda: client.files.create(file=("a.jsonl", big.encode() * 100), purpose="batch"))
refused(lambda: respond(background=True))
assert respond(store=False).status == "incomplete" and said(client) == expected
assert client.responses.retrieve(kept.id).output_text == kept.output_text
text += "".join(chunk.choices[0].text for chunk in stream)
assert text == whole, (text, whole)

resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
again = respond(previous_response_id=kept.id)
assert client.responses.retrieve(again.id).output_text == again.output_text
job = respond(background=True)
while job.status in ("queued", "in_progress"):
    job = client.responses.retrieve(job.id)
assert job.status == "incomplete", job
assert said(client) == expected
client.close()
assert not list(folder.rglob("*.part.*")), list(folder.rglob("*.part.*"))
print("done")
"""


def test_a_full_disk(tmp_path: Any) -> None:
    ended = in_child(DISK, tmp_path)
    assert (ended.stdout, ended.returncode) == ("done\n", 0), ended.stderr


DESCRIPTORS = """
import socket
(folder / "a.png").write_bytes(bytes.fromhex(PNG))
ask = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": (folder / "a.png").as_uri()}}]}]
see = lambda: sees.chat.completions.create(model="m", messages=ask, max_tokens=8, temperature=0).choices[0].message
client = LocalOpenAI(MODEL, store=folder / "store.sqlite", cache_dir=folder / "cache", keep_alive=0)
sees = LocalOpenAI("builtin:vision", allow_local_files=folder, keep_alive=0)
expected, seen, whole = said(client), see().content, client.completions.create(**GO_ON).choices[0].text
stream = client.completions.create(**GO_ON, stream=True)
text = next(stream).choices[0].text
taken = []
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
most = max(map(int, os.listdir("/proc/self/fd"))) + 8
resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass

why = refused(see)
assert "Too many open files" in why, why
why = refused(lambda: LocalOpenAI(MODEL, store=folder / "other.sqlite"), ValueError)
assert "other.sqlite" in why, why
assert said(client) == expected
text += "".join(chunk.choices[0].text for chunk in stream)
assert text == whole

for fd in taken:
    os.close(fd)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
assert see().content == seen and said(client) == expected
answer = client.responses.create(model="m", input="Hello", max_output_tokens=16)
assert client.responses.retrieve(answer.id).output_text == answer.output_text
client.close(); sees.close()
print("done")
"""


def test_a_limit_of_descriptors(tmp_path: Any) -> None:
    from tests.endpoints.pictures import png

    ended = in_child(DESCRIPTORS.replace("PNG", repr(png().hex())), tmp_path)
    assert (ended.stdout, ended.returncode) == ("done\n", 0), ended.stderr

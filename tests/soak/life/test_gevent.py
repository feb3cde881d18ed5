"""Programs that gevent has patched: real greenlets around a real engine, each program in a process of its own."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.engine.harness import eventually
from tests.lora import make_adapter
from tests.scripts import run
from tests.soak.life.greenlets import IMPORT, PATCH, PRELUDE, REPORT, SCENARIOS, WATCH
from tests.soak.life.servers import fetch, gunicorn
from tests.tiny import tiny

EXPECTED: dict[str, object] = {
    "streams": [["length"] * 6, True, True],
    "whole": [[60, 600], True],
    "neighbors": [True, ["length"] * 4, True],
    "asynchronous": [[600] * 3, "length", 0, True, True],
    "killed": [True, True, True],
    "timed_out": [True, True, True],
    "dropped": True,
    "closed_by_another": ["ended", True],
    "shared": True,
    "threadpool": [7, True],
    "prepared": [["a"], "messages[0].content[0].type"],
    "stored": [True, True, "cancelled"],
    "hosted": [["completed", "response.completed"] * 2, True],
    "deadline": [[True] * 4, 5, True, "incomplete"],
    "batches": [True, 5, True],
    "adapters": 3,
    "failures": [True, 3, "InternalServerError"],
    "processes": [["1", 0], ["1", 0], True, 0, 6],
    "locks": True,
    "kept": True,
    "closed": True,
}
BEGINNINGS: dict[str, tuple[str, dict[str, str]]] = {
    "patched first": (PATCH, {}),
    "imported first": (IMPORT + PATCH, {"PYTHONWARNINGS": "ignore"}),  # gevent's, of ssl
    "libuv": (PATCH, {"GEVENT_LOOP": "libuv-cffi"}),
}


@pytest.fixture(scope="module")
def outcomes_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """The outcomes of all scenarios in a program that begins in one of these ways; each runs once."""
    folder = tmp_path_factory.mktemp("greenlets")
    model = tiny("qwen3", max_position_embeddings=200_000)
    adapter = make_adapter(folder / "adapter", model)

    @cache
    def outcomes(beginning: str) -> dict[str, Any]:
        first, environment = BEGINNINGS[beginning]
        names = f"NAMES, ADAPTER, EMPTY = {list(EXPECTED)}, {str(adapter)!r}, {str(folder / 'empty')!r}\n"
        ended = run(first + WATCH + PRELUDE + SCENARIOS + names + REPORT, **environment)
        assert ended.returncode == 0, ended.stderr
        made: dict[str, Any] = json.loads(ended.stdout)
        return made

    return outcomes


@pytest.mark.parametrize("scenario", EXPECTED)
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_greenlets_get_what_threads_would(
    scenario: str, beginning: str, outcomes_of: Callable[[str], dict[str, Any]]
) -> None:
    assert outcomes_of(beginning)[scenario] == EXPECTED[scenario]


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_no_greenlet_waits_while_it_holds_a_lock_of_the_system(
    beginning: str, outcomes_of: Callable[[str], dict[str, Any]]
) -> None:
    assert outcomes_of(beginning)["waited"] == []


def test_a_forked_child_of_greenlets_is_told_and_the_parent_goes_on() -> None:
    ended = run(
        PATCH
        + PRELUDE
        + """
stream = create(**ask, max_tokens=200, extra_body={"ignore_eos": True}, stream=True)
next(stream)
child = os.fork()
if not child:
    try:
        create(**ask, max_tokens=3)
    except openai.APIConnectionError as error:
        os._exit(7 if "forked" in str(error.__cause__ or error) else 1)
    os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), list(stream)[-1].choices[0].finish_reason)
"""
    )
    assert (ended.returncode, ended.stdout) == (0, "7 length\n"), ended.stderr


def test_a_greenlet_that_is_alone_waits_as_long_as_it_takes() -> None:
    """gevent calls it an error if a hub has nothing else to wait for, not even for a time."""
    ended = run(
        PATCH
        + """
import gevent
from localai_shim import LocalOpenAI
ask = dict(model="any", messages=[{"role": "user", "content": "Go on"}], max_tokens=20, extra_body={"ignore_eos": True})
def alone():
    with LocalOpenAI(MODEL, keep_alive=0, timeout=None) as client:
        said = client.chat.completions.create(**ask).usage.completion_tokens
        return said, list(client.chat.completions.create(**ask, stream=True))[-1].choices[0].finish_reason
print(gevent.spawn(alone).get(), alone())
"""
    )
    assert (ended.returncode, ended.stdout) == (0, "(20, 'length') (20, 'length')\n"), ended.stderr


def test_a_client_made_before_the_program_is_patched_serves_greenlets() -> None:
    ended = run(
        """
from localai_shim import LocalOpenAI
early = LocalOpenAI(MODEL)
early.chat.completions.create(model="any", messages=[{"role": "user", "content": "Hi"}], max_tokens=2)
"""
        + PATCH
        + PRELUDE
        + """
create, client = early.chat.completions.create, early
before = beats[0]
reading = [gevent.spawn(lambda: list(create(**ask, **some, stream=True))[-1].choices[0].finish_reason) for _ in "ab"]
gevent.joinall(reading, timeout=60)
print([each.value for each in reading], beats[0] - before > 5)
""",
        PYTHONWARNINGS="ignore",
    )
    assert (ended.returncode, ended.stdout) == (0, "['length', 'length'] True\n"), ended.stderr


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=["patched first", "imported first"])
def test_a_worker_of_gevent_streams_to_several_at_the_same_time(options: tuple[str, ...], tmp_path: Path) -> None:
    with gunicorn(tmp_path, "-k", "gevent", *options) as (_, url):
        assert fetch(url)[1] == 6
        with contextlib.ExitStack() as open_streams:
            streams = [urllib.request.urlopen(f"{url}/stream", timeout=60) for _ in range(4)]
            for stream in streams:
                open_streams.enter_context(stream)
                assert stream.read(2) == b".."
            assert fetch(f"{url}/running")[1] == 4, "all in one batch"
            assert fetch(url)[1] == 6, "and others are answered meanwhile"
            for stream in streams[1:]:
                stream.close()
            assert eventually(lambda: fetch(f"{url}/running")[1] == 1, 60), "who leaves frees its row"
            assert streams[0].read(2) == b".."
        assert eventually(lambda: fetch(f"{url}/running")[1] == 0, 60)


def test_several_processes_and_a_program_of_eventlet_are_refused() -> None:
    ended = run(
        PATCH
        + """
from localai_shim import LocalOpenAI
try:
    LocalOpenAI(MODEL, tensor_parallel=2)
except ValueError as error:
    print(error)
"""
    )
    assert "tensor_parallel" in ended.stdout and "gthread" in ended.stdout, ended.stderr
    ended = run(
        """
import warnings
warnings.simplefilter("ignore")
import eventlet
eventlet.monkey_patch()
from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import scripted
for make in (lambda: LocalOpenAI(MODEL), lambda: AsyncLocalOpenAI(), scripted("Hi").__enter__):
    try:
        make()
    except RuntimeError as error:
        print(error)
"""
    )
    lines = ended.stdout.splitlines()
    assert (ended.returncode, len(lines)) == (0, 3), ended.stderr
    assert all("eventlet" in line and "gevent" in line and "gthread" in line for line in lines)

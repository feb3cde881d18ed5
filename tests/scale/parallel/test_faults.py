"""A process of a group that dies, hangs or disagrees fails the requests in flight; nothing waits, nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.scale.parallel import leader
from tests.engine.harness import eventually
from tests.scale.parallel.groups import folder_of, followers

QUESTION: Any = {"model": "any", "messages": [{"role": "user", "content": "Count."}], "temperature": 0}
MANY: Any = {**QUESTION, "max_tokens": 900, "extra_body": {"ignore_eos": True}}


@pytest.fixture
def client() -> Iterator[LocalOpenAI]:
    with LocalOpenAI(model=folder_of("qwen3"), tensor_parallel=2, keep_alive=0, max_retries=0) as made:
        yield made
    assert followers(os.getpid()) == []


def answer(client: LocalOpenAI) -> str | None:
    return client.chat.completions.create(**QUESTION, max_tokens=8).choices[0].message.content


def failures(client: LocalOpenAI, fault: Callable[[int], object]) -> list[str]:
    """Have something done to the follower amid three streams; what each of them fails with."""
    streams = [client.chat.completions.create(**MANY, stream=True) for _ in range(3)]
    for stream in streams:
        next(stream)
    [process] = followers(os.getpid())
    fault(process)
    errors = []
    for stream in streams:
        with pytest.raises(openai.APIConnectionError) as raised:
            for _ in stream:
                pass
        errors.append(str(raised.value))
    return errors


def test_requests_fail_when_a_process_is_killed_and_the_next_one_starts_anew(client: LocalOpenAI) -> None:
    before = answer(client)
    errors = failures(client, lambda process: os.kill(process, signal.SIGKILL))
    assert all("Process 1 of this model's group ended" in error for error in errors)
    assert answer(client) == before


def test_a_process_that_hangs_is_given_up(client: LocalOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(client)
    monkeypatch.setattr(leader, "PING_SECONDS", 0.2)
    monkeypatch.setattr(leader, "ANSWER_SECONDS", 2.0)
    errors = failures(client, lambda process: os.kill(process, signal.SIGSTOP))
    assert all("does not answer for 2 s" in error for error in errors)


def test_a_process_that_has_another_outcome_ends_the_group(
    client: LocalOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = leader.checksum
    answer(client)
    errors = failures(client, lambda _: monkeypatch.setattr(leader, "checksum", lambda *of: right(*of) ^ 1))
    assert all("widths, lengths or capacity differ" in error for error in errors)


def test_an_idle_process_that_is_killed_costs_nobody_an_answer(client: LocalOpenAI) -> None:
    before = answer(client)
    [process] = followers(os.getpid())
    engine: Any = client._runtime.engine("")
    os.kill(process, signal.SIGKILL)
    assert eventually(lambda: engine.is_closed)
    assert answer(client) == before


def test_closing_amid_a_stream_ends_all_processes(client: LocalOpenAI) -> None:
    stream = client.chat.completions.create(**MANY, stream=True)
    next(stream)
    client.close()
    with pytest.raises(openai.APIConnectionError):
        for _ in stream:
            pass
    assert followers(os.getpid()) == []


SCRIPT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it
from localai_shim import LocalOpenAI
client = LocalOpenAI(model=sys.argv[1], tensor_parallel=2)
while True:
    stream = client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": "Count."}], max_tokens=900, stream=True,
        extra_body={"ignore_eos": True},
    )
    next(stream)
    print("streaming", flush=True)
    for _ in stream:
        pass
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_no_process_is_left_when_the_program_ends(sent: signal.Signals) -> None:
    command = [sys.executable, "-c", SCRIPT, str(folder_of("qwen3"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"streaming\n"
        [process] = followers(program.pid)
        assert _ended_by(program, sent) == -sent
        assert eventually(lambda: not _runs(process), 10)


FROZEN = """
import ctypes, signal, subprocess, sys
from localai_shim import LocalOpenAI
from localai_shim.scale.parallel import group
from localai_shim.scale.parallel.watchdog import Watchdog
watchdogs = []
def watched(name, followers):  # as with NCCL
    watchdogs.append(Watchdog([each.process for each in followers], frozen_seconds=float(sys.argv[2])))
    return watchdogs[-1]
group._watchdog = watched
client = LocalOpenAI(model=sys.argv[1], tensor_parallel=2, max_retries=0)
ask = lambda: client.completions.create(model="any", prompt="Hi", max_tokens=3).usage.completion_tokens
ask()
follower = group._last._followers[0].process
"""
ENDS = {
    "one that is frozen is killed": (
        """
subprocess.Popen(["sh", "-c", f"sleep 0.2; kill -9 {follower.pid}"])
ctypes.PyDLL(None).sleep(60)  # with the GIL, as MLX waits for a GPU
""",
        -signal.SIGKILL,
        "is killed: it is frozen, as its GPU waits",
    ),
    "one that is frozen is killed though a child that it forked has ended": (
        """
import os, warnings
warnings.simplefilter("ignore")
child = os.fork()
if not child:
    sys.exit()  # with exit handlers
os.waitpid(child, 0)
subprocess.Popen(["sh", "-c", f"sleep 0.2; kill -9 {follower.pid}"])
ctypes.PyDLL(None).sleep(60)
""",
        -signal.SIGKILL,
        "it is frozen",
    ),
    "one that is killed takes its watchdog along": (
        """
import os
if not os.fork():  # which has the pipe as well
    while watchdogs[0]._process.pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with open(f"/proc/{watchdogs[0]._process.pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == "Z": break
    sys.stderr.write("no watchdog is left")
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
""",
        -signal.SIGKILL,
        "no watchdog is left",
    ),
    "one that notices goes on": (
        """
while group._last._busy.is_set(): pass  # amid a pass it would be the next one
follower.kill()
while watchdogs[0]._process.poll() is None: pass
print(ask())
""",
        0,
        "",
    ),
    "one that notices amid a pass uses MLX no more": (
        """
import openai
stream = client.completions.create(
    model="any", prompt="Hi", max_tokens=900, extra_body=dict(ignore_eos=True), stream=True)
next(stream)
follower.kill()
try:
    for chunk in stream:
        pass
except openai.APIConnectionError:
    print(3)
try:
    ask()
except openai.APIError as error:
    assert "GPU is blocked on a lost peer; restart the program." in str(error)
else:
    sys.exit("it went on")
client.close()
""",
        0,
        "its requests fail, and the program has to be started again",
    ),
    "one that has closed its client is no longer watched": (
        """
client.close()
ctypes.PyDLL(None).sleep(2)
print(3, watchdogs[0]._process.poll() == 0)
""",
        0,
        "",
    ),
}


@pytest.mark.skipif(sys.platform != "linux", reason="NCCL is on Linux only")
@pytest.mark.parametrize("end", ENDS)
def test_a_leader_whose_follower_has_ended(end: str) -> None:
    code, status, shown = ENDS[end]
    seconds = 30.0 if "notices" in end else 0.5  # a busy machine lets it notice late
    command = [sys.executable, "-c", FROZEN + code, str(folder_of("qwen3")), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == status and shown in done.stderr
    assert done.stdout[:1] == ("" if status else "3")


def _ended_by(program: subprocess.Popen[bytes], sent: signal.Signals) -> int | None:
    """Send it as a terminal sends Ctrl-C, and again where nothing happens: Python drops an interrupt that arrives
    while it runs a finalizer.
    """
    for _ in range(3):
        os.killpg(program.pid, sent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return program.wait(20)
    program.kill()
    return None


def _runs(process: int) -> bool:
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False)
    return listed.stdout.strip() not in ("", "Z", "Zs")

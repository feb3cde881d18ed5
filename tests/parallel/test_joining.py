"""Joining a group: other programs may connect to the ports of MLX meanwhile, and requests do not wait beyond theirs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.parallel import leader, ring
from tests.engine.harness import eventually
from tests.parallel.groups import folder_of, followers

QUESTION: Any = {"model": "any", "messages": [{"role": "user", "content": "Count."}], "temperature": 0, "max_tokens": 8}


def client(processes: int = 2, **options: Any) -> LocalOpenAI:
    more = {} if processes == 1 else {"tensor_parallel": processes}
    return LocalOpenAI(model=folder_of("qwen3"), keep_alive=0, max_retries=0, **more, **options)


def visited_by(stranger: Callable[[socket.socket], None]) -> Callable[[bytes], None]:
    """What has a stranger, and nobody else, connect to a process that joins."""

    def visit(port: bytes) -> None:
        def connect() -> None:
            address = (ring.HOST, int.from_bytes(port, "little"))
            while True:
                try:
                    stranger(socket.create_connection(address))
                    return
                except ConnectionRefusedError:
                    time.sleep(ring.POLL_SECONDS)

        threading.Thread(target=connect, daemon=True).start()

    return visit


held: list[socket.socket] = []


@pytest.mark.parametrize(
    "stranger",
    [socket.socket.close, lambda end: end.sendall(b"GET / HTTP/1.0\r\n\r\n"), held.append],
    ids=["leaves", "talks", "stays"],
)
def test_group_answers_whoever_connects_to_its_ports(stranger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "start_visit", visited_by(stranger))
    answers = []
    for processes in (1, 2):
        with client(processes) as made:
            answers.append(made.chat.completions.create(**QUESTION).choices[0].message.content)
    assert answers[0] == answers[1]
    assert eventually(lambda: followers(os.getpid()) == [])


def test_no_port_of_a_group_that_runs_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = list[int]()
    start_visit = leader.start_visit
    monkeypatch.setattr(
        leader, "start_visit", lambda port: (ports.append(int.from_bytes(port, "little")), start_visit(port))
    )
    with client() as made:
        made.chat.completions.create(**QUESTION)
        assert len(ports) == 1
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((ring.HOST, ports[0]))


def test_request_times_out_while_a_group_does_not_get_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "start_visit", lambda port: None)
    with client() as made:
        begun = time.monotonic()
        with pytest.raises(openai.APITimeoutError):
            made.with_options(timeout=1).chat.completions.create(**QUESTION)
        assert time.monotonic() - begun < leader.START_SECONDS / 2
        assert eventually(lambda: len(followers(os.getpid())) == 1)
    assert eventually(lambda: followers(os.getpid()) == [])


def test_group_that_does_not_get_together_is_given_up_and_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(leader, "start_visit", lambda port: None)
        made = client()
        assert eventually(lambda: leader.START_SECONDS and len(followers(os.getpid())) == 1)
        patch.setattr(leader, "START_SECONDS", 1.0)
        with pytest.raises(
            openai.InternalServerError, match="process 1 of this model's group has not joined after 1 s"
        ):
            made.chat.completions.create(**QUESTION)
    with made:
        assert made.chat.completions.create(**QUESTION).choices[0].finish_reason == "length"


# -- the ring alone ---------------------------------------------------------------------------------------------------

MEMBER = """if True:
    import socket, sys
    import mlx.core as mx
    from localai_shim.parallel import ring
    rank, size, left, right, channel = map(int, sys.argv[1:])
    with socket.socket(fileno=channel) as out:
        ends = [socket.socket(fileno=number) for number in (left, right)]
        ring.join(rank, size, *ends, lambda port: out.sendall(port.to_bytes(4, "little")))
        total = mx.distributed.all_sum(mx.full((70_000,), 10.0**rank), stream=mx.cpu)
        mx.eval(total)
        print(int(total[0].item()), int(total[-1].item()), flush=True)
    """


@pytest.mark.parametrize("size", [2, 3, 4])
def test_processes_of_a_ring_sum_over_their_own_connections(size: int) -> None:
    members = []
    for rank, ends in enumerate(ring.connections(size)):
        mine, its = socket.socketpair()
        numbers = [end.fileno() for end in (*ends, its)]
        command = [sys.executable, "-c", MEMBER, str(rank), str(size), *map(str, numbers)]
        members.append((subprocess.Popen(command, pass_fds=numbers, stdout=subprocess.PIPE, text=True), mine))
        for end in (*ends, its):
            end.close()
    for _, mine in members:
        ring.visit(int.from_bytes(mine.recv(4), "little"))
    expected = f"{'1' * size} {'1' * size}\n"
    assert [process.communicate(timeout=60)[0] for process, _ in members] == [expected] * size

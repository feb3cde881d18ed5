"""Joining a group: other programs may connect to the ports of MLX meanwhile, and requests do not wait beyond theirs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.scale.parallel import group, leader, ring, visitor
from localai_shim.scale.parallel.ring import open_sockets
from tests.engine.harness import eventually
from tests.scale.parallel.groups import folder_of, followers

QUESTION: Any = {"model": "any", "messages": [{"role": "user", "content": "Count."}], "temperature": 0, "max_tokens": 8}


def client(processes: int = 2, **options: Any) -> LocalOpenAI:
    more = {} if processes == 1 else {"tensor_parallel": processes}
    return LocalOpenAI(model=folder_of("qwen3"), **{"keep_alive": 0, "max_retries": 0, **more, **options})


STRANGER = """if True:
    import socket, struct, sys, time
    held = []
    def meet(port):
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port))
            except ConnectionRefusedError:
                time.sleep(0.001)
    for line in sys.stdin:
        end = meet(int(line))
        {what}
    """
STRANGERS = {
    "leaves": "end.close()",
    "resets": "end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); end.close()",
    "talks": "end.sendall(b'GET / HTTP/1.0' * 1000)",
    "stays": "held.append(end)",
}


def visited_by(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run another program than the visitor."""
    (folder / "visitor.py").write_text(code)
    monkeypatch.setattr(visitor, "_FILE", folder / "visitor.py")


@pytest.fixture
def unvisited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No program connects to processes that join."""
    visited_by("import sys\nfor line in sys.stdin: pass", tmp_path, monkeypatch)


@pytest.mark.parametrize("stranger", STRANGERS)
def test_group_answers_whatever_program_connects_to_its_ports(
    stranger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visited_by(STRANGER.replace("{what}", STRANGERS[stranger]), tmp_path, monkeypatch)
    answers = []
    for processes in (1, 2):
        with client(processes) as made:
            answers.append(made.chat.completions.create(**QUESTION).choices[0].message.content)
    assert answers[0] == answers[1]
    assert eventually(lambda: followers(os.getpid()) == [])


def test_group_that_runs_has_no_open_port_and_no_visitor(monkeypatch: pytest.MonkeyPatch) -> None:
    ports, ended = list[int](), list[int | None]()
    visit, close = visitor.Visitor.visit, visitor.Visitor.close

    def noting(self: visitor.Visitor, port: int) -> None:
        ports.append(port)
        visit(self, port)

    def closing(self: visitor.Visitor) -> None:
        close(self)
        ended.append(self._process.returncode)

    monkeypatch.setattr(visitor.Visitor, "visit", noting)
    monkeypatch.setattr(visitor.Visitor, "close", closing)
    with client() as made:
        made.chat.completions.create(**QUESTION)
        assert len(ports) == 2 and len(ended) == 1 and ended[0] is not None
        for port in ports:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((visitor.HOST, port))


def test_request_times_out_while_a_group_does_not_get_together(unvisited: None) -> None:
    with client() as made:
        began = time.monotonic()
        with pytest.raises(openai.APITimeoutError):
            made.with_options(timeout=1).chat.completions.create(**QUESTION)
        assert time.monotonic() - began < leader.START_SECONDS / 2
        assert eventually(lambda: len(followers(os.getpid())) == 1)
    assert eventually(lambda: followers(os.getpid()) == [])


def test_start_of_a_group_that_fails_is_not_retried(unvisited: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each retry would have a `timeout` of its own."""
    monkeypatch.setattr(leader, "START_SECONDS", 1.0)
    started, start = list[int](), group.start
    monkeypatch.setattr(group, "start", lambda size, on_lost: (started.append(size), start(size, on_lost))[1])
    with client(max_retries=5) as made:
        with pytest.raises(openai.APIError, match="1 of this model's group"):
            made.chat.completions.create(**QUESTION)
        assert started == [2]


def test_group_that_does_not_get_together_is_given_up_and_the_next_request_starts_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        visited_by("import sys\nfor line in sys.stdin: pass", tmp_path, patch)
        made = client()
        assert eventually(lambda: len(followers(os.getpid())) == 1)
        patch.setattr(leader, "START_SECONDS", 1.0)
        with pytest.raises(openai.InternalServerError, match=r"1 of this model's group (has not joined|was not ready)"):
            made.chat.completions.create(**QUESTION)
    with made:
        assert made.chat.completions.create(**QUESTION).choices[0].finish_reason == "length"


def test_followers_of_a_closed_client_end_with_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay for `keep_alive` seconds, for the next client."""
    with client(keep_alive=60) as made:
        made.chat.completions.create(**QUESTION)
    before = followers(os.getpid())
    assert len(before) == 1
    with client(keep_alive=0) as made:
        made.chat.completions.create(**QUESTION)
        assert followers(os.getpid()) == before
    assert eventually(lambda: followers(os.getpid()) == [])


# -- the ring alone ---------------------------------------------------------------------------------------------------

MEMBER = """if True:
    import socket, sys
    import mlx.core as mx
    from localai_shim.scale.parallel import ring
    *numbers, taken = sys.argv[1:]
    rank, size, left, right, channel = map(int, numbers)
    with socket.socket(fileno=channel) as out:
        ends = [socket.socket(fileno=number) for number in (left, right)]
        ports = list(map(int, taken.split())) + [0] * 5
        ring._free_port = lambda free=ring._free_port: ports.pop(0) or free()
        ring.join(rank, size, *ends, lambda port: out.sendall(port.to_bytes(4, "little")))
    total = mx.distributed.all_sum(mx.full((70_000,), 10.0**rank), stream=mx.cpu)
    mx.eval(total)
    print(int(total[0].item()), int(total[-1].item()), flush=True)
    """


@pytest.fixture
def running_visitor() -> Iterator[visitor.Visitor]:
    made = visitor.Visitor()
    yield made
    made.close()


def joined(size: int, running_visitor: visitor.Visitor, taken: str = "") -> list[str]:
    """What the processes of a ring print."""
    members = []
    for rank, ends in enumerate(ring.connections(size)):
        mine, its = socket.socketpair()
        numbers = [end.fileno() for end in (*ends, its)]
        command = [sys.executable, "-c", MEMBER, str(rank), str(size), *map(str, numbers), taken]
        members.append((subprocess.Popen(command, pass_fds=numbers, stdout=subprocess.PIPE, text=True), mine))
        for end in (*ends, its):
            end.close()
    for _, mine in members:
        with mine:
            while port := mine.recv(4):
                running_visitor.visit(int.from_bytes(port, "little"))
    return [process.communicate(timeout=60)[0] for process, _ in members]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_processes_of_a_ring_sum_over_their_own_connections(size: int, running_visitor: visitor.Visitor) -> None:
    assert joined(size, running_visitor) == [f"{'1' * size} {'1' * size}\n"] * size


def test_processes_of_a_ring_join_though_their_ports_are_taken(running_visitor: visitor.Visitor) -> None:
    with socket.create_server((visitor.HOST, 0)) as other:
        port = str(other.getsockname()[1])
        assert joined(2, running_visitor, taken=f"{port} {port}") == ["11 11\n"] * 2


def test_search_for_sockets_leaves_no_file_open_and_no_socket_changed() -> None:
    left, right = socket.socketpair()
    before = os.listdir("/dev/fd")
    socket.setdefaulttimeout(5)
    try:
        assert left.fileno() in [number for number, _ in open_sockets()]
    finally:
        socket.setdefaulttimeout(None)
    assert os.listdir("/dev/fd") == before
    with left, right:
        assert os.get_blocking(left.fileno()) and os.get_blocking(right.fileno())

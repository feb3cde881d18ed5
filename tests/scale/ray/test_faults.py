"""Replicas that die, stop, come and go, and drivers that are killed: who is not concerned does not notice."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
import ray

from localai_shim.builtin import CHECKPOINT
from localai_shim.ray import RayOpenAI
from tests.scale.ray.kit import asynchronous, busy, kill, long_stream, message, process_ids, until, wait_for_end

TOKENS = 200
ON = {"ignore_eos": True}


def whole(client: Any, number: int) -> Any:
    """An answer that takes a while."""
    return client.chat.completions.create(
        model="any",
        messages=message(f"Story {number}"),
        max_tokens=TOKENS,
        temperature=0,
        extra_body={"ignore_eos": True},
    )


def is_ready(client: RayOpenAI, count: int) -> bool:
    return [each.state for each in client.stats().replicas] == ["ready"] * count


# -- replicas that die -----------------------------------------------------------------------------------------------


def test_a_replica_killed_amid_streams_breaks_its_own_and_no_others(replicas: RayOpenAI) -> None:
    processes = process_ids(replicas)

    async def text(client: openai.AsyncOpenAI, number: int, begun: asyncio.Event) -> str:
        stream = await client.chat.completions.create(
            model="any",
            messages=message(f"Story {number}"),
            max_tokens=TOKENS,
            temperature=0,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        found = ""
        async for chunk in stream:
            found += chunk.choices[0].delta.content or "" if chunk.choices else ""
            begun.set()
        return found

    async def run(victim: int | None) -> list[Any]:
        client = asynchronous(replicas, max_retries=0)
        begun = [asyncio.Event() for _ in range(8)]
        tasks = [asyncio.create_task(text(client, number, each)) for number, each in enumerate(begun)]
        for each in begun:
            await each.wait()
        if victim is not None:
            kill(victim)
        return await asyncio.gather(*tasks, return_exceptions=True)

    expected = asyncio.run(run(None))
    found = asyncio.run(run(processes["replica-1"]))
    broken = [each for each in found if isinstance(each, BaseException)]
    assert len(broken) == 4 and {type(each) for each in broken} == {openai.APIConnectionError}
    assert not busy(replicas)
    assert [each for each in found if isinstance(each, str)] == [
        text for text, each in zip(expected, found, strict=True) if isinstance(each, str)
    ]
    until(lambda: is_ready(replicas, 2))
    assert process_ids(replicas)["replica-1"] != processes["replica-1"]
    streams = [long_stream(replicas) for _ in range(2)]
    assert len(busy(replicas)) == 2  # it takes part again
    for stream in streams:
        next(stream)
        stream.close()


def test_a_request_whose_replica_dies_before_the_first_byte_is_answered_by_another(replicas: RayOpenAI) -> None:
    client = replicas.with_options(max_retries=0)
    expected = [whole(client, number).choices[0].message.content for number in range(4)]
    answers: list[Any] = [None] * 4

    def ask(number: int) -> None:
        answers[number] = whole(client, number).choices[0].message.content

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: replicas.stats().total.running == 4)
    kill(process_ids(replicas)["replica-2"])
    for thread in threads:
        thread.join()
    assert answers == expected


def test_with_one_store_conversations_outlive_their_replica(cluster: None, tmp_path: Path) -> None:
    with RayOpenAI(replicas=2, store=tmp_path / "kept.sqlite") as client:
        until(lambda: is_ready(client, 2))
        processes = process_ids(client)
        first = client.responses.create(model="any", input="What is 2 + 3?", max_output_tokens=8)
        kill(processes[client._pool._router._kept.get(first.id)])
        second = client.responses.create(
            model="any", input="And then?", previous_response_id=first.id, max_output_tokens=8
        )
        assert client.responses.retrieve(second.id).previous_response_id == first.id


@pytest.fixture
def lone(cluster: None) -> Iterator[RayOpenAI]:
    """A client of one replica, which does not ask again by itself."""
    with RayOpenAI(replicas=1, max_retries=0) as client:
        until(lambda: is_ready(client, 1))
        yield client


def test_without_any_replica_a_request_fails_in_time_and_the_replica_comes_back(lone: RayOpenAI) -> None:
    hasty = lone.with_options(timeout=openai.Timeout(60, connect=0.05))
    kill(process_ids(lone)["replica-1"])
    with pytest.raises(openai.APIConnectionError) as failed:
        whole(hasty, 0)
    assert str(failed.value) == "No replica takes requests: replica-1 lost."
    until(lambda: is_ready(lone, 1))
    assert whole(lone, 0).choices[0].finish_reason == "length"
    ray.kill(lone._pool._members["replica-1"].actor)  # for good
    with pytest.raises(openai.APIConnectionError):
        whole(lone.with_options(timeout=10), 0)


def test_a_replica_that_hangs_is_a_timeout(lone: RayOpenAI) -> None:
    process = process_ids(lone)["replica-1"]
    os.kill(process, signal.SIGSTOP)
    try:
        with pytest.raises(openai.APITimeoutError):
            whole(lone.with_options(timeout=0.5), 0)
    finally:
        os.kill(process, signal.SIGCONT)
    assert whole(lone, 0).choices[0].finish_reason == "length"


def test_a_replica_that_cannot_load_the_model_gets_no_requests_while_others_can(cluster: None, tmp_path: Path) -> None:
    """Happens on a machine of a cluster that lacks the files."""
    folder = tmp_path / "model"
    shutil.copytree(CHECKPOINT, folder)
    with RayOpenAI(folder, replicas=1, max_retries=0) as client:
        until(lambda: is_ready(client, 1))
        process = process_ids(client)["replica-1"]
        shutil.rmtree(folder)
        client.scale(2)
        until(lambda: client.stats().replicas[1].state == "failed")
        assert {whole(client, number).choices[0].finish_reason for number in range(4)} == {"length"}
        kill(process)
        with pytest.raises(openai.APIConnectionError):
            whole(client.with_options(timeout=openai.Timeout(60, connect=0.1)), 0)  # by which it is found out
        until(lambda: client.stats().replicas[0].state == "failed")
        with pytest.raises(openai.APIConnectionError) as failed:
            whole(client, 0)
        assert "model" in str(failed.value)


# -- replicas that come and go ---------------------------------------------------------------------------------------


def test_replicas_come_and_go_amid_streams(cluster: None) -> None:
    with RayOpenAI(replicas=1, max_retries=0) as client:
        first = long_stream(client, TOKENS)
        next(first)
        client.scale(2)
        until(lambda: is_ready(client, 2))
        second = long_stream(client, TOKENS)
        next(second)
        assert busy(client) == ["replica-1", "replica-2"]
        process = process_ids(client)["replica-2"]
        client.scale(1)
        assert [each.state for each in client.stats().replicas] == ["ready", "leaving"]
        third = long_stream(client, TOKENS)
        next(third)
        assert client._pool._router.running("replica-1") == 2
        for stream in (first, second, third):
            assert [chunk for chunk in stream if chunk.choices][-1].choices[0].finish_reason == "length"
        wait_for_end(process)
        until(lambda: is_ready(client, 1))
        client.scale(2)
        until(lambda: is_ready(client, 2))
        assert whole(client, 0).choices[0].finish_reason == "length"
        processes = process_ids(client)
    for process in processes.values():
        wait_for_end(process)


def test_a_replica_that_goes_ends_the_work_that_nobody_waits_for(cluster: None, tmp_path: Path) -> None:
    """Of each of its models. The store, which both replicas reach, has what became of it."""
    models: Any = {"one": CHECKPOINT, "two": CHECKPOINT}
    with RayOpenAI(models=models, replicas=2, store=tmp_path / "kept.sqlite", max_retries=0) as client:
        until(lambda: is_ready(client, 2))
        made = [
            client.responses.create(model="two", input="Hi", background=True, max_output_tokens=400, extra_body=ON)
            for _ in range(2)
        ]
        assert {client._pool._router._kept.get(each.id) for each in made} == {"replica-1", "replica-2"}
        process = process_ids(client)["replica-2"]
        client.scale(1)
        wait_for_end(process)
        until(lambda: all(client.responses.retrieve(each.id).status == "incomplete" for each in made))
        with pytest.raises(ValueError, match="three"):
            client.stats("three")


# -- drivers ---------------------------------------------------------------------------------------------------------

DRIVER = """if True:
    import sys, openai, ray
    from localai_shim.ray import RayOpenAI
    client, other = RayOpenAI(replicas=1), RayOpenAI(replicas=1)
    other.close()
    print(">", client.responses.create(model="any", input="What is 2 + 3?", temperature=0).output_text)
    [member] = client._pool._members.values()
    print(">", ray.get(member.actor.load.remote()), flush=True)
    stream = client.completions.create(model="any", prompt="A", stream=True, max_tokens=2000)
    next(stream)
    sys.stdin.readline()
    client.close()
    print(">", ray.is_initialized(), flush=True)
    try:
        next(stream)
    except openai.APIConnectionError as error:
        print(">", error, flush=True)
    client = RayOpenAI(replicas=1)  # as many programs do: nothing closes it
    client.models.list()
    stream = None
    print("> end", flush=True)
    """


def said(program: subprocess.Popen[str]) -> str:
    """The next line of a program; Ray shows others there as well."""
    assert program.stdout is not None
    return next(line[2:].strip() for line in program.stdout if line.startswith("> "))


@contextmanager
def driver(code: str = DRIVER, **env: str) -> Iterator[subprocess.Popen[str]]:
    """A program that has a client."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **env}, **pipes) as program:
        try:
            yield program
        finally:
            program.kill()


def test_a_client_ends_the_ray_that_it_has_started_with_the_last_of_its_kind() -> None:
    with driver() as program:
        assert said(program) == "2 + 3 = 5."
        replica = int(said(program))
        print(file=program.stdin, flush=True)
        assert said(program) == "False"
        assert said(program) == "The replica's answer breaks off: client is closed."
        assert said(program) == "end"
        assert program.wait() == 0
        wait_for_end(replica)


LISTENING = """if True:
    import ray, psutil  # which Ray brings
    from localai_shim.ray import RayOpenAI, async_http_client, http_client
    client = RayOpenAI(replicas=1)
    print(">", client.responses.create(model="any", input="What is 2 + 3?", temperature=0).output_text)
    addresses = {node["NodeManagerAddress"] for node in ray.nodes()}
    for process in psutil.Process().children(recursive=True):
        for each in process.net_connections("inet"):
            if each.status == psutil.CONN_LISTEN:
                addresses.add(each.laddr.ip.removeprefix("::ffff:"))
    print(">", *addresses, flush=True)
    client.close()
    print(">", ray.is_initialized(), flush=True)
    """
FAILING = """if True:
    import ray
    from localai_shim.ray import RayOpenAI, async_http_client, http_client
    for make in ({makes}):
        try:
            make()
        except Exception as error:
            print(">", type(error).__name__, ray.is_initialized(), flush=True)
    """


@pytest.mark.parametrize(
    ("makes", "errors"),
    [
        ("lambda: RayOpenAI(ray_options={'bogus': 1}), lambda: RayOpenAI(num_cpus=-1)", ["ValueError", "ValueError"]),
        (
            "lambda: RayOpenAI(replicas=1, max_retries=None), lambda: RayOpenAI('./nowhere', replicas=1)",
            ["TypeError", "FileNotFoundError"],
        ),
        (
            "lambda: http_client(replicas=1, timeout='soon'), lambda: async_http_client(replicas=1, timeout='soon')",
            ["ValueError", "ValueError"],
        ),
    ],
    ids=["options of Ray", "options of the client", "http clients"],
)
def test_constructor_that_fails_ends_the_ray_that_it_has_started(makes: str, errors: list[str]) -> None:
    with driver(FAILING.replace("{makes}", makes)) as program:
        assert [said(program) for _ in errors] == [f"{error} False" for error in errors]


@pytest.mark.parametrize("address", ["", "local"])
def test_ray_of_a_client_listens_on_this_machine_alone_whatever_the_environment_says(address: str) -> None:
    """Programs of a cluster of Macs have the second variable."""
    with driver(LISTENING, RAY_ADDRESS=address, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="1") as program:
        assert [said(program) for _ in range(3)] == ["2 + 3 = 5.", "127.0.0.1", "False"]


@pytest.mark.parametrize("joins", [False, True], ids=["its own Ray", "a cluster"])
def test_a_driver_that_is_killed_leaves_no_replica_behind(cluster: None, joins: bool) -> None:
    address = {"RAY_ADDRESS": ray.get_runtime_context().gcs_address} if joins else {}
    with driver(**address) as program:
        assert said(program) == "2 + 3 = 5."
        replica = int(said(program))
        program.kill()
        wait_for_end(replica)
    assert ray.cluster_resources()

"""Timelines of clients: a file per part of a program, or of all of it, with a lane for each agent."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, async_http_client, http_client
from localai_shim.testing import ScriptedEngine
from tests import inside
from tests.embedding_models import tiny_embedder
from tests.timelines import read_one, read_trace
from tests.tiny import tiny

ASK: dict[str, Any] = {
    "model": "any",
    "messages": [{"role": "user", "content": "Hello"}],
    "max_tokens": 5,
    "extra_body": {"ignore_eos": True},
}
RESPOND: dict[str, Any] = {
    "model": "any",
    "input": "Hello",
    "max_output_tokens": 16,
    "extra_body": {"ignore_eos": True},
}


@pytest.fixture(scope="module")
def client() -> Iterator[LocalOpenAI]:
    with LocalOpenAI(tiny("qwen3", max_position_embeddings=200_000)) as client:
        client.chat.completions.create(**ASK)
        yield client


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.json"


def recordings(client: Any) -> list[object]:
    """Those that the engine of a client is making."""
    found: list[object] = inside.loop(inside.engine(client))._meter.recordings
    return found


def test_a_block_writes_what_ran_in_it(client: LocalOpenAI, path: Path) -> None:
    with client.record_timeline(path):
        client.chat.completions.create(**ASK)
    client.chat.completions.create(**ASK)
    [call] = read_one(path).calls
    assert call.args["outcome"] == "length" and call.names[-1] == "decode"
    assert not recordings(client)


def test_a_block_that_raises_writes_its_file_and_raises(client: LocalOpenAI, path: Path) -> None:
    def fail() -> None:
        with client.record_timeline(str(path)):
            client.chat.completions.create(**ASK)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(read_one(path).calls) == 1 and not recordings(client)


def test_a_missing_folder_is_found_before_the_block_runs(client: LocalOpenAI, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"), client.record_timeline(tmp_path / "none" / "x.json"):
        raise AssertionError
    assert not recordings(client)


def test_a_client_that_records_nothing_says_how_to_record(client: LocalOpenAI, path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"`record_timeline=True`.*`with client.record_timeline\('.*run.json'\):`"):
        client.timeline(path)
    assert not path.exists()


def test_a_client_that_records_writes_all_of_it_so_far_at_any_time(path: Path) -> None:
    with LocalOpenAI(tiny("qwen3"), keep_alive=0, record_timeline=True) as client:
        client.chat.completions.create(**ASK)
        client.timeline(path)
        assert len(read_one(path).calls) == 1
        client.with_options(timeout=60).chat.completions.create(**ASK)
        with client.record_timeline(path):
            client.chat.completions.create(**ASK)
        assert len(read_one(path).calls) == 1
        client.timeline(path)
        assert len(read_one(path).calls) == 3
    client.timeline(path)
    process = read_one(path)
    assert len(process.calls) == 3 and process.counters["rows"]


def test_agents_have_a_lane_with_their_calls_and_the_time_between_them(client: LocalOpenAI, path: Path) -> None:
    def run(agent: str) -> None:
        for _ in range(3):
            client.chat.completions.create(**ASK, prompt_cache_key=agent)

    names = [f"agent-{i}" for i in range(8)]
    with client.record_timeline(path), ThreadPoolExecutor(8) as pool:
        list(pool.map(run, names))
    lanes = read_one(path).lanes
    assert sorted(lanes) == names
    for name, lane in lanes.items():
        assert [span.name for span in lane] == [name, "between calls", name, "between calls", name]


def test_a_conversation_and_a_chain_of_responses_are_agents(client: LocalOpenAI, path: Path) -> None:
    conversation = client.conversations.create().id
    with client.record_timeline(path):
        previous = client.responses.create(**RESPOND).id
        first = previous
        for _ in range(3):
            previous = client.responses.create(**RESPOND, previous_response_id=previous).id
            client.responses.create(**RESPOND, conversation=conversation)
        client.responses.create(**RESPOND)
    lanes = read_one(path).lanes
    agents = {lane[0].args["agent"]: len([span for span in lane if span.args]) for lane in lanes.values()}
    alone = lanes["requests"][0].args["agent"]
    assert agents == {first: 4, conversation: 3, alone: 1}


def test_choices_of_one_request_have_their_own_lanes(client: LocalOpenAI, path: Path) -> None:
    with client.record_timeline(path):
        client.chat.completions.create(**ASK, n=3, prompt_cache_key="a")
    assert [*read_one(path).lanes] == ["a", "a 2", "a 3"]


def test_an_async_client_records_too(path: Path) -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(tiny("qwen3"), record_timeline=True) as client:
            with client.record_timeline(path):
                await asyncio.gather(*(client.chat.completions.create(**ASK) for _ in range(4)))
            assert len(read_one(path).calls) == 4
            client.timeline(path)

    asyncio.run(main())
    assert len(read_one(path).calls) == 4


def test_clients_that_share_an_engine_see_all_of_its_requests(path: Path, tmp_path: Path) -> None:
    other_path = tmp_path / "other.json"
    with LocalOpenAI(tiny("qwen3"), keep_alive=0) as one, LocalOpenAI(tiny("qwen3"), keep_alive=0) as other:
        assert inside.engine(one) is inside.engine(other)
        with one.record_timeline(path):
            one.chat.completions.create(**ASK)
            with other.record_timeline(other_path):
                other.chat.completions.create(**ASK)
            assert len(recordings(one)) == 1
    assert (len(read_one(path).calls), len(read_one(other_path).calls)) == (2, 1)


def test_a_client_that_records_shares_its_engine_and_leaves_it(path: Path) -> None:
    with LocalOpenAI(tiny("qwen3"), keep_alive=0) as plain:
        recording = LocalOpenAI(tiny("qwen3"), keep_alive=0, record_timeline=True)
        assert inside.engine(plain) is inside.engine(recording) and len(recordings(plain)) == 1
        recording.close()
        assert not recordings(plain)
        dropped = LocalOpenAI(tiny("qwen3"), keep_alive=0, record_timeline=True)
        assert len(recordings(plain)) == 1
        del dropped
        gc.collect()
        assert not recordings(plain)


def test_each_engine_of_a_client_is_a_process_of_the_trace_from_its_first_request_on(path: Path) -> None:
    models = {"small": tiny("qwen3"), "large": tiny("llama")}
    with LocalOpenAI(models=models, keep_alive=0) as client:
        with client.record_timeline(path):
            for name in ("small", "large", "small"):
                client.chat.completions.create(**{**ASK, "model": name})
        client.chat.completions.create(**{**ASK, "model": "large"})
    assert sorted(len(process.calls) for process in read_trace(path)) == [1, 2]
    assert {process.name for process in read_trace(path)} == {path.name for path in models.values()}


def test_requests_of_a_model_that_is_closed_meanwhile_stay_in_the_trace(path: Path) -> None:
    client = LocalOpenAI(tiny("qwen3"), keep_alive=0)
    with client.record_timeline(path):
        client.chat.completions.create(**ASK)
        client.close()
    assert len(read_one(path).calls) == 1


def test_a_scripted_engine_has_an_empty_timeline(path: Path) -> None:
    with ScriptedEngine(["yes"]) as engine, LocalOpenAI(engine=engine, record_timeline=True) as client:
        client.chat.completions.create(**ASK)
        client.timeline(path)
    assert json.loads(path.read_text())["traceEvents"] == []


@pytest.mark.parametrize("make", [http_client, async_http_client])
def test_http_clients_refuse_to_record(make: Any) -> None:
    with pytest.raises(ValueError, match=r"`record_timeline` has no effect with .*http_client\(\)"):
        make(tiny("qwen3"), record_timeline=True)


def test_only_true_and_false_say_whether_to_record() -> None:
    with pytest.raises(ValueError, match=r"`record_timeline` must be True or False, not 'run.json'"):
        LocalOpenAI(tiny("qwen3"), record_timeline="run.json")  # type: ignore[arg-type]


def test_embedding_requests_wait_and_run_in_passes(path: Path) -> None:
    with LocalOpenAI(tiny_embedder()) as client, client.record_timeline(path):
        client.embeddings.create(model="any", input=["a", "b", "c"])
    [call] = read_one(path).calls
    assert call.names == ["waiting", "texts 3"] and call.args["outcome"] == "stop"

"""Clients of two replicas, over a real Ray: what one process answers, they answer."""

from __future__ import annotations

import asyncio
import copy
import gc
import io
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from typing import Any

import openai
import pytest
import ray

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.ray import AsyncRayOpenAI, RayOpenAI, http_client
from localai_shim.threads import greenlets
from tests.endpoints.pictures import BLUE, RED, data_url, input_image, user_item
from tests.scale.ray.kit import KINDS, asynchronous, busy, long_stream, message, process_ids, until
from tests.vision import tiny_vision

STREAMS = 64


def test_64_mixed_requests_at_once_are_answered_as_by_one_process(replicas: RayOpenAI) -> None:
    begun = {name: each.begun for name, each in replicas._pool._router._replicas.items()}

    async def answers(client: openai.AsyncOpenAI) -> list[Any]:
        return await asyncio.gather(*(KINDS[number % len(KINDS)](client, number) for number in range(STREAMS)))

    async def alone() -> list[Any]:
        async with AsyncLocalOpenAI() as client:
            return await answers(client)

    assert asyncio.run(answers(asynchronous(replicas))) == asyncio.run(alone())
    shares = [each.begun - begun[name] for name, each in replicas._pool._router._replicas.items()]
    assert sum(shares) == STREAMS and min(shares) >= STREAMS * 0.4
    assert not busy(replicas)


def test_threads_have_their_streams_side_by_side(replicas: RayOpenAI, builtin: LocalOpenAI) -> None:
    streams = [
        replicas.responses.create(model="any", input=f"What is {number} + 3?", temperature=0, stream=True)
        for number in range(4)
    ]
    assert Counter(each.in_flight for each in replicas.stats().replicas) == {2: 2}
    for number, stream in enumerate(streams):
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert text == f"{number} + 3 = {number + 3}."


def test_a_program_that_gevent_has_patched_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greenlets, "are_used", lambda: True)
    for make in (RayOpenAI, AsyncRayOpenAI, http_client):
        with pytest.raises(ValueError, match=r"Replicas.*gevent.*gthread"):
            make()


def search(query: str) -> list[dict[str, str]]:
    return [{"url": "https://almanac.example", "text": f"Found by {os.getpid()}."}]


class Locked:
    """Cannot be sent to another process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def search(self, query: str) -> list[Any]:
        return []


def test_functions_for_hosted_tools_run_in_the_replicas(cluster: None) -> None:
    tool: Any = {"type": "web_search"}
    asked: Any = {"model": "any", "input": "What is the weather in Paris?", "tools": [tool], "tool_choice": tool}
    with RayOpenAI(replicas=1, num_cpus=0, hosted_tools={"web_search": search}) as client:
        made: Any = client.responses.create(**asked, temperature=0)
        events = list(client.responses.create(**asked, temperature=0, stream=True))
        processes = process_ids(client).values()
    assert made.output[0].status == "completed"
    assert [f"Found by {process}." in made.output[0].output for process in processes] == [True]
    assert events[-1].type == "response.completed"


def test_a_function_that_cannot_be_sent_to_the_replicas_is_refused(cluster: None) -> None:
    with pytest.raises(ValueError, match=r"'web_search' runs in the replicas' processes, and cannot be sent there"):
        RayOpenAI(replicas=1, num_cpus=0, hosted_tools={"web_search": Locked()})


def test_pictures_are_seen_as_by_one_process(cluster: None) -> None:
    def answers(client: openai.OpenAI) -> list[str]:
        return [
            client.responses.create(
                model="any",
                input=[user_item("Here", input_image(data_url(colour)))],
                temperature=0,
                max_output_tokens=6,
            ).output_text
            for colour in (RED, BLUE)
        ]

    folder = tiny_vision("smolvlm")
    with LocalOpenAI(folder, keep_alive=0) as local, RayOpenAI(folder, replicas=1) as client:
        assert answers(client) == answers(local)


def test_raw_responses_are_read_piece_by_piece(replicas: RayOpenAI) -> None:
    with replicas.responses.with_streaming_response.create(
        model="any", input="What is 2 + 3?", temperature=0, stream=True
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert [line for line in response.iter_lines() if line.startswith("event:")][-1] == "event: response.completed"
    assert not busy(replicas)


def test_clients_are_the_sdk_s_own_and_copies_share_the_replicas(replicas: RayOpenAI) -> None:
    assert isinstance(replicas, openai.OpenAI) and isinstance(asynchronous(replicas), openai.AsyncOpenAI)
    for made in (replicas.with_options(max_retries=7, timeout=30), copy.copy(replicas), replicas.copy()):
        assert type(made) is RayOpenAI and made._pool is replicas._pool
        assert made.models.list().data == replicas.models.list().data
    assert replicas.with_options(max_retries=7).max_retries == 7


def test_refusals_are_the_sdk_s_exceptions(replicas: RayOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        replicas.chat.completions.create(model="any", messages=message("Hi"), temperature=9)
    assert refused.value.param == "temperature" and refused.value.status_code == 400
    with pytest.raises(openai.NotFoundError):
        replicas.responses.retrieve(f"resp_{'0' * 48}")
    with pytest.raises(openai.NotFoundError) as unknown:
        replicas.post("/nothing", cast_to=object)
    assert unknown.value.code == "unknown_url"


def test_a_full_queue_is_a_rate_limit(cluster: None) -> None:
    with RayOpenAI(replicas=1, max_rows=1, max_queue=0, max_retries=0) as client:
        stream = long_stream(client)
        next(stream)
        with pytest.raises(openai.RateLimitError) as refused:
            client.chat.completions.create(model="any", messages=message("Hi"), max_tokens=1)
        assert refused.value.status_code == 429
        stream.close()
        until(lambda: not client.stats().total.running)
        assert client.chat.completions.create(model="any", messages=message("Hi"), max_tokens=1).usage


# -- leaving ---------------------------------------------------------------------------------------------------------


def is_idle(client: RayOpenAI) -> bool:
    total = client.stats().total
    return not total.running and not total.waiting and not busy(client)


def test_a_closed_and_a_dropped_stream_free_their_rows(replicas: RayOpenAI) -> None:
    streams = [long_stream(replicas) for _ in range(4)]
    for stream in streams:
        next(stream)
    assert replicas.stats().total.running == 4
    streams.pop().close()
    until(lambda: replicas.stats().total.running == 3)
    streams.pop().response.close()
    until(lambda: replicas.stats().total.running == 2)
    del stream, streams
    gc.collect()  # the SDK's streams refer to themselves
    until(lambda: is_idle(replicas))


def test_a_cancelled_task_frees_its_row(replicas: RayOpenAI) -> None:
    async def run() -> None:
        client = asynchronous(replicas)
        whole = asyncio.create_task(
            client.chat.completions.create(
                model="any", messages=message("Hi"), max_tokens=2000, extra_body={"ignore_eos": True}
            )
        )
        stream = await long_stream(client)
        await anext(stream)
        while (await client.stats()).total.running < 2:
            pass
        whole.cancel()
        reading = asyncio.create_task(_drain(stream))
        await asyncio.sleep(0)
        reading.cancel()
        for task in (whole, reading):
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    until(lambda: is_idle(replicas))


async def _drain(stream: Any) -> None:
    async for _ in stream:
        pass


def test_a_timeout_is_the_sdk_s_and_frees_the_row(replicas: RayOpenAI) -> None:
    patient = replicas.with_options(max_retries=0)
    with pytest.raises(openai.APITimeoutError):
        patient.chat.completions.create(
            model="any", messages=message("Hi"), max_tokens=2000, extra_body={"ignore_eos": True}, timeout=0.3
        )
    until(lambda: is_idle(replicas))


# -- what is kept ----------------------------------------------------------------------------------------------------


def test_conversations_go_on_where_they_are_kept(replicas: RayOpenAI) -> None:
    """On two replicas each has some of them; a wrong one would answer that there is no such response."""
    for number in range(6):
        first = replicas.responses.create(model="any", input=f"What is {number} + 2?", max_output_tokens=8)
        second = replicas.responses.create(
            model="any", input="And then?", previous_response_id=first.id, max_output_tokens=8
        )
        assert replicas.responses.retrieve(second.id).previous_response_id == first.id
        stream = replicas.responses.create(
            model="any", input="Hm", previous_response_id=second.id, stream=True, max_output_tokens=4
        )
        last = [event for event in stream if event.type in ("response.completed", "response.incomplete")][-1]
        assert replicas.responses.input_items.list(last.response.id).data
        conversation = replicas.conversations.create()
        replicas.responses.create(model="any", input="Hello", conversation=conversation.id, max_output_tokens=4)
        assert len(replicas.conversations.items.list(conversation.id).data) == 2


def test_files_batches_and_stored_completions_are_listed_whole(replicas: RayOpenAI) -> None:
    body = {"model": "any", "input": "What is 1 + 1?", "max_output_tokens": 8}
    line = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": body})
    uploads = [replicas.files.create(file=io.BytesIO(line.encode()), purpose="batch") for _ in range(4)]
    assert {each.id for each in uploads} <= {each.id for each in replicas.files.list()}
    batch = replicas.batches.create(input_file_id=uploads[0].id, endpoint="/v1/responses", completion_window="24h")
    until(lambda: replicas.batches.retrieve(batch.id).status == "completed")
    output = replicas.batches.retrieve(batch.id).output_file_id
    assert output is not None and json.loads(replicas.files.content(output).text)["custom_id"] == "a"
    assert batch.id in {each.id for each in replicas.batches.list()}
    stored = [
        replicas.chat.completions.create(model="any", messages=message("Hi"), store=True, max_tokens=1)
        for _ in range(4)
    ]
    assert {each.id for each in stored} <= {each.id for each in replicas.chat.completions.list()}


def test_turns_of_a_conversation_find_their_prefix_cache(replicas: RayOpenAI) -> None:
    text = "You are an assistant who answers in verse. " * 20
    histories = [[{"role": "system", "content": f"{number} {text}"}] for number in range(4)]
    for turn in range(3):
        for history in histories:
            history.append({"role": "user", "content": f"What is {turn} + 1?"})
            messages: Any = history
            answer = replicas.chat.completions.create(model="any", messages=messages, max_tokens=8, temperature=0)
            assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
            if turn:
                assert (answer.usage.prompt_tokens_details.cached_tokens or 0) > 100
            history.append({"role": "assistant", "content": answer.choices[0].message.content or ""})


# -- handles, other clients, arguments -------------------------------------------------------------------------------


@ray.remote
def ask(client: RayOpenAI, number: int) -> tuple[str, int]:
    text = client.responses.create(model="any", input=f"What is {number} + 3?", temperature=0).output_text
    with pytest.raises(RuntimeError):
        client.scale(1)
    found = len(client.stats().replicas)
    client.close()
    return text, found


def test_a_client_in_a_task_of_ray_is_a_handle(replicas: RayOpenAI) -> None:
    configured = replicas.with_options(max_retries=1, default_headers={"x-team": "a"})
    answers = ray.get([ask.remote(configured, number) for number in range(3)])
    assert answers == [(f"{number} + 3 = {number + 3}.", 2) for number in range(3)]
    assert replicas.responses.create(model="any", input="What is 1 + 3?", temperature=0).output_text == "1 + 3 = 4."


def test_code_that_builds_its_own_client_gets_an_http_client(cluster: None) -> None:
    with openai.OpenAI(api_key="unused", http_client=http_client(replicas=1)) as client:
        assert client.responses.create(model="any", input="What is 2 + 3?", temperature=0).output_text == "2 + 3 = 5."
    assert ray.is_initialized()
    with pytest.raises(TypeError, match="replica"):
        http_client(replica=1)  # type: ignore[call-arg]


def test_a_closed_client_says_so_and_leaves_a_ray_that_it_has_not_started(cluster: None) -> None:
    client = RayOpenAI(replicas=1, max_retries=0)
    client.close()
    assert client.is_closed() and ray.is_initialized()
    with pytest.raises(openai.APIConnectionError):
        client.responses.create(model="any", input="Hi")


def test_closing_a_client_breaks_its_streams_wherever_they_are_read(cluster: None) -> None:
    client, outcome = RayOpenAI(replicas=1, max_retries=0), []
    stream = long_stream(client)
    next(stream)

    def read() -> None:
        try:
            outcome.append(list(stream))
        except openai.APIConnectionError as error:
            outcome.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    client.close()
    reader.join()
    assert [type(each) for each in outcome] == [openai.APIConnectionError]

    async def run() -> None:
        asynchronous = AsyncRayOpenAI(replicas=1, max_retries=0)
        stream = await long_stream(asynchronous)
        await anext(stream)
        reading = asyncio.create_task(_drain(stream))
        await asyncio.sleep(0)
        await asynchronous.close()
        with pytest.raises(openai.APIConnectionError):
            await reading

    asyncio.run(run())


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"replicas": 0}, ValueError, "replicas"),
        ({"engine": object()}, ValueError, "engine"),
        ({"record_timeline": True}, ValueError, "record_timeline"),
        ({"model": "./nowhere"}, FileNotFoundError, "nowhere"),
        ({"max_rows": -1}, ValueError, "max_rows"),
        ({"max_row": 1}, TypeError, "max_rows"),
        ({"timeout": -1}, ValueError, "timeout"),
    ],
)
def test_wrong_arguments_are_told_to_who_makes_a_client(
    cluster: None, arguments: Any, error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        RayOpenAI(**{"replicas": 1, **arguments})


def test_without_ray_the_extra_is_named() -> None:
    script = """if True:
        import sys
        sys.modules["ray"] = None
        import localai_shim
        try:
            import localai_shim.ray
        except ImportError as error:
            print(error)
        """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'localai-shim[ray]'" in done.stdout


def test_the_package_itself_never_imports_ray() -> None:
    script = "import sys, localai_shim; localai_shim.LocalOpenAI; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)

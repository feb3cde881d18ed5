"""Failures as the service has them: the SDK's classes, status, headers and body, retried as a server's are."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.to_thread
import openai
import pytest

from localai_shim.testing import (
    AsyncScriptedOpenAI,
    Clock,
    ScriptedOpenAI,
    api_error,
    authentication_error,
    connection_error,
    context_length_exceeded,
    cut,
    hang,
    rate_limit,
    scripted,
    server_error,
    timed,
    timeout,
)
from localai_shim.testing.factory import patch_openai
from tests.engine.harness import eventually
from tests.lost import STREAM_CUT, STREAM_TIMEOUT
from tests.testing.asking import ask, contents
from tests.threads import in_threads


@pytest.fixture
def client() -> Iterator[ScriptedOpenAI]:
    with scripted(assert_complete=False) as made:
        yield made


FAILURES: dict[str, tuple[Any, type[openai.APIStatusError], int, str | None]] = {
    "rate_limit": (rate_limit(), openai.RateLimitError, 429, "rate_limit_exceeded"),
    "quota": (rate_limit(quota=True), openai.RateLimitError, 429, "insufficient_quota"),
    "server_error": (server_error(), openai.InternalServerError, 500, None),
    "overloaded": (server_error(503), openai.InternalServerError, 503, None),
    "context": (context_length_exceeded(), openai.BadRequestError, 400, "context_length_exceeded"),
    "key": (authentication_error(), openai.AuthenticationError, 401, "invalid_api_key"),
    "other": (api_error(409, "Busy.", code="busy"), openai.ConflictError, 409, "busy"),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_the_service_is_the_sdk_s_with_status_body_and_request_id(
    client: ScriptedOpenAI, name: str, stream: bool
) -> None:
    failure, kind, status, code = FAILURES[name]
    client.script(failure)
    with pytest.raises(kind) as caught:
        ask(client.with_options(max_retries=0), stream=stream)
    error = caught.value
    assert (type(error), error.status_code, error.code) == (kind, status, code)
    assert error.request_id and error.request_id.startswith("req_")
    assert error.response.json()["error"]["message"] in str(error) and isinstance(error.body, dict)
    assert client.last_call.error is error


def test_a_rate_limit_has_the_headers_that_say_when_to_come_back(client: ScriptedOpenAI) -> None:
    client.script(rate_limit(retry_after=1.5))
    with pytest.raises(openai.RateLimitError, match=r"try again in 1\.5s") as caught:
        ask(client.with_options(max_retries=0))
    headers = caught.value.response.headers
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("2", "1500")
    assert headers["x-ratelimit-remaining-requests"] == "0"


# -- retries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure", [rate_limit(), server_error(), connection_error(), timeout(), api_error(409, "Busy.")]
)
def test_what_a_server_s_client_would_retry_is_retried(client: ScriptedOpenAI, failure: Any) -> None:
    client.script(failure, "fine")
    assert ask(client).choices[0].message.content == "fine"
    assert [call.attempt for call in client.calls] == [0, 1]
    client.assert_complete()


@pytest.mark.parametrize("failure", [context_length_exceeded(), authentication_error()])
def test_what_it_would_not_is_not(client: ScriptedOpenAI, failure: Any) -> None:
    client.script(failure, "fine")
    with pytest.raises(openai.APIStatusError):
        ask(client)
    assert len(client.calls) == 1


@pytest.mark.parametrize("retries", [0, 1, 4])
def test_there_are_as_many_retries_as_the_client_says(client: ScriptedOpenAI, retries: int) -> None:
    client.when().reply(server_error()).always()
    with pytest.raises(openai.InternalServerError):
        ask(client.with_options(max_retries=retries))
    assert [call.attempt for call in client.calls] == list(range(retries + 1))


def test_delays_are_the_sdk_s_own_and_pass_at_once(client: ScriptedOpenAI) -> None:
    client.script(rate_limit(retry_after=20), server_error(), "fine")
    began = time.monotonic()
    raw = client.chat.completions.with_raw_response.create(model="m", messages=[{"role": "user", "content": "Hi"}])
    assert raw.retries_taken == 2 and raw.parse().choices[0].message.content == "fine"
    assert client.clock.sleeps[0] == 20.0 and 0.5 <= client.clock.sleeps[1] <= 1.0, "the second backs off twice as far"
    assert client.clock.now == pytest.approx(sum(client.clock.sleeps)) and time.monotonic() - began < 15


def test_an_exception_is_raised_as_it_is_and_retried_if_the_sdk_would(client: ScriptedOpenAI) -> None:
    client.script(server_error())
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client.with_options(max_retries=0))
    client.script(caught.value, "fine", KeyError("x"))
    assert ask(client).choices[0].message.content == "fine"
    with pytest.raises(KeyError):
        ask(client)


def test_a_request_that_is_wrong_is_refused_and_no_reply_is_lost(client: ScriptedOpenAI) -> None:
    client.script("fine")
    with pytest.raises(openai.BadRequestError, match="temperature"):
        ask(client, temperature=7)
    assert client.calls == [] and ask(client).choices[0].message.content == "fine"


@pytest.mark.anyio
async def test_async_retries_wait_on_the_clock_too() -> None:
    async with scripted(rate_limit(retry_after=9), timeout(), "fine") as client:
        assert (await ask(client)).choices[0].message.content == "fine"
        assert client.clock.sleeps[0] == 9.0 and client.clock.now > 600, "the timeout passes, too"


# -- amid an answer ---------------------------------------------------------------------------------------------------


def test_a_stream_may_fail_after_some_tokens(client: ScriptedOpenAI) -> None:
    client.script(server_error().after("one two three", tokens=2), cut("one two"), timeout().after("one"))
    for expected, kind in (
        (["one", " two"], openai.APIError),
        (["one", " two"], STREAM_CUT),
        (["one"], STREAM_TIMEOUT),
    ):
        seen: list[str] = []
        with pytest.raises(kind) as caught:
            seen += contents(seen_of(ask(client, stream=True), seen))
        assert seen == expected and type(caught.value) is kind
    assert len(client.calls) == 3, "nobody retries a stream that has begun"


def seen_of(stream: Any, seen: list[str]) -> Iterator[Any]:
    """The chunks of a stream, whose contents are noted as they come."""
    for chunk in stream:
        seen += contents([chunk])
        yield chunk


def test_a_stream_s_error_has_the_body(client: ScriptedOpenAI) -> None:
    client.script(rate_limit().after("one"))
    with pytest.raises(openai.APIError) as caught:
        list(ask(client, stream=True))
    assert caught.value.code == "rate_limit_exceeded" and "Rate limit reached" in caught.value.message


def test_a_stream_of_a_response_ends_with_the_events_of_an_error(client: ScriptedOpenAI) -> None:
    client.script(server_error().after("one"))
    events = list(client.responses.create(model="m", input="Hi", stream=True))
    assert [event.type for event in events[-2:]] == ["error", "response.failed"]


def test_a_whole_answer_that_fails_amid_is_retried(client: ScriptedOpenAI) -> None:
    client.script(cut("one two", tokens=1), server_error().after("one"), "fine")
    assert ask(client).choices[0].message.content == "fine"
    assert [call.attempt for call in client.calls] == [0, 1, 2]


def test_a_failure_after_more_tokens_than_there_are_is_a_mistake_of_the_script(client: ScriptedOpenAI) -> None:
    client.script(cut("one two", tokens=3))
    with pytest.raises(ValueError, match="2 tokens cannot fail after 3"):
        ask(client)


# -- hangs and time -----------------------------------------------------------------------------------------------


def test_a_hang_lasts_until_the_request_times_out(client: ScriptedOpenAI) -> None:
    client.script(hang(), hang().after("one two", tokens=1))
    impatient = client.with_options(timeout=0.05, max_retries=0)
    with pytest.raises(openai.APITimeoutError):
        ask(impatient)
    stream = ask(impatient, stream=True)
    with pytest.raises(STREAM_TIMEOUT):
        list(stream)


def test_a_hang_is_over_when_the_clock_passes_its_timeout(client: ScriptedOpenAI) -> None:
    client.script(hang(), "fine")
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(ask(client)))
    thread.start()
    assert eventually(lambda: client.stage.stats().running == 1)
    client.clock.advance(599)
    assert not answers and len(client.calls) == 1
    client.clock.advance(2)
    thread.join()
    assert answers[0].choices[0].message.content == "fine" and len(client.calls) == 2


@pytest.mark.anyio
async def test_a_task_that_gives_a_hang_up_takes_it_along() -> None:
    async with scripted(hang(), "next") as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, client)
            assert await anyio.to_thread.run_sync(eventually, lambda: client.stage.stats().running == 1)
            tasks.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(eventually, lambda: client.stage.stats().running == 0)
        assert (await ask(client)).choices[0].message.content == "next"


def test_a_timeout_counts_the_clock_s_time(client: ScriptedOpenAI) -> None:
    client.script(timed("slow", first_token=11), timed("one two", first_token=9, tokens_per_second=0.5))
    patient = client.with_options(timeout=10, max_retries=0)
    with pytest.raises(openai.APITimeoutError):
        ask(patient)
    assert client.clock.now == 10
    with pytest.raises(openai.APITimeoutError):
        ask(patient)
    client.script(timed("one two", first_token=9, tokens_per_second=0.5))
    assert contents(ask(patient, stream=True)) == ["one", " two"], "a stream may wait so long for each chunk"


def test_only_advance_moves_a_manual_clock() -> None:
    with scripted(timed("slow", first_token=2), timed("quick", first_token=1), clock="manual") as client:
        streams = [ask(client, stream=True) for _ in range(2)]
        order: list[int] = []
        threads = [threading.Thread(target=lambda i=i: (list(streams[i]), order.append(i))) for i in range(2)]
        for thread in threads:
            thread.start()
        assert eventually(lambda: client.stage.stats().running == 2)
        client.clock.advance(1)
        threads[1].join()
        assert order == [1] and client.stage.stats().running == 1
        client.clock.advance(1)
        threads[0].join()
    assert order == [1, 0]


def test_a_retry_waits_for_a_manual_clock() -> None:
    with scripted(rate_limit(retry_after=30), "fine", clock="manual") as client:
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(ask(client)))
        thread.start()
        assert eventually(lambda: client.clock.sleeps == [30.0])
        client.clock.advance(29)
        assert len(client.calls) == 1
        client.clock.advance(1)
        thread.join()
        assert answers[0].choices[0].message.content == "fine"


@pytest.mark.anyio
async def test_a_task_may_be_cancelled_while_it_waits_for_a_manual_clock() -> None:
    async with scripted(rate_limit(retry_after=30), clock="manual") as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, client)
            assert await anyio.to_thread.run_sync(eventually, lambda: client.clock.sleeps == [30.0])
            tasks.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(eventually, lambda: client.clock.waiting == 0), "no thread waits on"


def test_a_real_clock_waits() -> None:
    with scripted(rate_limit(retry_after=0.05), timed("slow", first_token=0.05), clock="real") as client:
        began = time.monotonic()
        ask(client)
        assert time.monotonic() - began >= 0.1 and client.clock.now >= 0.1


@pytest.mark.parametrize("wrong", [-1, float("inf"), float("nan")])
def test_time_does_not_run_backwards(wrong: float) -> None:
    with pytest.raises(ValueError, match="0 seconds or more"):
        Clock("manual").advance(wrong)
    with pytest.raises(ValueError, match="'instant', 'manual' or 'real'"):
        Clock("frozen")  # type: ignore[arg-type]


def test_threads_may_advance_a_clock_together_and_it_never_goes_back() -> None:
    clock, seen = Clock("instant"), [0.0]

    def work(_: int) -> None:
        for _ in range(200):
            clock.advance(1)
            clock.sleep(0)
            clock.reach(clock.now - 5)
            seen.append(clock.now)

    in_threads(work, range(8))
    assert clock.now == max(seen) == 1600


# -- what is left -----------------------------------------------------------------------------------------------------


def test_no_thread_is_left_and_instant_answers_need_none() -> None:
    before = set(threading.enumerate())
    with scripted("a", timed("b", first_token=1)) as client:
        ask(client)
        assert not set(threading.enumerate()) - before
        ask(client)
        assert len(set(threading.enumerate()) - before) == 1
    assert not set(threading.enumerate()) - before


def test_what_is_in_flight_fails_when_the_client_ends() -> None:
    with scripted(hang().after("one")) as client:
        stream = ask(client, stream=True)
        assert contents([next(stream), next(stream)]) == ["one"]
    with pytest.raises(openai.APIConnectionError):
        list(stream)
    with pytest.raises(openai.APIConnectionError):
        ask(client)


def test_a_response_in_the_background_is_scripted_too() -> None:
    with scripted("done", rate_limit(quota=True), server_error().after("one"), client={"max_retries": 0}) as client:
        response = client.responses.create(model="m", input="Hi", background=True)
        assert eventually(lambda: client.responses.retrieve(response.id).status == "completed")
        assert client.responses.retrieve(response.id).output_text == "done"
        with pytest.raises(openai.RateLimitError):
            client.responses.create(model="m", input="Hi", background=True)
        response = client.responses.create(model="m", input="Hi", background=True)
        assert eventually(lambda: client.responses.retrieve(response.id).status == "failed")


@pytest.mark.anyio
async def test_many_tasks_share_a_script_and_each_gets_its_reply() -> None:
    async with AsyncScriptedOpenAI() as client, anyio.create_task_group() as tasks:
        client.when().reply(lambda request: timed(request.user, first_token=float(request.user) % 3)).always()
        answers: dict[str, str] = {}

        async def one(text: str) -> None:
            made = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
            answers[text] = made.choices[0].message.content or ""

        for i in range(30):
            tasks.start_soon(one, f"{i}")
    assert answers == {f"{i}": f"{i}" for i in range(30)}


def test_what_a_script_cannot_answer_is_not_asked_again() -> None:
    """Also where the SDK itself retries, in a client that code under test made."""
    with scripted("one", assert_complete=False) as client, patch_openai(client):
        stock = openai.OpenAI(api_key="unused", max_retries=3)
        assert ask(stock).choices[0].message.content == "one"
        with pytest.raises(openai.BadRequestError, match="no reply is scripted") as caught:
            ask(stock)
        assert caught.value.code == "not_scripted"
        assert len(client.calls) == 2


def test_a_prompt_that_is_longer_than_the_context_is_refused() -> None:
    with scripted("one", context_length=30, assert_complete=False) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(model="m", input="This is longer than thirty characters.")
        assert caught.value.code == "context_length_exceeded"

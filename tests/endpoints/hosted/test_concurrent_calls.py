"""Several calls of hosted tools in one turn: they run concurrently, and each fails alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.endpoints.functions import call
from tests.endpoints.hosted.hosting import ANSWER, CODE, PAGE, SEARCH, URL, ask, each_way, script, types
from tests.endpoints.hosted.mcp.servers import ASKS, CALLS, Server, text
from tests.lost import STREAM_TIMEOUT

FIRST, SECOND = call("web_search", {"query": "first"}), call("web_search", {"query": "second"})
BOTH = FIRST + SECOND
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Weather?"}],
    "web_search_options": {},
}


def page(query: str) -> list[dict[str, str]]:
    return [{**PAGE, "text": query}]


def meeting(count: int) -> Callable[..., Any]:
    """A hook whose calls return when there are as many at the same time."""
    barrier = threading.Barrier(count)

    def search(query: str, **options: Any) -> Any:
        barrier.wait(60)
        return page(query)

    return search


def meeting_later(count: int) -> Callable[..., Any]:
    """The same, async."""
    search = meeting(count)

    async def search_later(query: str, **options: Any) -> Any:
        return await asyncio.to_thread(search, query)

    return search_later


# -- at the same time -----------------------------------------------------------------------------------------------


@each_way
@pytest.mark.parametrize("make", [meeting, meeting_later])
def test_calls_of_one_turn_run_at_the_same_time(make: Any, how: str) -> None:
    with ScriptedEngine(script(BOTH, ANSWER)) as engine:
        response, _ = ask(engine, how, {"web_search": make(2)})
        prompt = engine.prompts[1]
    assert types(response) == ["web_search_call", "web_search_call", "message"]
    assert [item.action.query for item in response.output[:2]] == ["first", "second"]
    assert "first" in response.output[0].output and "second" in response.output[1].output
    assert prompt.index('"text": "first"') < prompt.index('"text": "second"')


def test_a_call_that_ends_first_is_done_first_and_keeps_its_place() -> None:
    ended = threading.Event()

    def search(query: str, **options: Any) -> Any:
        if query == "first":
            assert ended.wait(60)
        return page(query)

    with (
        ScriptedEngine(script(BOTH, ANSWER)) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"web_search": search}) as client,
    ):
        stream: Any = client.responses.create(model="m", input="Weather?", tools=[SEARCH], stream=True)
        done = []
        for event in stream:
            if event.type == "response.output_item.done":
                done.append(event.output_index)
                ended.set()
        prompt = engine.prompts[1]
    assert done == [1, 0, 2]
    assert [item.action.query for item in event.response.output[:2]] == ["first", "second"]
    assert prompt.index('"text": "first"') < prompt.index('"text": "second"')


def test_calls_of_servers_and_hooks_run_at_the_same_time() -> None:
    """Also two calls of one server."""
    barrier = threading.Barrier(3)

    def wait() -> Any:
        barrier.wait(60)
        return text("5")

    def search(query: str, **options: Any) -> Any:
        barrier.wait(60)
        return page(query)

    adds = call("calc__add", {"a": 2, "b": 3})
    servers: Any = {"mcp": {"calc": Server(result=wait)}, "web_search": search}
    with ScriptedEngine(script(adds + FIRST + adds, ANSWER)) as engine:
        response, _ = ask(engine, "streamed", servers, tools=[SEARCH, CALLS])
    assert types(response) == ["mcp_list_tools", "mcp_call", "web_search_call", "mcp_call", "message"]
    assert {item.status for item in response.output[1:]} == {"completed"}


def test_calls_that_were_approved_run_at_the_same_time() -> None:
    barrier = threading.Barrier(2)

    def wait() -> Any:
        barrier.wait(60)
        return text("5")

    adds, servers = call("calc__add", {"a": 2, "b": 3}), {"mcp": {"calc": Server(result=wait)}}
    with ScriptedEngine(script(adds + adds, ANSWER)) as engine:
        first, _ = ask(engine, "whole", servers, tools=[ASKS])
        requests = [item for item in first.output if item.type == "mcp_approval_request"]
        given: list[Any] = [{"role": "user", "content": "Weather?"}, *first.output]
        given += [
            {"type": "mcp_approval_response", "approval_request_id": each.id, "approve": True} for each in requests
        ]
        for how in ("whole", "streamed"):
            second, _ = ask(engine, how, servers, tools=[ASKS], input=given)
            assert types(second) == ["mcp_call", "mcp_call", "message"]
            assert [item.approval_request_id for item in second.output[:2]] == [each.id for each in requests]


def test_code_of_one_turn_runs_in_its_order() -> None:
    """The second call needs what the first one has left in the container."""
    names: dict[str, list[str]] = {}
    running = threading.Lock()

    def run(code: str, container: str) -> Any:
        assert running.acquire(blocking=False), "two calls run at the same time"
        names.setdefault(container, []).append(code)
        running.release()
        return "done"

    codes = [f"x = {i}" for i in range(8)]
    asks = "".join(call("code_interpreter", {"code": code}) for code in codes)
    with ScriptedEngine(script(asks, "Done.")) as engine:
        response, _ = ask(engine, "streamed", {"code_interpreter": run}, tools=[CODE])
    assert [*names.values()] == [codes] and len(types(response)) == 9
    assert {item.status for item in response.output} == {"completed"}


# -- one of them fails, hangs, or is left -----------------------------------------------------------------------------


@each_way
def test_a_call_that_fails_fails_alone(how: str) -> None:
    wait = meeting(2)

    def search(query: str, **options: Any) -> Any:
        found = wait(query)
        if query == "first":
            raise ValueError("no network")
        return found

    with ScriptedEngine(script(BOTH, ANSWER)) as engine:
        response, _ = ask(engine, how, {"web_search": search})
        assert engine.prompts[1].count("Error: ValueError: no network") == 1
    assert [item.status for item in response.output] == ["failed", "completed", "completed"]
    assert response.output[2].content[0].annotations[0].url == URL


class Stuck:
    """A hook whose first call hangs, until it is canceled."""

    def __init__(self) -> None:
        self.reached, self.canceled = threading.Event(), threading.Event()

    async def __call__(self, query: str, **options: Any) -> Any:
        if query != "first":
            return page(query)
        self.reached.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.canceled.set()
            raise


@each_way
def test_a_call_that_hangs_ends_with_the_timeout_of_the_request(how: str) -> None:
    stuck = Stuck()
    with ScriptedEngine(script(BOTH, ANSWER)) as engine:
        with pytest.raises((openai.APITimeoutError, STREAM_TIMEOUT)):
            ask(engine, how, {"web_search": stuck}, timeout=0.3)
        assert stuck.canceled.wait(60)
        response, _ = ask(engine, how, {"web_search": page_later})
    assert response.status == "completed"


async def page_later(query: str, **options: Any) -> Any:
    return page(query)


def test_a_call_beside_one_that_hangs_is_done_when_the_response_is_canceled() -> None:
    stuck = Stuck()
    with (
        ScriptedEngine(script(BOTH, ANSWER)) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"web_search": stuck}) as client,
    ):
        made = client.responses.create(model="m", input="Weather?", tools=[SEARCH], background=True)
        stream: Any = client.responses.retrieve(made.id, stream=True)
        while next(stream).type != "response.output_item.done":
            pass
        assert stuck.reached.wait(60)
        canceled = client.responses.cancel(made.id)
        assert stuck.canceled.wait(60)
        assert [item.status for item in canceled.output] == ["failed", "completed"]
        assert client.responses.retrieve(made.id).output == canceled.output
        assert client.responses.create(model="m", input="Hi").status == "completed"


def test_all_calls_are_canceled_when_their_reader_leaves() -> None:
    every = [Stuck() for _ in range(3)]
    left = iter(every)

    async def search(query: str, **options: Any) -> Any:
        return await next(left)("first")

    with (
        ScriptedEngine(script(FIRST * 3, ANSWER)) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"web_search": search}) as client,
    ):
        stream: Any = client.responses.create(model="m", input="Weather?", tools=[SEARCH], stream=True)
        while next(stream).type != "response.web_search_call.searching":
            pass
        assert all(each.reached.wait(60) for each in every)
        stream.close()
        assert all(each.canceled.wait(60) for each in every)


def test_a_hook_that_ends_the_program_fails_the_response_and_no_other() -> None:
    def search(query: str, **options: Any) -> Any:
        if query == "first":
            raise SystemExit(3)
        return page(query)

    with (
        ScriptedEngine(script(BOTH, ANSWER)) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"web_search": search}, max_retries=0) as client,
    ):
        with pytest.raises(openai.InternalServerError, match=r"SystemExit\(3\)"):
            client.responses.create(model="m", input="Weather?", tools=[SEARCH])
        assert client.responses.create(model="m", input="Hi").status == "completed"


# -- chat completions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [meeting, meeting_later])
def test_searches_of_all_choices_run_at_the_same_time(make: Any) -> None:
    with (
        ScriptedEngine(script(BOTH, ANSWER)) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"web_search": make(6)}) as client,
    ):
        completion = client.chat.completions.create(**CHAT, n=3)
        prompts = engine.prompts[-3:]
    assert [choice.message.content for choice in completion.choices] == [ANSWER] * 3
    assert all(prompt.index('"text": "first"') < prompt.index('"text": "second"') for prompt in prompts)


def test_a_search_that_fails_in_one_choice_fails_in_no_other() -> None:
    wait, lock, count = meeting(2), threading.Lock(), iter(range(2))

    def search(query: str, **options: Any) -> Any:
        with lock:
            is_first = next(count) == 0
        found = wait(query)
        if is_first:
            raise ValueError("no network")
        return found

    with (
        ScriptedEngine(script(FIRST, ANSWER)) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"web_search": search}) as client,
    ):
        completion = client.chat.completions.create(**CHAT, n=2)
        shown = sorted("Error: ValueError: no network" in prompt for prompt in engine.prompts[-2:])
    assert shown == [False, True]
    assert sorted(bool(choice.message.annotations) for choice in completion.choices) == [False, True]


def test_searches_of_all_choices_are_canceled_with_their_request() -> None:
    stuck = Stuck()
    with (
        ScriptedEngine(script(FIRST + SECOND, ANSWER)) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"web_search": stuck}, max_retries=0) as client,
    ):
        with pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(**CHAT, n=2, timeout=0.3)
        assert stuck.canceled.wait(60)

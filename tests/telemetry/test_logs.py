"""The log has one line per request, with its timings and nothing of what it says, for whoever wants to see that."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.telemetry import observe
from localai_shim.testing import content_filter, cut, scripted, tool_call, truncated
from localai_shim.types import log
from tests.engine.harness import eventually
from tests.lost import STREAM_CUT
from tests.otel import Telemetry, global_telemetry, no_telemetry, trace
from tests.scripts import run
from tests.tiny import tiny

SECRET = "opensesame"
ASK: dict[str, Any] = {
    "model": "any",
    "messages": [{"role": "user", "content": SECRET}],
    "max_tokens": 5,
    "extra_body": {"ignore_eos": True},
}
ENDLESS: dict[str, Any] = {**ASK, "max_tokens": 10_000}
RESPONSE: dict[str, Any] = {"model": "any", "input": SECRET}


@pytest.fixture(scope="module")
def client() -> Iterator[LocalOpenAI]:
    with LocalOpenAI(tiny("qwen3", max_position_embeddings=200_000)) as client:
        client.chat.completions.create(**ASK)
        yield client


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "localai_shim")


def fields(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """Those of the one line that was written; none is written twice."""
    assert eventually(lambda: bool(caplog.records))
    [record] = caplog.records
    assert record.levelname == "INFO" and SECRET not in record.getMessage()
    found: dict[str, Any] = record.request  # type: ignore[attr-defined]
    words = record.getMessage().removeprefix(found["endpoint"]).split()
    assert [word.split("=")[0] for word in words] == [name for name in found if name != "endpoint"]
    caplog.clear()
    return found


def test_a_whole_answer(client: LocalOpenAI, caplog: pytest.LogCaptureFixture) -> None:
    usage = client.chat.completions.create(**ASK).usage
    assert usage is not None and usage.prompt_tokens_details is not None
    [record] = caplog.records
    pattern = (
        r"POST /chat/completions model=\S+ prepare=\d+\.\dms queued=\d+\.\dms prefill=\d+\.\dms ttft=\d+\.\dms "
        r"in=\d+ cached=\d+ out=5 tok/s=\d+\.\d total=\d+\.\dms finish=length"
    )
    assert re.fullmatch(pattern, record.getMessage())
    found = fields(caplog)
    assert (found["in"], found["out"]) == (usage.prompt_tokens, usage.completion_tokens)
    assert found["cached"] == usage.prompt_tokens_details.cached_tokens
    assert 0 < found["prepare"] + found["queued"] < found["ttft"] < found["total"]
    assert found["prepare"] + found["queued"] + found["prefill"] == pytest.approx(found["ttft"])


def test_choices_are_one_request(client: LocalOpenAI, caplog: pytest.LogCaptureFixture) -> None:
    answer = client.chat.completions.create(**ASK, n=3)
    found = fields(caplog)
    assert answer.usage is not None and (found["in"], found["out"]) == (answer.usage.prompt_tokens, 15)


def test_what_no_model_has_to_run_for(client: LocalOpenAI, caplog: pytest.LogCaptureFixture) -> None:
    client.models.list()
    assert fields(caplog).keys() == {"endpoint", "total"}
    client.responses.input_tokens.count(model="any", input=SECRET)
    assert fields(caplog).keys() == {"endpoint", "model", "total"}


def test_requests_at_once_have_a_line_each(client: LocalOpenAI, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(tiny("qwen3", max_position_embeddings=200_000)) as shared:
            ask = [shared.chat.completions.create(**{**ASK, "max_tokens": 2 + i}) for i in range(6)]
            await asyncio.gather(*ask)

    asyncio.run(main())
    assert sorted(record.request["out"] for record in caplog.records) == [2, 3, 4, 5, 6, 7]  # type: ignore[attr-defined]


def test_nobody_counts_tokens_where_nobody_wants_to_see_the_line(
    client: LocalOpenAI, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localai_shim.telemetry.observe.Observation", None)
    caplog.set_level(logging.WARNING, "localai_shim")
    with no_telemetry():  # other tests' tools have set it up
        client.chat.completions.create(**ASK)
    assert not caplog.records


# -- ends, which the span says, too ----------------------------------------------------------------------------------


class Watched:
    """What is seen of one request."""

    def __init__(self, caplog: pytest.LogCaptureFixture, telemetry: Telemetry, caller: trace.Span) -> None:
        self.caplog, self.telemetry, self.caller = caplog, telemetry, caller

    def is_open(self) -> None:
        assert not self.caplog.records and not self.telemetry.engine_spans

    def has_ended(self, line: dict[str, Any], reasons: tuple[str, ...] | None = None) -> None:
        """Once, with a line and a span below the caller's. What was dropped ends on another thread."""
        assert eventually(lambda: bool(self.telemetry.engine_spans))
        found = fields(self.caplog)
        span, attributes = self.telemetry.one()
        assert {name: found.get(name) for name in line} == line
        assert span.parent is not None and span.parent.span_id == self.caller.get_span_context().span_id
        left = {found.get("finish"), found.get("error")} & {"left", "CancelledError"}
        error = "cancelled" if left else found.get("error")
        status = "UNSET" if error is None else "ERROR"
        assert (span.status.status_code.name, attributes.get("error.type")) == (status, error)
        assert found.get("out") == attributes.get("localai_shim.output_tokens")
        assert reasons is None or attributes["gen_ai.response.finish_reasons"] == reasons
        assert not eventually(lambda: bool(self.telemetry.engine_spans or self.caplog.records), seconds=0.02)


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> Iterator[Watched]:
    with global_telemetry() as telemetry, telemetry.tracer.start_as_current_span("caller") as caller:
        yield Watched(caplog, telemetry, caller)


class AtLeast(float):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | float) and other >= float(self)

    __hash__ = None  # type: ignore[assignment]


def begun(client: LocalOpenAI, watched: Watched, ask: dict[str, Any] = ENDLESS) -> Any:
    stream = client.chat.completions.create(**ask, stream=True)
    next(stream)
    watched.is_open()
    return stream


def read(client: LocalOpenAI, watched: Watched) -> None:
    with begun(client, watched, ASK) as stream:
        list(stream)


def dropped_in_a_circle(client: LocalOpenAI, watched: Watched) -> None:
    stream: Any = client.chat.completions.create(**ENDLESS, stream=True)
    stream.itself = stream
    del stream
    gc.collect()


def fails(error: type[Exception], **ask: Any) -> Callable[[LocalOpenAI, Watched], None]:
    def by(client: LocalOpenAI, watched: Watched) -> None:
        with pytest.raises(error):
            client.chat.completions.create(**ask)

    return by


def cut_off(ask: Callable[[LocalOpenAI], Any]) -> Callable[[LocalOpenAI, Watched], None]:
    def by(client: LocalOpenAI, watched: Watched) -> None:
        with scripted(cut("one two three")) as client, ask(client) as stream, pytest.raises(STREAM_CUT):
            list(stream)

    return by


def canceled_in_the_background(client: LocalOpenAI, watched: Watched) -> None:
    ask = {**RESPONSE, "max_output_tokens": 10_000, "extra_body": {"ignore_eos": True}}
    made = client.responses.create(**ask, background=True)
    watched.is_open()
    client.responses.cancel(made.id)
    [of_cancel] = [record for record in watched.caplog.records if "/cancel " in record.getMessage()]
    watched.caplog.records.remove(of_cancel)


ENDS: dict[str, tuple[Callable[[LocalOpenAI, Watched], object], dict[str, Any]]] = {
    "a stream is read": (read, {"finish": "length", "out": 5}),
    "a stream is closed": (lambda *seen: begun(*seen).close(), {"finish": "left", "out": AtLeast(1)}),
    "a stream is dropped": (begun, {"finish": "left", "out": AtLeast(1)}),
    "a stream of which nothing is read is dropped in a circle": (dropped_in_a_circle, {"finish": "left"}),
    "a request is refused": (
        fails(openai.BadRequestError, model="any", messages=[{"role": SECRET, "content": ""}]),
        {"error": "BadRequestError", "param": "messages[0].role", "model": None, "in": None},
    ),
    "a request takes too long": (
        fails(openai.APITimeoutError, **ENDLESS, timeout=0.1),
        {"error": "APITimeoutError", "total": AtLeast(0.1)},
    ),
    "a stream is cut off": (
        cut_off(lambda client: client.chat.completions.create(**ASK, stream=True)),
        {"error": "APIConnectionError", "out": AtLeast(1)},
    ),
    "a response is cut off": (
        cut_off(lambda client: client.responses.create(**RESPONSE, stream=True)),
        {"error": "APIConnectionError", "out": AtLeast(1)},
    ),
    "a background response ends": (
        lambda client, _: client.responses.create(**RESPONSE, background=True, max_output_tokens=20),
        {"endpoint": "POST /responses", "finish": "length", "out": 20},
    ),
    "a background response is canceled": (canceled_in_the_background, {"finish": "left"}),
}


@pytest.mark.parametrize(("by", "line"), ENDS.values(), ids=list(ENDS))
def test_the_line_and_the_span_say_how_a_request_ended(
    client: LocalOpenAI, watched: Watched, by: Callable[[LocalOpenAI, Watched], object], line: dict[str, Any]
) -> None:
    by(client, watched)
    watched.has_ended(line)


async def closed(client: AsyncLocalOpenAI) -> None:
    stream = await client.chat.completions.create(**ENDLESS, stream=True)
    await stream.__anext__()
    await stream.close()


async def reading(client: AsyncLocalOpenAI) -> None:
    async for _ in await client.chat.completions.create(**ENDLESS, stream=True):
        pass


async def canceled(client: AsyncLocalOpenAI, work: Coroutine[Any, Any, object]) -> None:
    task = asyncio.ensure_future(work)
    await asyncio.to_thread(eventually, lambda: client.stats().running > 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_line_and_the_span_say_how_a_task_s_request_ended(watched: Watched) -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(tiny("qwen3", max_position_embeddings=200_000)) as client:
            create = client.chat.completions.create
            for end, line in [
                (create(**ASK), {"finish": "length", "out": 5}),
                (closed(client), {"finish": "left", "out": AtLeast(1)}),
                (canceled(client, reading(client)), {"error": "CancelledError"}),
                (canceled(client, create(**ENDLESS)), {"error": "CancelledError"}),
            ]:
                await end
                await asyncio.to_thread(watched.has_ended, line)

    asyncio.run(main())


TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
REPLIES = {
    "tool_calls": tool_call("look"),
    "content_filter": content_filter("one two"),
    "length": truncated("one two"),
    "stop": "one two",
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("finish", REPLIES)
def test_the_line_and_the_span_say_why_an_answer_ended_as_its_caller_got_it(
    watched: Watched, finish: str, stream: bool
) -> None:
    ask: dict[str, Any] = {"model": "any", "stream": stream}
    tool = {"type": "function", "function": {key: value for key, value in TOOL.items() if key != "type"}}
    with scripted(REPLIES[finish], REPLIES[finish]) as client:
        made: Any = client.chat.completions.create(messages=ASK["messages"], tools=[tool], **ask)
        choice = [chunk.choices[0] for chunk in made][-1] if stream else made.choices[0]
        assert choice.finish_reason == finish
        watched.has_ended({"finish": finish}, (finish,))
        list(client.responses.create(input=SECRET, tools=[TOOL], **ask))
        watched.has_ended({"finish": finish}, (finish,))


def test_choices_that_end_in_two_ways_say_both(watched: Watched) -> None:
    with scripted("one two", truncated("one two"), "one two") as client:
        client.chat.completions.create(model="any", messages=ASK["messages"], n=3)
    watched.has_ended({"finish": "stop,length"}, ("stop", "length", "stop"))


# -- LOCALAI_SHIM_LOG ------------------------------------------------------------------------------------------------

SCRIPT = """
import logging, os
import localai_shim
from localai_shim.testing import scripted
def ask():
    with scripted("Hello!") as client:
        client.responses.create(model="any", input="opensesame")
    print(len(logging.getLogger("localai_shim").handlers), len(logging.root.handlers))
ask()
os.environ["LOCALAI_SHIM_LOG"] = "Info"
ask()
ask()
"""


def test_the_variable_shows_the_lines_on_stderr_and_nothing_is_shown_without() -> None:
    done = run(SCRIPT, warm="sdk")
    assert (done.returncode, done.stdout) == (0, "0 0\n1 0\n1 0\n")
    assert done.stderr.count("localai_shim INFO POST /responses ") == done.stderr.count("\n") == 2
    assert SECRET not in done.stderr


def test_a_program_that_has_handlers_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(observe.VARIABLE, "info")
    before, level = list(log.handlers), log.level
    try:
        observe.follow_environment()  # pytest's own take the lines
        assert log.handlers == before and log.level == logging.INFO
    finally:
        log.setLevel(level)


def test_a_level_that_does_not_exist_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(observe.VARIABLE, "loud")
    level = log.level
    observe.follow_environment()
    assert log.level == level
    [record] = caplog.records
    assert "LOCALAI_SHIM_LOG must be one of debug, info, warning, error, not 'loud'" in record.getMessage()

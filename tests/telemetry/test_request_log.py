"""The log has one line per request, with its timings and nothing of what it says, for whoever wants to see that."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.telemetry import logs
from localai_shim.testing import content_filter, cut, scripted, tool_call, truncated
from localai_shim.types import log
from tests.engine.harness import eventually
from tests.lost import STREAM_CUT
from tests.otel import no_telemetry
from tests.scripts import run
from tests.tiny import tiny

SECRET = "opensesame"
ASK: dict[str, Any] = {
    "model": "any",
    "messages": [{"role": "user", "content": SECRET}],
    "max_tokens": 5,
    "extra_body": {"ignore_eos": True},
}
ENDLESS = {**ASK, "max_tokens": 10_000}


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


def test_a_stream_when_it_has_ended(client: LocalOpenAI, caplog: pytest.LogCaptureFixture) -> None:
    stream = client.chat.completions.create(**ASK, stream=True)
    next(stream)
    assert not caplog.records
    list(stream)
    stream.close()
    assert fields(caplog)["finish"] == "length"


def test_a_stream_that_is_closed_or_dropped(client: LocalOpenAI, caplog: pytest.LogCaptureFixture) -> None:
    closed = client.chat.completions.create(**ENDLESS, stream=True)
    next(closed)
    closed.close()
    assert fields(caplog)["finish"] == "left"
    dropped = client.chat.completions.create(**ENDLESS, stream=True)
    next(dropped)
    del dropped
    assert fields(caplog)["finish"] == "left"


def test_a_request_that_is_refused_names_the_field(client: LocalOpenAI, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="any", messages=[{"role": SECRET, "content": ""}])  # type: ignore[list-item,misc]
    found = fields(caplog)
    assert (found["error"], found["param"]) == ("BadRequestError", "messages[0].role") and "model" not in found


def test_a_request_that_takes_too_long(client: LocalOpenAI, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(**ENDLESS, timeout=0.1)
    found = fields(caplog)
    assert found["error"] == "APITimeoutError" and found["total"] >= 0.1


def test_an_answer_that_fails_amid_a_stream(caplog: pytest.LogCaptureFixture) -> None:
    with scripted(cut("one two three")) as client:
        with pytest.raises(STREAM_CUT):
            list(client.chat.completions.create(model="any", messages=ASK["messages"], stream=True))
        found = fields(caplog)
        assert found["error"] == "APIConnectionError" and found["out"] > 0
        client.script(cut("one two three"))
        with (
            client.responses.create(model="any", input=SECRET, stream=True) as stream,
            pytest.raises(STREAM_CUT),
        ):
            list(stream)
        assert fields(caplog)["error"] == "APIConnectionError"


def test_what_no_model_has_to_run_for(client: LocalOpenAI, caplog: pytest.LogCaptureFixture) -> None:
    client.models.list()
    assert fields(caplog).keys() == {"endpoint", "total"}
    client.responses.input_tokens.count(model="any", input=SECRET)
    assert fields(caplog).keys() == {"endpoint", "model", "total"}


def test_a_response_in_the_background_when_that_has_ended(
    client: LocalOpenAI, caplog: pytest.LogCaptureFixture
) -> None:
    client.responses.create(model="any", input=SECRET, background=True, max_output_tokens=20)
    found = fields(caplog)
    assert found["endpoint"] == "POST /responses" and (found["out"], found["finish"]) == (20, "length")


def test_async_requests_of_every_end(client: LocalOpenAI, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(tiny("qwen3", max_position_embeddings=200_000)) as shared:
            await shared.chat.completions.create(**ASK)
            assert fields(caplog)["finish"] == "length"
            stream = await shared.chat.completions.create(**ENDLESS, stream=True)
            await stream.__anext__()
            await stream.close()
            assert fields(caplog)["finish"] == "left"
            stream = await shared.chat.completions.create(**ENDLESS, stream=True)
            task = asyncio.ensure_future(read(stream))
            await asyncio.to_thread(eventually, lambda: shared.stats().running > 0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert fields(caplog)["error"] == "CancelledError"

    async def read(stream: Any) -> None:
        async for _ in stream:
            pass

    asyncio.run(main())


TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
ENDS = {
    "tool_calls": tool_call("look"),
    "content_filter": content_filter("one two"),
    "length": truncated("one two"),
    "stop": "one two",
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("finish", ENDS)
def test_an_answer_ends_in_the_line_as_its_caller_got_it(
    caplog: pytest.LogCaptureFixture, finish: str, stream: bool
) -> None:
    ask: dict[str, Any] = {"model": "any", "stream": stream}
    tool = {"type": "function", "function": {key: value for key, value in TOOL.items() if key != "type"}}
    with scripted(ENDS[finish], ENDS[finish]) as client:
        made: Any = client.chat.completions.create(messages=ASK["messages"], tools=[tool], **ask)
        choice = [chunk.choices[0] for chunk in made][-1] if stream else made.choices[0]
        assert fields(caplog)["finish"] == choice.finish_reason == finish
        list(client.responses.create(input=SECRET, tools=[TOOL], **ask))
        assert fields(caplog)["finish"] == finish


def test_choices_that_end_in_two_ways_say_both(caplog: pytest.LogCaptureFixture) -> None:
    with scripted("one two", truncated("one two"), "one two") as client:
        client.chat.completions.create(model="any", messages=ASK["messages"], n=3)
    assert fields(caplog)["finish"] == "stop,length"


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
    monkeypatch.setenv(logs.VARIABLE, "info")
    before, level = list(log.handlers), log.level
    try:
        logs.follow_environment()  # pytest's own take the lines
        assert log.handlers == before and log.level == logging.INFO
    finally:
        log.setLevel(level)


def test_a_level_that_does_not_exist_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(logs.VARIABLE, "loud")
    level = log.level
    logs.follow_environment()
    assert log.level == level
    [record] = caplog.records
    assert "LOCALAI_SHIM_LOG must be one of debug, info, warning, error, not 'loud'" in record.getMessage()

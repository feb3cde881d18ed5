"""batches.create and what comes of it: each line is answered as the same request alone would be."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types import Batch, Completion
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.client.batch_lines import answer_lines
from localai_shim.testing import ScriptedEngine, connection_error, rate_limit, scripted, timeout
from tests.conftest import revalidate
from tests.endpoints.batches.batching import CHAT, finished, line, read, start, upload
from tests.engine.harness import eventually
from tests.tiny import tiny


def test_each_line_is_answered_as_the_request_alone_would_be(client: LocalOpenAI) -> None:
    bodies: dict[str, dict[str, Any]] = {
        f"r{i}": {"temperature": 1, "seed": i, "n": 1 + i % 2, "max_tokens": 3 + i} for i in range(8)
    }
    batch = start(client, [line(id, **body) for id, body in bodies.items()], metadata={"topic": "tests"})
    assert (batch.status, batch.endpoint, batch.metadata) == ("validating", CHAT, {"topic": "tests"})
    assert batch.expires_at == batch.created_at + 24 * 3600
    done = finished(client, batch.id)
    revalidate(done)
    assert (done.status, done.error_file_id, done.request_counts.total) == ("completed", None, 8)
    assert (done.request_counts.completed, done.request_counts.failed) == (8, 0)
    output = read(client, done.output_file_id)
    assert list(output) == list(bodies)  # in the order of the lines
    for id, body in bodies.items():
        answer = output[id]
        assert answer["error"] is None and answer["id"].startswith("batch_req_")
        assert answer["response"]["status_code"] == 200 and answer["response"]["request_id"].startswith("req_")
        made = ChatCompletion.model_validate(answer["response"]["body"])
        alone = client.chat.completions.create(**json.loads(line(id, **body))["body"])
        assert made.choices == alone.choices
    texts = [ChatCompletion.model_validate(each["response"]["body"]) for each in output.values()]
    assert done.usage.output_tokens == sum(made.usage.completion_tokens for made in texts if made.usage)
    assert done.usage.input_tokens == sum(made.usage.prompt_tokens for made in texts if made.usage)
    assert done.model == texts[0].model


@pytest.mark.parametrize(
    ("url", "body", "kind"),
    [
        ("/v1/completions", {"model": "m", "prompt": ["Hello", "Bye"], "max_tokens": 3}, Completion),
        ("/v1/responses", {"model": "m", "input": "Hello", "max_output_tokens": 3}, Response),
    ],
)
def test_all_endpoints_of_batches_are_served(client: LocalOpenAI, url: Any, body: dict[str, Any], kind: Any) -> None:
    done = finished(client, start(client, [line("a", url, **body)], url).id)
    made = kind.model_validate(read(client, done.output_file_id)["a"]["response"]["body"])
    assert done.usage.total_tokens == made.usage.total_tokens > 0
    if kind is Response:
        assert client.responses.retrieve(made.id).id == made.id


def test_a_line_fails_alone(client: LocalOpenAI) -> None:
    lines = [line("good"), line("hot", temperature=9), line("stream", stream=True), line("many", n=10**6), line("fine")]
    done = finished(client, start(client, lines).id)
    assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", 2, 3)
    assert list(read(client, done.output_file_id)) == ["good", "fine"]
    failed = read(client, done.error_file_id)
    assert [each["response"]["status_code"] for each in failed.values()] == [400, 400, 400]
    assert [each["response"]["body"]["error"]["param"] for each in failed.values()] == ["temperature", "stream", "n"]


def test_lines_name_any_of_the_client_s_models_and_one_that_names_no_model_fails_alone() -> None:
    with LocalOpenAI(models={"a": tiny("qwen3"), "b": tiny("llama")}, keep_alive=0) as client:
        lines = [line("one", model="a"), line("two", model="b"), line("three", model="c"), line("four", model="a")]
        done = finished(client, start(client, lines).id)
        output = read(client, done.output_file_id)
        ran = {id: each["response"]["body"]["model"] for id, each in output.items()}
        assert ran == {"one": "tiny-qwen3", "two": "tiny-llama", "four": "tiny-qwen3"}
        [failed] = read(client, done.error_file_id).values()
        assert failed["response"]["status_code"] == 404
        assert failed["response"]["body"]["error"]["code"] == "model_not_found"


def test_responses_in_the_background_have_no_place_in_a_batch(client: LocalOpenAI) -> None:
    body = {"model": "m", "input": "Hello", "background": True}
    done = finished(client, start(client, [line("a", "/v1/responses", **body)], "/v1/responses").id)
    assert read(client, done.error_file_id)["a"]["response"]["body"]["error"]["param"] == "background"


def test_a_line_with_an_answer_that_is_only_reasoning_has_an_empty_content() -> None:
    with ScriptedEngine(["<think>Hm, let me"]) as engine, LocalOpenAI(engine=engine) as client:
        done = finished(client, start(client, [line("a")]).id)
        [choice] = read(client, done.output_file_id)["a"]["response"]["body"]["choices"]
        assert (choice["message"]["content"], choice["message"]["reasoning_content"]) == ("", "Hm, let me")


GOOD = line("good")
INVALID = {
    '{"custom_id": ': ("invalid_json_line", None),
    "[1]": ("invalid_json_line", None),
    '{"method": "POST", "url": "/v1/chat/completions", "body": {}}': ("missing_required_parameter", "custom_id"),
    '{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions"}': ("missing_required_parameter", "body"),
    GOOD.replace('"good"', "5"): ("invalid_type", "custom_id"),
    GOOD.replace('"body"', '"temperature": 0, "body"'): ("unknown_parameter", "temperature"),
    GOOD.replace('"body"', '"nothing": null, "extra": {}, "body"'): ("unknown_parameter", "extra"),
    GOOD.replace("POST", "GET"): ("invalid_value", "method"),
    GOOD.replace('"POST"', '["POST"]'): ("invalid_type", "method"),
    line("other", "/v1/completions", prompt="Hi"): ("url_mismatch", "url"),
    GOOD: ("duplicate_custom_id", "custom_id"),
}


def test_a_file_with_wrong_lines_fails_and_says_which(client: LocalOpenAI) -> None:
    done = finished(client, start(client, [GOOD, "", *INVALID]).id)
    assert (done.status, done.output_file_id, done.error_file_id) == ("failed", None, None)
    assert done.errors is not None and done.errors.object == "list" and done.failed_at
    found = [(error.line, error.code, error.param) for error in done.errors.data]
    assert found == [(i, *expected) for i, expected in enumerate(INVALID.values(), 3)]
    assert all(error.message for error in done.errors.data)
    [named, _] = [error.message for error in done.errors.data if error.code == "unknown_parameter"]
    assert "'temperature'" in named and "'body'" in named


@pytest.mark.parametrize("lines", [[], ["", " "]])
def test_a_file_without_requests_fails(client: LocalOpenAI, lines: list[str]) -> None:
    done = finished(client, start(client, lines).id)
    assert done.status == "failed" and [error.code for error in done.errors.data] == ["empty_file"]


def test_what_is_no_text_is_no_request(client: LocalOpenAI) -> None:
    id = client.files.create(file=GOOD.encode() + b"\n\xff\xfe\x00\n", purpose="batch").id
    batch = client.batches.create(input_file_id=id, endpoint=CHAT, completion_window="24h")
    assert [error.line for error in finished(client, batch.id).errors.data] == [2]


def test_what_cannot_be_made_is_refused(client: LocalOpenAI) -> None:
    file = upload(client, [GOOD])
    good: dict[str, Any] = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}
    done = finished(client, client.batches.create(**good).id)
    for wrong, param, fragment in (
        ({"input_file_id": "file-1"}, "input_file_id", "there is no file 'file-1'"),
        ({"input_file_id": done.output_file_id}, "input_file_id", "purpose 'batch_output'"),
        ({"endpoint": "/v1/moderations"}, "endpoint", "'/v1/chat/completions'"),
        ({"completion_window": "1h"}, "completion_window", "'24h'"),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            client.batches.create(**{**good, **wrong})
        assert caught.value.param == param and fragment in str(caught.value)
    for call in (client.batches.retrieve, client.batches.cancel):
        with pytest.raises(openai.NotFoundError) as missing:
            call("batch_1")
        assert missing.value.param == "batch_id"
    with pytest.raises(openai.BadRequestError) as ended:
        client.batches.cancel(done.id)
    assert "has ended" in str(ended.value)


def test_batches_are_listed_newest_first() -> None:
    with ScriptedEngine(lambda *_: "Hi") as engine, LocalOpenAI(engine=engine) as client:
        made = [start(client, [GOOD]).id for _ in range(3)]
        assert [batch.id for batch in client.batches.list(limit=2)] == made[::-1], "page by page"
        raw = client.batches.with_raw_response.retrieve(made[0])
        assert isinstance(raw.parse(), Batch) and "localai_shim" not in raw.text


def test_a_script_answers_lines_in_their_order() -> None:
    with scripted("One", rate_limit(), connection_error(), timeout(), "Two") as client:
        done = finished(client, start(client, [line(id, max_tokens=99) for id in "abcde"]).id)
        assert (done.request_counts.completed, done.request_counts.failed) == (2, 3)
        output, failed = read(client, done.output_file_id), read(client, done.error_file_id)
        assert output["a"]["response"]["body"]["choices"][0]["message"]["content"] == "One"
        assert output["e"]["response"]["body"]["choices"][0]["message"]["content"] == "Two"
        assert failed["b"]["response"]["status_code"] == 429
        assert (failed["c"]["response"], failed["c"]["error"]["code"]) == (None, "request_failed")
        assert (failed["d"]["response"], failed["d"]["error"]["code"]) == (None, "request_timeout")
        assert [call.user for call in client.calls] == [f"Say {id}" for id in "abcde"]


def test_the_lines_of_a_program_of_ones_own_are_answered_as_they_come(client: LocalOpenAI) -> None:
    told: list[tuple[int, int]] = []
    lines = ["nothing", line("a"), line("b", temperature=9), line("a")]
    answers = list(answer_lines(client, lines, on_progress=lambda done, failed: told.append((done, failed))))
    found = [json.loads(answer) for answer in answers]
    assert sorted(told) == told and told[-1] == (1, 3)
    assert sum(each["custom_id"] is None for each in found) == 2
    assert {each["custom_id"]: each["response"]["status_code"] for each in found if each["response"]} == {
        "a": 200,
        "b": 400,
    }


def test_lines_are_read_as_there_is_room(client: LocalOpenAI) -> None:
    """Not all at once: whoever reads them from a file need not have it in memory."""
    taken = 0

    def lines() -> Any:
        nonlocal taken
        for i in range(400):
            taken += 1
            yield line(str(i), max_tokens=2)

    answers: Any = answer_lines(client, lines())
    next(answers)
    assert taken < 200
    answers.close()
    assert eventually(lambda: client.stats().running == client.stats().waiting == 0)


@pytest.mark.anyio
async def test_batches_work_on_event_loops(async_client: AsyncLocalOpenAI) -> None:
    import anyio

    file = await async_client.files.create(file=("in.jsonl", line("a").encode()), purpose="batch")
    batch = await async_client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    with anyio.fail_after(60):
        while (batch := await async_client.batches.retrieve(batch.id)).status != "completed":  # noqa: ASYNC110 (as callers do)
            await anyio.sleep(0.01)
    assert batch.output_file_id is not None
    content = await async_client.files.content(batch.output_file_id)
    assert json.loads(content.text)["custom_id"] == "a"
    assert [each.id async for each in async_client.batches.list()] == [batch.id]


def test_progress_is_shown_on_a_terminal_and_nowhere_else(
    client: LocalOpenAI, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = finished(client, start(client, [GOOD], extra_body={"progress": True}).id)
    assert done.status == "completed" and capsys.readouterr().err == ""
    monkeypatch.setattr("localai_shim.models.progress.shows_bars", lambda: True)
    done = finished(client, start(client, [line(str(i)) for i in range(3)], extra_body={"progress": True}).id)
    assert f"{done.id}: 100%" in capsys.readouterr().err

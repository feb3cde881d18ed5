"""Images in results of MCP servers: models that see read them, now and later."""

from __future__ import annotations

import base64
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.endpoints.hosted.hosting import each_way, script
from tests.endpoints.hosted.mcp.servers import ADDS, ANSWER, CALLS, Server, ask
from tests.endpoints.pictures import data_url, png

IMAGE = {"type": "image", "data": base64.b64encode(png()).decode(), "mimeType": "image/png"}
BROKEN = {"type": "image", "data": "AA==", "mimeType": "image/png"}
PLOT = {"content": [{"type": "text", "text": "The plot:"}, IMAGE, BROKEN]}
TEXT = "The plot:\n[image of type image/png]\n[image of type image/png]"


@each_way
def test_a_model_that_sees_reads_images_of_a_result(how: str) -> None:
    with ScriptedEngine(script(ADDS, ANSWER)) as engine:
        response, _ = ask(engine, how, Server(result=PLOT))
        made = response.output[1]
        assert (made.type, made.status, made.output, made.images) == ("mcp_call", "completed", TEXT, [data_url()])
        assert f"{TEXT}<image>" in engine.prompts[1] and len(engine.requests[1].prompt.media) == 1


@pytest.mark.parametrize("way", ["previous_response_id", "input"])
def test_later_turns_read_the_same_images(way: str) -> None:
    asked: Any = {"model": "m", "tools": [CALLS]}
    hooks = {"mcp": {"calc": Server(result=PLOT)}}
    with (
        ScriptedEngine(script(ADDS, ANSWER)) as engine,
        LocalOpenAI(engine=engine, hosted_tools=hooks) as client,
    ):
        first = client.responses.create(input="Plot it.", **asked)
        last = engine.prompts[1]
        if way == "input":
            given: Any = [{"role": "user", "content": "Plot it."}, *first.output, {"role": "user", "content": "So?"}]
            client.responses.create(input=given, **asked)
        else:
            client.responses.create(input="So?", previous_response_id=first.id, **asked)
        assert engine.prompts[2].startswith(last) and len(engine.requests[2].prompt.media) == 1


def test_an_approved_call_has_images_too() -> None:
    asks: Any = {"type": "mcp", "server_label": "calc"}
    hooks = {"mcp": {"calc": Server(result=PLOT)}}
    with (
        ScriptedEngine(script(ADDS, ANSWER)) as engine,
        LocalOpenAI(engine=engine, hosted_tools=hooks) as client,
    ):
        first = client.responses.create(model="m", input="Plot it.", tools=[asks])
        answer: Any = {
            "type": "mcp_approval_response",
            "approval_request_id": first.output[-1].id,
            "approve": True,
        }
        client.responses.create(model="m", input=[answer], tools=[asks], previous_response_id=first.id)
        assert f"{TEXT}<image>" in engine.prompts[-1]


def test_images_that_do_not_fit_the_context_are_left_out() -> None:
    with ScriptedEngine(script(ADDS, ANSWER)) as engine:
        ask(engine, "whole", Server(result=PLOT))
        length = len(engine.requests[1].prompt.tokens)
    context = next(context for context in range(length, 2 * length) if context - context // 16 == length - 1)
    with ScriptedEngine(script(ADDS, ANSWER), context_length=context) as engine:
        response, _ = ask(engine, "streamed", Server(result=PLOT))
        made = response.output[1]
        assert (made.status, made.output, made.unseen_images) == ("completed", TEXT, True)
        assert "<image>" not in engine.prompts[1]


def test_a_result_that_does_not_fit_the_context_fails_its_call_only() -> None:
    with ScriptedEngine(script(ADDS, ANSWER), context_length=1_000) as engine:
        response, _ = ask(engine, "streamed", Server(result="word " * 2_000))
        made = response.output[1]
        assert (made.type, made.status, made.output) == ("mcp_call", "failed", None)
        assert "too long for the context" in engine.prompts[1] and response.output_text == ANSWER


def test_images_that_are_sent_back_must_be_images() -> None:
    called = {
        "type": "mcp_call",
        "id": "mcp_1",
        "server_label": "calc",
        "name": "add",
        "arguments": "{}",
        "output": "x",
    }

    def item(url: str) -> Any:
        return {**called, "images": [url]}

    with ScriptedEngine(["Hi."]) as engine, LocalOpenAI(engine=engine) as client:
        with pytest.raises(openai.BadRequestError, match=r"input\[0\].images\[0\]"):
            client.responses.create(model="m", input=[item("data:image/png;base64,AA==")])
        client.responses.create(model="m", input=[item(data_url())])
        assert "x<image>" in engine.prompts[0]

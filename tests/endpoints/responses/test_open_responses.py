"""The cases of Open Responses' compliance suite, as requests over HTTP.

They send the same kinds of request bodies, and demand the same of the answers: a status, items of these types, and all
fields of a response, of whole ones and in the last event of a stream.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from localai_shim import http_client
from localai_shim.testing import ScriptedEngine
from tests.documents.files import pdf
from tests.endpoints.functions import call
from tests.endpoints.hosted.hosting import PAGE
from tests.endpoints.pictures import data_url
from tests.endpoints.responses.legal import check_response, check_stream
from tests.open_responses import check_open_response

MODEL = {"model": "m"}
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell how the weather of a place is.",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "A city and its state."}},
        "required": ["location"],
    },
}
CALLED = ["response.function_call_arguments.delta", "response.function_call_arguments.done"]
_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def decide(request: Any, prompt: str, before: int) -> str:
    """A model that calls the one tool that it has, and answers behind a result."""
    names = ("get_weather", "web_search", "file_search")
    asked = next((name for name in names if f'"name": "{name}"' in prompt), None)
    if asked is None or "<tool_response>" in prompt:
        return "Hello there."
    return call(asked, {"location": "Oslo"} if asked == "get_weather" else {"query": "rain"})


def search(query: str, external_web_access: bool = True, **options: Any) -> Any:
    assert external_web_access is False
    return [PAGE]


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(decide) as made:
        yield made


class Service:
    """An endpoint that answers JSON and server-sent events."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.http = http_client(engine=engine, hosted_tools={"web_search": search})

    def post(self, **body: Any) -> dict[str, Any]:
        """The JSON of a response."""
        answer = self.http.post("https://api.example/v1/responses", json={**MODEL, **body, "stream": False})
        assert answer.status_code == 200, answer.text
        return checked(answer.json())

    def stream(self, **body: Any) -> list[dict[str, Any]]:
        """The JSON of a stream's events."""
        answer = self.http.post("https://api.example/v1/responses", json={**MODEL, **body, "stream": True})
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        found = []
        for block in answer.text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines())
            if fields.get("data", "[DONE]") != "[DONE]":
                found.append(json.loads(fields["data"]))
                assert fields.get("event", found[-1]["type"]) == found[-1]["type"]
        check_stream([_EVENT.validate_python(event) for event in found])
        checked(found[-1]["response"])
        return found


def checked(body: dict[str, Any]) -> dict[str, Any]:
    """A response that has all fields of the specification, and of OpenAI's."""
    check_open_response(body)
    check_response(Response.model_validate(body))
    return body


@pytest.fixture
def service(engine: ScriptedEngine) -> Iterator[Service]:
    made = Service(engine)
    with made.http:
        yield made


def message(text: str, role: str = "user") -> Any:
    return {"type": "message", "role": role, "content": text}


def parts(*content: Any) -> Any:
    return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Describe."}, *content]}]


FILE = f"data:application/pdf;base64,{base64.b64encode(pdf('Title: a small file')).decode()}"
WHOLE: dict[str, tuple[dict[str, Any], str]] = {
    "basic-response": ({"input": [message("Greet me in three words.")]}, "message"),
    "system-prompt": ({"input": [message("Talk like a sailor.", "system"), message("Greet me.")]}, "message"),
    "multi-turn": (
        {"input": [message("I am Kim."), message("Hello Kim!", "assistant"), message("Who am I?")]},
        "message",
    ),
    "tool-calling": ({"input": [message("Is it warm in Oslo?")], "tools": [WEATHER]}, "function_call"),
    "image-input": ({"input": parts({"type": "input_image", "image_url": data_url()})}, "message"),
    "file-input": ({"input": parts({"type": "input_file", "filename": "a.pdf", "file_data": FILE})}, "message"),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_whole_response_is_completed_and_has_an_item(case: str, service: Service) -> None:
    body, kind = WHOLE[case]
    response = service.post(**body)
    assert response["status"] == "completed" and kind in [item["type"] for item in response["output"]]


def test_a_file_reaches_the_model(service: Service, engine: ScriptedEngine) -> None:
    service.post(**WHOLE["file-input"][0])
    assert "Title: a small file" in engine.prompts[0]


def test_a_streaming_response_has_events_of_the_specification(service: Service) -> None:
    events = service.stream(input=[message("Count to five.")])
    assert events[-1]["type"] == "response.completed" and events[-1]["response"]["status"] == "completed"


def test_a_streamed_tool_call_has_its_events(service: Service) -> None:
    events = service.stream(input=[message("Is it warm in Oslo?")], tools=[WEATHER])
    assert set(CALLED) <= {event["type"] for event in events}
    for what in ("added", "done"):
        items = [event["item"]["type"] for event in events if event["type"] == f"response.output_item.{what}"]
        assert items == ["function_call"]


def test_a_function_call_and_its_output_are_a_round_trip(service: Service) -> None:
    choice = {"type": "function", "name": "get_weather"}
    first = service.post(input="Ask the tool how warm Oslo is.", tools=[WEATHER], tool_choice=choice)
    [called] = [item for item in first["output"] if item["type"] == "function_call"]
    output = {"type": "function_call_output", "call_id": called["call_id"], "output": "18 degrees"}
    second = service.post(previous_response_id=first["id"], input=[output])
    assert second["status"] == "completed" and second["output"]


def test_a_previous_response_is_remembered(service: Service, engine: ScriptedEngine) -> None:
    first = service.post(input="The word is mango. Say OK.")
    second = service.post(previous_response_id=first["id"], input="Which word was it?")
    assert second["status"] == "completed" and second["output"] and "mango" in engine.prompts[-1]


def test_an_offline_web_search_is_made(service: Service) -> None:
    response = service.post(
        input="Find a page about rain.",
        tools=[{"type": "web_search", "external_web_access": False}],
        tool_choice={"type": "web_search"},
        include=["web_search_call.action.sources"],
    )
    assert [item["type"] for item in response["output"]] == ["web_search_call", "message"]
    assert response["output"][0]["action"]["sources"] == [{"type": "url", "url": PAGE["url"]}]


def test_a_vector_store_is_searched(service: Service) -> None:
    stock = openai.OpenAI(api_key="unused", base_url="https://api.example/v1", http_client=service.http)
    store = stock.vector_stores.create()
    stock.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=("rain.txt", b"It rains in Oslo."))
    response = service.post(
        input="Search for rain, and sum it up.",
        tools=[{"type": "file_search", "vector_store_ids": [store.id]}],
        tool_choice={"type": "file_search"},
        include=["file_search_call.results"],
    )
    [found] = [item for item in response["output"] if item["type"] == "file_search_call"]
    assert [each["filename"] for each in found["results"]] == ["rain.txt"]

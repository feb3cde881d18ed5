"""Raw bodies, `to_dict()` and server-sent events have every field that OpenAI's description requires, nulls included.

`conftest.py` holds whatever any test makes against the same table; here is what that check catches, and what it cannot
see: the objects themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import Reply, ScriptedEngine
from tests.bodies import FIELDS, check_body, violations
from tests.conftest import revalidate
from tests.open_responses import check_open_response

ASK: dict[str, Any] = {"model": "m", "input": "Hi"}
NULLS = ("error", "incomplete_details", "usage", "completed_at")
"""Of a response that has begun."""


@pytest.fixture
def client() -> Iterator[LocalOpenAI]:
    with ScriptedEngine(lambda request, prompt, before: "Hello there") as engine, LocalOpenAI(engine=engine) as made:
        yield made


def events(raw: Any) -> list[dict[str, Any]]:
    """The JSON of server-sent events."""
    lines = raw.http_response.read().decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def test_a_response_has_its_nulls_as_json_and_as_a_dictionary(client: LocalOpenAI) -> None:
    raw = client.responses.with_raw_response.create(**ASK)
    for made in (raw.http_response.json(), raw.parse().to_dict(), raw.parse().to_dict(mode="json")):
        assert made["error"] is made["incomplete_details"] is made["instructions"] is None
        assert set(FIELDS["response"]["required"]) <= set(made)


def test_a_response_that_has_only_begun_has_them_too(client: LocalOpenAI) -> None:
    streamed = [event.to_dict() for event in client.responses.create(**ASK, stream=True)]
    sent = events(client.responses.with_raw_response.create(**ASK, stream=True))
    for created in (streamed[0]["response"], sent[0]["response"]):
        assert isinstance(created, dict)
        assert {name: created[name] for name in NULLS} == dict.fromkeys(NULLS)


def test_the_times_of_a_response_are_integers_in_its_json_and_floats_in_the_sdk_s_objects(client: LocalOpenAI) -> None:
    raw = client.responses.with_raw_response.create(**ASK)
    kept = client.responses.with_raw_response.retrieve(raw.parse().id)
    bodies = [raw.http_response.json(), kept.http_response.json()]
    objects = [raw.parse(), kept.parse(), client.responses.create(**ASK)]
    for event in client.responses.create(**ASK, stream=True):
        if event.type in ("response.created", "response.completed"):
            objects.append(event.response)
    for event in events(client.responses.with_raw_response.create(**ASK, stream=True)):
        bodies += [event["response"]] if "response" in event else []
    check_times(bodies, objects, completed=(3, 4))


def check_times(bodies: list[dict[str, Any]], objects: list[Any], completed: tuple[int, int]) -> None:
    """Bodies have integers, and what the SDK makes of such a body has the same types as our objects."""
    assert all(type(body["created_at"]) is int for body in bodies)
    ended = [body for body in bodies if body["status"] == "completed"]
    assert all(type(body["completed_at"]) is int for body in ended)
    assert (len(ended), len([made for made in objects if made.status == "completed"])) == completed
    stock = type(objects[0]).construct(**ended[0])
    assert type(stock.created_at) is type(stock.completed_at) is float
    assert all(type(made.created_at) is float for made in objects)
    assert all(type(made.completed_at) is float for made in objects if made.status == "completed")


def test_a_response_in_the_background_has_them_when_it_is_followed_after_its_end(client: LocalOpenAI) -> None:
    made = client.responses.create(**ASK, background=True)
    first = [event.to_dict() for event in client.responses.retrieve(made.id, stream=True)]
    followed = list(client.responses.retrieve(made.id, stream=True))  # from the store
    assert [event.to_dict() for event in followed] == first
    raw = client.responses.with_raw_response.retrieve(made.id, stream=True)
    bodies = [event["response"] for event in events(raw) if "response" in event]
    objects = [made, *(event.response for event in followed if hasattr(event, "response"))]
    check_times(bodies, objects, completed=(1, 1))


def test_every_response_has_what_open_responses_requires(client: LocalOpenAI) -> None:
    raw = client.responses.with_raw_response
    whole = raw.create(**ASK)
    id = client.responses.create(**ASK, background=True).id
    assert client.responses.retrieve(id, stream=True).response.read() is not None
    bodies = [whole.http_response.json(), raw.retrieve(whole.parse().id).http_response.json()]
    bodies += [raw.retrieve(id).http_response.json(), raw.create(**ASK, background=True).http_response.json()]
    bodies += [event["response"] for event in events(raw.create(**ASK, stream=True)) if "response" in event]
    bodies += [event["response"] for event in events(raw.retrieve(id, stream=True)) if "response" in event]
    assert len(bodies) == 4 + 3 + 4, "whole ones, events of a stream, events of one in the background"
    for body in bodies:
        check_open_response(body)
        assert (body["presence_penalty"], body["frequency_penalty"]) == (0, 0)


def test_penalties_are_repeated_in_every_form_of_a_response(client: LocalOpenAI) -> None:
    asked: dict[str, Any] = {**ASK, "extra_body": {"presence_penalty": 0.5, "frequency_penalty": -1}}
    made: Any = client.responses.create(**asked)
    revalidate(made)
    assert (made.presence_penalty, made.frequency_penalty) == (0.5, -1)
    dumped = made.model_dump()
    assert (dumped["presence_penalty"], dumped["frequency_penalty"]) == (0.5, -1)
    sent = client.responses.with_raw_response.create(**asked).http_response.json()
    kept = client.responses.with_raw_response.retrieve(made.id).http_response.json()
    for body in (sent, kept, made.to_dict(), json.loads(made.to_json())):
        assert (body["presence_penalty"], body["frequency_penalty"]) == (0.5, -1)


def test_a_failed_response_has_what_open_responses_requires() -> None:
    failing = ScriptedEngine([Reply("Hello there", error=RuntimeError("bad luck"), fail_after=2)])
    with failing, LocalOpenAI(engine=failing) as client:
        said = events(client.responses.with_raw_response.create(**ASK, stream=True))
    assert said[-1]["type"] == "response.failed"
    check_open_response(said[-1]["response"])


def test_functions_and_formats_are_repeated_with_what_open_responses_requires(client: LocalOpenAI) -> None:
    tool: Any = {"type": "function", "name": "look"}
    shape: Any = {"type": "json_schema", "name": "shape", "schema": {"type": "object", "properties": {}}}
    body = client.responses.with_raw_response.create(**ASK, tools=[tool]).http_response.json()
    assert body["tools"][0]["description"] is body["tools"][0]["parameters"] is None
    assert isinstance(body["tools"][0]["strict"], bool)
    engine = ScriptedEngine(["{}"])
    with engine, LocalOpenAI(engine=engine) as other:
        body = other.responses.with_raw_response.create(**ASK, text={"format": shape}).http_response.json()
    assert body["text"]["format"] == {**shape, "description": None, "strict": False}


def test_a_failed_response_has_its_error_and_the_event_has_a_null_param() -> None:
    failing = ScriptedEngine([Reply("Hello there", error=RuntimeError("bad luck"), fail_after=2)])
    with failing, LocalOpenAI(engine=failing) as client:
        said = {event.type: event.to_dict() for event in client.responses.create(**ASK, stream=True)}
    failed: Any = said["response.failed"]["response"]
    assert failed["error"]["code"] == "server_error" and failed["incomplete_details"] is None
    assert said["error"]["param"] is None


LEGAL: dict[str, Any] = {
    "id": "cmpl-1",
    "object": "chat.completion",
    "created": 1000,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "logprobs": None,
            "message": {"role": "assistant", "content": None, "refusal": None},
        }
    ],
}


def test_the_check_accepts_what_is_described_and_fields_beyond() -> None:
    check_body(LEGAL)
    check_body({**LEGAL, "service_tier": None, "beyond": None})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"model": None}, r"chat\.completion with null as \['model'\]"),
        ({"created": 1000.0}, "created 1000.0, which is no integer"),
        ({"usage": {"prompt_tokens": 1}}, r"chat\.completion usage without \['completion_tokens', 'total_tokens'\]"),
        ({"usage": None}, r"with null as \['usage'\]"),
        ({"choices": [{"index": 0, "finish_reason": "stop", "message": {}}]}, r"choices without \['logprobs'\]"),
        (
            {"choices": [{**LEGAL["choices"][0], "message": {"role": "assistant", "content": ""}}]},
            r"choices message without \['refusal'\]",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_check_finds(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_body({**LEGAL, **change})


def test_the_check_finds_what_an_event_s_response_lacks() -> None:
    with pytest.raises(AssertionError, match=r"response without \['created_at', 'error'"):
        check_body({"type": "response.created", "sequence_number": 0, "response": {"object": "response", "id": "r"}})


@pytest.mark.parametrize("stream", [False, True])
def test_every_body_that_a_test_makes_goes_through_the_check(
    client: LocalOpenAI, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FIELDS["response"], "required", ["a field that nobody makes"])
    with pytest.raises((AssertionError, openai.InternalServerError), match="a field that nobody makes"):
        list(client.responses.create(**ASK, stream=stream))
    assert violations and "a field that nobody makes" in violations[0]
    violations.clear()

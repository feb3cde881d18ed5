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


def test_the_times_of_a_response_are_integers_wherever_it_comes_from(client: LocalOpenAI) -> None:
    raw = client.responses.with_raw_response.create(**ASK)
    made = raw.parse()
    kept = client.responses.with_raw_response.retrieve(made.id)
    bodies = [raw.http_response.json(), kept.http_response.json(), made.to_dict(), kept.parse().to_dict()]
    for event in client.responses.create(**ASK, stream=True):
        if event.type in ("response.created", "response.completed"):
            bodies.append(event.response.to_dict())
    for event in events(client.responses.with_raw_response.create(**ASK, stream=True)):
        bodies += [event["response"]] if "response" in event else []
    assert all(type(body["created_at"]) is int for body in bodies)
    ended = [body for body in bodies if body["status"] == "completed"]
    assert len(ended) == 6 and all(type(body["completed_at"]) is int for body in ended)


def test_a_response_in_the_background_has_them_when_it_is_followed_after_its_end(client: LocalOpenAI) -> None:
    made = client.responses.create(**ASK, background=True)
    assert type(made.to_dict()["created_at"]) is int
    first = [event.to_dict() for event in client.responses.retrieve(made.id, stream=True)]
    again = [event.to_dict() for event in client.responses.retrieve(made.id, stream=True)]  # from the store
    assert again == first and all(
        type(event["response"]["created_at"]) is int for event in again if "response" in event
    )
    raw = client.responses.with_raw_response.retrieve(made.id, stream=True)
    assert type(events(raw)[0]["response"]["created_at"]) is int


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

"""Answers of every family, as its template writes them, are read as what they say, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.formats.markup import REASONING
from localai_shim.models.chat_templates import find_formats
from localai_shim.testing import ScriptedEngine
from tests.templates.families import TEMPLATES
from tests.templates.uses import collect, function
from tests.templates.writing import ONE_CALL, Call, scripted_tokenizer, written

FIND = function(
    "find_room",
    "Finds a room.",
    {
        "name": {"type": "string"},
        "seats": {"type": "integer"},
        "quiet": {"type": "boolean"},
        "near": {"type": "array", "items": {"type": "string"}},
    },
    ["name"],
)
PING = function("ping", "Answers.", {"count": {"type": "number"}}, ["count"])
CALLS: list[Call] = [
    ("find_room", {"name": "Blue room, 2nd floor", "seats": 12, "quiet": True, "near": ["lift", "stairs"]}),
    ("ping", {"count": 2.5}),
]
FLAT: list[Call] = [("find_room", {"name": "Blue room, 2nd floor", "seats": 12}), CALLS[1]]
AS_PYTHON = ("functiongemma", "minicpm5")
"""Their templates write what is nested, and booleans, as Python does, which no model is to learn."""
ANSWER = "The room is free: {it} has [12] seats."


def ask(name: str, text: str, stream: bool) -> tuple[Any, ...]:
    """What is made of an answer; a thought that the prompt has opened is closed before it."""
    tokenizer = scripted_tokenizer(name)
    markup = find_formats(tokenizer)  # type: ignore[arg-type]  # it has what is read of a real one

    def reply(_request: Any, prompt: str, _index: int) -> str:
        return f"Hm.{markup.think_end}{text}" if markup.state_after(prompt) == REASONING else text

    messages: Any = [{"role": "user", "content": "Is there a room?"}]
    with ScriptedEngine(reply, tokenizer=tokenizer) as engine, LocalOpenAI(engine=engine) as client:
        made: Any = client.chat.completions.create(model="m", messages=messages, tools=[FIND, PING], stream=stream)
        return collect(made if stream else made.choices[0])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_calls(name: str, stream: bool) -> None:
    expected = (FLAT if name in AS_PYTHON else CALLS)[: 1 if name in ONE_CALL else None]
    content, _, calls, finish = ask(name, written(name, expected), stream)
    assert ([(function, json.loads(arguments)) for function, arguments in calls]) == expected
    assert (content, finish) == ("", "tool_calls")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_an_answer_without_calls(name: str, stream: bool) -> None:
    content, _, calls, finish = ask(name, written(name, content=ANSWER), stream)
    assert (content, calls, finish) == (ANSWER, [], "stop")

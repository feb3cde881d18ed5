"""Texts of requests, as they are compared and recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import rerank
from localai_shim.testing import play_cassette, scripted, tool_call
from localai_shim.testing.cassettes.cassette import Cassette
from localai_shim.testing.cassettes.engine import CassetteEngine
from localai_shim.testing.cassettes.tape import read_cassette

DATES: dict[str, str] = {r"\d{4}-\d\d-\d\d": "<date>"}
TOOL: Any = {
    "type": "function",
    "function": {"name": "f", "description": "Today is {}.", "parameters": {"type": "object", "properties": {}}},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tape.jsonl"


def dated(value: Any, date: str) -> Any:
    """A request with a date in the place of each {}."""
    return json.loads(json.dumps(value).replace("{}.", f"{date}."))


CALLS: dict[str, Callable[[openai.OpenAI, str], Any]] = {
    "messages": lambda client, date: client.chat.completions.create(
        model="m",
        messages=[{"role": "system", "content": date}, {"role": "user", "content": [{"type": "text", "text": date}]}],
    ),
    "tools": lambda client, date: client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "Hi"}], tools=[dated(TOOL, date)]
    ),
    "input": lambda client, date: client.responses.create(model="m", input=f"On {date}?", instructions=date),
    "prompt": lambda client, date: client.completions.create(model="m", prompt=[f"On {date}"]),
    "texts": lambda client, date: client.embeddings.create(model="m", input=[date, "x"]),
    "documents": lambda client, date: rerank(client, date, [f"{date}, noon", "x"]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_texts_are_compared_and_recorded_as_they_are_normalized_and_asked_as_they_are(
    call: Callable[[openai.OpenAI, str], Any], path: Path
) -> None:
    with scripted() as source, play_cassette(path, record_mode="once", source=source, normalize=DATES) as client:
        call(client, "2026-11-23")
        assert "2026-11-23" in json.dumps(source.last_call.body)
    assert "2026" not in json.dumps(read_cassette(path)[0].request) and "<date>" in path.read_text()
    with play_cassette(path, normalize=DATES) as client:
        call(client, "2031-01-01")
    with (
        play_cassette(path, normalize=DATES) as client,
        pytest.raises(openai.BadRequestError, match="2026/11/23"),
    ):
        call(client, "2026/11/23")


def test_a_file_that_was_recorded_before_need_not_be_recorded_again(path: Path) -> None:
    with scripted("Hi") as source, play_cassette(path, record_mode="once", source=source) as client:
        CALLS["input"](client, "2026-11-23")
    with play_cassette(path, normalize=DATES) as client:
        CALLS["input"](client, "2031-01-01")


def test_a_tool_s_result_is_normalized_and_the_ids_of_calls_still_belong_together(path: Path) -> None:
    def ask(client: openai.OpenAI, folder: str) -> Any:
        messages: list[Any] = [{"role": "user", "content": "List."}]
        made = client.chat.completions.create(model="m", messages=messages, tools=[dated(TOOL, "x")])
        messages.append(made.choices[0].message)
        for each in made.choices[0].message.tool_calls or ():
            messages.append({"role": "tool", "tool_call_id": each.id, "content": f"{folder}/a.txt"})
        return client.chat.completions.create(model="m", messages=messages).choices[0].message.content

    paths = {r"/tmp/\w+": "<folder>"}
    answer = [tool_call("f"), tool_call("f")]
    with scripted(answer, "Done.") as source:  # noqa: SIM117
        with play_cassette(path, record_mode="once", source=source, normalize=paths) as client:
            ask(client, "/tmp/one")
    with play_cassette(path, normalize=paths) as client:
        assert ask(client, "/tmp/two") == "Done."


def test_the_model_s_name_stays(path: Path) -> None:
    with scripted("Hi") as source, play_cassette(path, record_mode="once", source=source, normalize=DATES) as client:
        client.responses.create(model="gpt-4o-2024-08-06", input="Hi")
    with (
        play_cassette(path, normalize=DATES) as client,
        pytest.raises(openai.BadRequestError, match="gpt-4o-2024-11-20"),
    ):
        client.responses.create(model="gpt-4o-2024-11-20", input="Hi")


def test_rules_are_applied_one_after_the_other(path: Path) -> None:
    rules: Any = [DATES, None, lambda text: text.replace("<date>", "<when>")]
    with scripted("Hi") as source:
        cassette = Cassette(path, "once", source, rules)
        with CassetteEngine(cassette) as engine:
            CALLS["input"](openai_client(engine), "2026-11-23")
        cassette.save()
    assert read_cassette(path)[0].request["input"] == "On <when>?"


def openai_client(engine: CassetteEngine) -> openai.OpenAI:
    from localai_shim import LocalOpenAI

    return LocalOpenAI(engine=engine)


@pytest.mark.parametrize(
    ("rule", "fragment"), [(lambda text: text[99], "IndexError"), (lambda text: None, "returned None")]
)
def test_a_function_that_fails_fails_the_request_and_the_test(path: Path, rule: Any, fragment: str) -> None:
    cassette = Cassette(path, normalize=[rule])
    with CassetteEngine(cassette) as engine, pytest.raises(openai.BadRequestError, match="`cassette_normalize` failed"):
        openai_client(engine).responses.create(model="m", input="Hi")
    assert len(cassette.misses) == 1 and fragment in cassette.misses[0]


def test_what_is_no_rule_is_refused_at_once(path: Path) -> None:
    with pytest.raises(TypeError, match="a function of a text or a dict of patterns, not 'x'"):
        Cassette(path, normalize=["x"])  # type: ignore[list-item]
    with pytest.raises(re.error):
        Cassette(path, normalize=[{"(": ""}])

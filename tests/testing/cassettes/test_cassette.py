"""What a client answered is recorded in a readable file, and comes again without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import (
    Reply,
    ScriptedEngine,
    ScriptedOpenAI,
    content_filter,
    rate_limit,
    refusal,
    scripted,
    tool_call,
)
from localai_shim.testing.cassettes.cassette import Cassette
from localai_shim.testing.cassettes.engine import CassetteEngine, play_cassette
from localai_shim.testing.cassettes.tape import CassetteError, read_cassette
from tests import inside
from tests.conftest import MESSAGES, without_generated

ASK: dict[str, Any] = {"model": "gpt-4o", "messages": MESSAGES}
TOOLS: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
FLAT: Any = [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "ü\\n<think>"}}\n</tool_call>'
LOGPROBS: Any = ["message.output_text.logprobs"]
CUSTOM: Any = {"type": "custom", "custom": {"name": "shell"}}
SAYS = {
    "Schema": '{"name": "Ada"}',
    "Custom": '<tool_call>\n{"name": "shell", "arguments": {"input": "ls \\"x\\"\\nü"}}\n</tool_call>',
    "Say tags": "a <think> b </tool_call> c",
    "Think": "<think>\nHm, hm.\n</think>\n\nYes.",
    "Call": f"Well.{CALL}\n{CALL}",
}


def decide(request: Any, prompt: str, before: int) -> Any:
    text = next((text for words, text in SAYS.items() if words in prompt), "Hello there, friend")
    if "Broken" in prompt:
        return [b"a", b"\xc3", b"\xbc", b"!"]  # a character of two tokens
    return [text.encode()] if "tags" in prompt else Reply(text)


@pytest.fixture
def source() -> Iterator[LocalOpenAI]:
    """Answers while something is recorded."""
    with ScriptedEngine(decide, name="some-model") as engine, LocalOpenAI(engine=engine) as client:
        yield client


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "tape.jsonl"


def asked(source: LocalOpenAI) -> int:
    engine: Any = inside.engine(source)
    return len(engine.requests)


def same(made: Any) -> Any:
    """An answer without ids and times."""
    return without_generated(made, "previous_response_id")


def message(text: str) -> Any:
    return {**ASK, "messages": [{"role": "user", "content": text}]}


class Person(BaseModel):
    name: str


def finished(client: Any, job: Any) -> Any:
    *_, last = client.responses.retrieve(job.id, stream=True)
    made = last.response  # of the run, or as it was stored: which of them depends on who is faster
    return [made.output_text, made.status, made.model, made.usage.to_dict(), [item.type for item in made.output]]


CALLS: dict[str, Any] = {
    "chat": lambda c: c.chat.completions.create(**ASK, max_tokens=2),
    "choices": lambda c: c.chat.completions.create(**ASK, n=2),
    "reasoning": lambda c: c.chat.completions.create(**message("Think")),
    "markers": lambda c: c.chat.completions.create(**message("Say tags")),
    "calls": lambda c: c.chat.completions.create(**message("Call"), tools=TOOLS),
    "parsed": lambda c: (
        c.chat.completions.parse(**message("Schema"), response_format=Person).choices[0].message.parsed.name
    ),
    "forced call": lambda c: c.chat.completions.create(**message("Call"), tools=TOOLS, tool_choice="required"),
    "custom call": lambda c: c.chat.completions.create(**message("Custom"), tools=[CUSTOM]),
    "background": lambda c: finished(c, c.responses.create(model="m", input="Think", background=True)),
    "completion": lambda c: c.completions.create(model="m", prompt="Hi"),
    "logprobs": lambda c: c.chat.completions.create(**ASK, logprobs=True, top_logprobs=3),
    "logprobs, streamed": lambda c: list(c.chat.completions.create(**message("Think"), logprobs=True, stream=True)),
    "logprobs of choices": lambda c: c.chat.completions.create(**message("Broken"), logprobs=True, n=2),
    "logprobs, calls": lambda c: c.chat.completions.create(**message("Call"), tools=TOOLS, logprobs=True),
    "completion, logprobs": lambda c: c.completions.create(model="m", prompt="Hi", logprobs=2),
    "response, logprobs": lambda c: c.responses.create(model="m", input="Hi", include=LOGPROBS, top_logprobs=2),
    "response": lambda c: c.responses.create(model="m", input="Hi"),
    "response, reasoning": lambda c: c.responses.create(model="m", input="Think"),
    "response, calls": lambda c: c.responses.create(model="m", input="Call", tools=FLAT),
    "events": lambda c: list(c.responses.create(model="m", input="Think", stream=True)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_is_played_is_what_was_recorded_and_what_the_source_says(
    call: Any, source: LocalOpenAI, path: Path
) -> None:
    expected = same(call(source))
    with play_cassette(path, record_mode="once", source=source) as client:
        assert same(call(client)) == expected
    before = asked(source)
    with play_cassette(path) as client:
        assert same(call(client)) == expected
    assert asked(source) == before


def test_one_recording_serves_streams_and_whole_answers(source: LocalOpenAI, path: Path) -> None:
    with play_cassette(path, record_mode="once", source=source) as client:
        whole = client.chat.completions.create(**message("Call"), tools=TOOLS)
    with play_cassette(path) as client, client.chat.completions.stream(**message("Call"), tools=TOOLS) as stream:
        assert same(stream.get_final_completion().choices[0].message.content) == whole.choices[0].message.content


def test_chunks_are_the_deltas_of_the_recording(source: LocalOpenAI, path: Path) -> None:
    def pieces(client: LocalOpenAI) -> list[Any]:
        return [c.choices[0].delta.content for c in client.chat.completions.create(**ASK, stream=True)]

    with play_cassette(path, record_mode="once", source=source) as client:
        assert pieces(client) == pieces(source)


@pytest.mark.anyio
async def test_async_clients_record_and_play(source: LocalOpenAI, path: Path) -> None:
    for mode in ("once", "none"):
        cassette = Cassette(path, mode, source)  # type: ignore[arg-type]
        with CassetteEngine(cassette) as engine:
            made = await AsyncLocalOpenAI(engine=engine).chat.completions.create(**ASK)
            assert made.choices[0].message.content == "Hello there, friend"
        cassette.save()


def test_the_file_is_json_lines_without_keys_and_headers(source: LocalOpenAI, path: Path) -> None:
    with play_cassette(path, record_mode="once", source=source) as client:
        other = client.with_options(api_key="sk-secret", default_headers={"X-Secret": "1"})
        other.chat.completions.create(**ASK, extra_headers={"Authorization": "Bearer sk-secret"})
    first, *deltas, last = map(json.loads, path.read_text().splitlines())
    assert first == {"request": ASK, "api": "chat.completions"}
    assert [delta.get("content") for delta in deltas] == ["Hello", " there,", " friend", None]
    assert deltas[-1]["end"] == "stop" and all(0 <= delta["at"] < 60 for delta in deltas)
    assert (last["model"], last["fingerprint"]) == ("some-model", "fp_scripted")
    assert last["usage"]["completion_tokens"] == 4
    assert "secret" not in path.read_text().lower()


def test_a_call_of_a_tool_in_a_namespace_keeps_it_and_foreign_token_ids_are_accepted(path: Path) -> None:
    tools: Any = [
        {"type": "namespace", "name": "crm", "description": "d", "tools": [{"type": "custom", "name": "run"}]}
    ]
    ask: Any = {"model": "m", "input": "Hi", "tools": tools}
    biased: Any = {**ASK, "logit_bias": {"100257": -100}}
    with (
        ScriptedOpenAI().script(tool_call("crm.run", "ls"), "Hello") as source,
        play_cassette(path, record_mode="once", source=source) as client,
    ):
        client.responses.create(**ask)
        client.chat.completions.create(**biased)
    with play_cassette(path) as client:
        (item,) = client.responses.create(**ask).output
        assert item.type == "custom_tool_call" and (item.namespace, item.name, item.input) == ("crm", "run", "ls")
        assert client.chat.completions.create(**biased).choices[0].message.content == "Hello"


def test_any_client_of_the_sdk_may_be_asked(source: LocalOpenAI, path: Path) -> None:
    from localai_shim import http_client

    with http_client(engine=inside.engine(source)) as http:
        stock = openai.OpenAI(api_key="sk-secret", http_client=http)
        with play_cassette(path, record_mode="once", source=stock) as client:
            assert client.responses.create(model="m", input="Hi").output_text == "Hello there, friend"
    assert "secret" not in path.read_text()
    other: Any = AsyncLocalOpenAI(engine=inside.engine(source))
    with (
        play_cassette(path, record_mode="all", source=other) as client,
        pytest.raises(openai.BadRequestError, match="must be a sync client"),
    ):
        client.responses.create(model="m", input="Hi")


def test_what_an_answer_continues_is_part_of_the_request(source: LocalOpenAI, path: Path) -> None:
    def story(client: LocalOpenAI, name: str) -> str:
        first = client.responses.create(model="m", input=f"I am {name}.")
        second = client.responses.create(model="m", input="Who?", previous_response_id=first.id)
        conversation = client.conversations.create()
        third = client.responses.create(model="m", input="Think", conversation=conversation.id)
        return "|".join([first.output_text, second.output_text, third.output_text])

    with play_cassette(path, record_mode="once", source=source) as client:
        told = story(client, "Ada")
    assert "_id" not in path.read_text()
    with play_cassette(path) as client:
        assert story(client, "Ada") == told
    with play_cassette(path) as client, pytest.raises(openai.BadRequestError, match=r"'I am Ada\.', now 'I am Bob\.'"):
        story(client, "Bob")


def test_threads_ask_at_once(source: LocalOpenAI, path: Path) -> None:
    def ask(client: LocalOpenAI) -> list[Any]:
        texts = ["Think", "Call", "Hi"] * 4
        with ThreadPoolExecutor(6) as pool:
            made = pool.map(lambda text: client.responses.create(model="m", input=text).output_text, texts)
            return list(made)

    with play_cassette(path, record_mode="once", source=source) as client:
        recorded = ask(client)
    assert len(read_cassette(path)) == 12
    with play_cassette(path) as client:
        assert ask(client) == recorded


# -- what is not there ----------------------------------------------------------------------------------------------


def test_a_request_that_is_not_there_is_an_error_that_shows_the_nearest(source: LocalOpenAI, path: Path) -> None:
    with play_cassette(path, record_mode="once", source=source) as client:
        client.chat.completions.create(**ASK)
        client.chat.completions.create(**message("Something quite different"), temperature=0, seed=3)
    before = asked(source)
    for mode in ("none", "once"):
        cassette = Cassette(path, mode, source)  # type: ignore[arg-type]
        with CassetteEngine(cassette) as engine, pytest.raises(openai.BadRequestError) as caught:
            LocalOpenAI(engine=engine).chat.completions.create(**ASK, temperature=0.5)
        assert caught.value.code == "not_in_cassette"
        assert "request 1 of 2, differs in:\n  temperature: is new: 0.5" in caught.value.body["message"]  # type: ignore[index]
        assert len(cassette.misses) == 1
    assert asked(source) == before
    with play_cassette(path.with_name("none.jsonl")) as client, pytest.raises(openai.BadRequestError, match="no such"):
        client.chat.completions.create(**ASK)


def test_answers_are_played_in_order_and_once_each(source: LocalOpenAI, path: Path) -> None:
    with play_cassette(path, record_mode="once", source=source) as client:
        for _ in range(2):
            client.chat.completions.create(**ASK)
    lines = path.read_text().replace('"Hello"', '"Goodbye"', 1)
    path.write_text(lines)
    with play_cassette(path) as client:
        said = [client.chat.completions.create(**ASK).choices[0].message.content for _ in range(2)]
        assert said == ["Goodbye there, friend", "Hello there, friend"]
        with pytest.raises(openai.BadRequestError, match="recorded 2 times, and all of these were played"):
            client.chat.completions.create(**ASK)


@pytest.mark.parametrize(
    ("mode", "asks", "kept"),
    [("new_episodes", 1, 3), ("all", 2, 3), ("rewrite", 2, 2)],
)
def test_modes_that_record_into_a_file_that_exists(
    source: LocalOpenAI, path: Path, mode: Any, asks: int, kept: int
) -> None:
    with play_cassette(path, record_mode="once", source=source) as client:
        client.chat.completions.create(**ASK)
        client.chat.completions.create(**message("Think"))
    before = asked(source)
    with play_cassette(path, record_mode=mode, source=source) as client:
        client.chat.completions.create(**ASK)
        client.chat.completions.create(**message("New"))
    assert asked(source) == before + asks
    assert len(read_cassette(path)) == kept


def test_a_failure_of_the_source_is_its_own_and_not_recorded(path: Path) -> None:
    with (
        ScriptedEngine([]) as engine,
        play_cassette(path, record_mode="once", source=LocalOpenAI(engine=engine)) as client,
        pytest.raises(openai.BadRequestError, match="no reply is left"),
    ):
        client.chat.completions.create(**ASK)
    assert not path.exists()


REPLIES: dict[str, Any] = {"refusal": refusal("Not that."), "content filter": content_filter("One two")}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_refusals_and_what_a_filter_cut_are_recorded(reply: Any, path: Path) -> None:
    def ask(client: Any) -> list[Any]:
        chats = [client.chat.completions.create(**ASK), *client.chat.completions.create(**ASK, stream=True)]
        return same([*chats, client.responses.create(model="m", input="Hi")])  # type: ignore[no-any-return]

    with scripted(model="some-model") as source:
        source.when().reply(reply).always()
        expected = ask(source)
        with play_cassette(path, record_mode="once", source=source) as client:
            assert ask(client) == expected
    with play_cassette(path) as client:
        assert ask(client) == expected


def test_a_request_for_logprobs_is_another_one(source: LocalOpenAI, path: Path) -> None:
    with play_cassette(path, record_mode="once", source=source) as client:
        client.responses.create(model="m", input="Hi", include=["reasoning.encrypted_content"])
    with play_cassette(path) as client, pytest.raises(openai.BadRequestError, match=r"include.*is new"):
        client.responses.create(model="m", input="Hi", include=LOGPROBS)
    with play_cassette(path) as client:
        assert client.responses.create(model="m", input="Hi").output_text


def test_what_cannot_be_recorded_is_refused(source: LocalOpenAI, path: Path) -> None:
    with play_cassette(path, record_mode="once", source=source) as client:
        more: dict[str, Any]
        for name, more in {
            "echo": {"echo": True},
            "prompt_logprobs": {"extra_body": {"prompt_logprobs": 0}},
            "return_token_ids": {"extra_body": {"return_token_ids": True}},
        }.items():
            with pytest.raises(openai.BadRequestError, match=f"'{name}'"):
                client.completions.create(model="m", prompt="Hi", **more)
        with pytest.raises(openai.BadRequestError, match="temperature"):  # the endpoints look first
            client.chat.completions.create(**ASK, temperature=9)


@pytest.mark.parametrize("text", ["{", '{"at": 1}', '{"request": {}}', "[]"])
def test_a_file_that_is_no_cassette_is_refused_with_the_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.jsonl").write_text("\n" + text)
    with pytest.raises(CassetteError, match=r"c\.jsonl:2"):
        Cassette(tmp_path / "c.jsonl")
    with pytest.raises(ValueError, match="new_episodes"):
        Cassette(tmp_path / "d.jsonl", "sometimes")  # type: ignore[arg-type]


LAST = '{"model": "m", "fingerprint": null, "usage": null}\n'
REQUEST = '{"request": {"model": "m"}, "api": "completions"}\n'
BROKEN = {
    '{"request": {}}': "a request needs the field 'api', which is missing",
    '{"request": [], "api": "responses"}': r"the field 'request' of a request has a wrong value: \[\]",
    REQUEST + '{"at": "soon"}': """the field 'at' of a delta has a wrong value: "soon\"""",
    REQUEST + '{"at": 1, "content": 5}': "the field 'content' of a delta has a wrong value: 5",
    REQUEST + '{"at": 1, "tokens": [{"token": "a", "logprob": 0}]}': "a token needs the field 'top', which is missing",
    REQUEST + '{"at": 1}\n{"fingerprint": null, "usage": null}': "the last line of an answer needs the field 'model'",
    REQUEST + '{"at": 1}\n{"model": "m", "usage": null}': "the last line of an answer needs the field 'fingerprint'",
    REQUEST + LAST + REQUEST + '{"at": true}': "the field 'at' of a delta has a wrong value: true",
    "[]": r"it must be an object, not \[\]",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_line_without_a_field_is_refused_with_the_file_the_line_and_the_field(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.jsonl").write_text(text)
    number = len(text.splitlines())
    with pytest.raises(CassetteError, match=rf"c\.jsonl:{number} is not a line of a cassette: {BROKEN[text]}"):
        Cassette(tmp_path / "c.jsonl")


# -- what a file may hold -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\u0085", "\u000b", "\u001e", "\r", "\r\n"])
def test_ends_of_lines_in_texts_are_not_those_of_the_file(path: Path, end: str) -> None:
    text = f"one{end}two"
    with scripted(text, text) as source, play_cassette(path, record_mode="once", source=source) as client:
        for stream in (False, True):
            client.responses.create(model="m", input=text, stream=stream)
    with play_cassette(path) as client:
        assert client.responses.create(model="m", input=text).output_text == text


def test_a_file_that_was_cut_anywhere_is_not_played(source: LocalOpenAI, path: Path) -> None:
    with play_cassette(path, record_mode="once", source=source) as client:
        client.chat.completions.create(**ASK)
        client.chat.completions.create(**message("Think"))
    whole = path.read_text()
    lines = whole.splitlines(keepends=True)
    ends = {number for number, line in enumerate(lines, 1) if "usage" in line}
    for number in range(1, len(lines)):
        path.write_text("".join(lines[:number]))
        if number in ends:
            assert len(read_cassette(path)) == 1
            continue
        begun = 1 if number < min(ends) else min(ends) + 1
        with pytest.raises(CassetteError, match=rf"was cut: the answer to the request of line {begun} has no end"):
            Cassette(path)
    path.write_text(whole.replace(lines[min(ends) - 1], ""))  # the first answer's end is missing
    with pytest.raises(CassetteError, match=rf":{min(ends)} is not a line"):
        Cassette(path)


def test_what_only_the_service_wants_to_know_is_sent_to_it_and_not_recorded(source: LocalOpenAI, path: Path) -> None:
    who: dict[str, Any] = {"user": "ada", "safety_identifier": "ada-1", "prompt_cache_key": "ada-2"}
    engine: Any = inside.engine(source)
    sent: list[Any] = []
    stage: Any = getattr(engine, "stage_call", lambda call, prepared: prepared)
    engine.stage_call = lambda call, prepared: (sent.append(dict(call.body)), stage(call, prepared))[1]
    with play_cassette(path, record_mode="once", source=source) as client:
        client.chat.completions.create(**ASK, **who)
    assert who.items() <= sent[0].items()
    assert "ada" not in path.read_text()
    with play_cassette(path) as client:
        assert client.chat.completions.create(**ASK, user="bob").choices[0].message.content


def nested(depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(depth):
        made = {"a": made}
    return made


def test_arguments_of_calls_may_be_as_deep_as_texts_are_long(path: Path, source: LocalOpenAI) -> None:
    """They are JSON in a text, which is compared as what it says, or as a text."""

    def call(depth: int) -> Any:
        arguments = '{"a":' * depth + "1" + "}" * depth
        made = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        turns = [{"role": "assistant", "tool_calls": [made]}, {"role": "tool", "tool_call_id": "c", "content": "1"}]
        return {**ASK, "messages": [*MESSAGES, *turns]}

    asked = [call(5), *map(call, (300, 900, 5000, 15_000))]
    with play_cassette(path, record_mode="once", source=source) as client:
        for request in asked:
            client.chat.completions.create(**request)
    with play_cassette(path) as client:
        for request in asked:
            client.chat.completions.create(**request)
    with play_cassette(path) as client, pytest.raises(openai.BadRequestError, match="no answer to this request"):
        client.chat.completions.create(**call(700))


def test_a_request_that_is_too_deep_is_refused_and_never_a_fault(path: Path) -> None:
    """The depth that is too much is up to Python: for the endpoint, for comparing, or none at all."""
    refusals = "no answer to this request|nested so deeply that it cannot be compared|nested too deeply|recursion limit"
    for depth in (100, 300, 900, 1500, 3000, 100_000):
        schema = {"type": "object", "properties": {"a": nested(depth)}}
        deep: Any = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
        with play_cassette(path) as client, pytest.raises(openai.BadRequestError, match=refusals):
            client.chat.completions.create(**ASK, **deep)


def test_a_recorded_request_that_is_too_deep_is_named(path: Path) -> None:
    """The file may come from a machine on which more was not too deep."""
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    path.parent.mkdir(exist_ok=True)
    answer = '{"at": 0, "end": "stop"}\n{"model": "m", "fingerprint": null, "usage": null}\n'
    path.write_text(f'{{"request": {{"model": "m", "x": {deep}}}, "api": "completions"}}\n{answer}')
    with pytest.raises(CassetteError, match=r"is nested so deeply"):
        Cassette(path)


def test_a_file_that_is_nested_too_deeply_is_no_cassette(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text("[" * 200_000)
    with pytest.raises(CassetteError, match=r"c\.jsonl:1"):
        Cassette(tmp_path / "c.jsonl")


def test_a_retry_after_a_failure_replaces_what_the_failure_would_have(path: Path) -> None:
    with scripted("old", "other") as source, play_cassette(path, record_mode="once", source=source) as client:
        client.chat.completions.create(**ASK)
        client.chat.completions.create(**ASK)
    with (
        scripted(rate_limit(), "new", "newer", client={"max_retries": 0}) as source,
        play_cassette(path, record_mode="all", source=source) as client,
    ):
        with pytest.raises(openai.RateLimitError):
            client.with_options(max_retries=0).chat.completions.create(**ASK)
        for _ in range(2):
            client.chat.completions.create(**ASK)
    with play_cassette(path) as client:
        said = [client.chat.completions.create(**ASK).choices[0].message.content for _ in range(2)]
    assert said == ["new", "newer"] and len(read_cassette(path)) == 2


def test_a_context_that_raises_leaves_the_file_as_it_was(source: LocalOpenAI, path: Path) -> None:
    def use() -> None:
        with play_cassette(path, record_mode="once", source=source) as client:
            client.chat.completions.create(**ASK)
            raise ValueError("it failed behind that")

    with pytest.raises(ValueError, match="behind that"):
        use()
    assert not path.exists()

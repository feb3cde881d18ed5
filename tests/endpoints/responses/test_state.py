"""Responses that go on from each other, and what of them outlives the process."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.engine.engine import EngineOptions
from localai_shim.testing import Reply, ScriptedEngine
from tests import inside
from tests.agent_loop import client_of
from tests.conftest import refused
from tests.endpoints.responses.legal import check_response
from tests.samples import only
from tests.warm import python


def ask(client: Any, **more: Any) -> Any:
    return client.responses.create(**{"model": "m", "input": "Go on", **more})


class Asked:
    """A client whose model counts, and the prompts that it was given."""

    def __init__(self) -> None:
        self.engine = ScriptedEngine(lambda request, prompt, before: f"answer {before}")
        self.client = LocalOpenAI(engine=self.engine)

    def __call__(self, **more: Any) -> Any:
        return ask(self.client, **more)

    @property
    def prompt(self) -> str:
        """The last one."""
        return self.engine.prompts[-1]


@pytest.fixture
def asked() -> Iterator[Asked]:
    made = Asked()
    with made.client:
        yield made
    made.engine.close()


# -- chains ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "turns"),
    only([("qwen3_next", 8)], [("qwen3_next", 8), ("qwen3", 50), ("gemma3_text", 15), ("qwen3_next", 15)]),
)
def test_a_chain_prefills_what_is_new_and_says_what_it_says_without_a_cache(kind: str, turns: int) -> None:
    said: list[list[str]] = []
    for options in (None, EngineOptions(prefix_cache_bytes=0)):
        with client_of(kind, options) as client:
            previous: str | None = None
            before, texts = 0, []
            for turn in range(turns if options is None else min(turns, 12)):
                made = ask(
                    client,
                    input=f"And what of number {turn}?",
                    instructions="You are an agent that counts.",
                    previous_response_id=previous,
                    temperature=0,
                    max_output_tokens=6,
                    reasoning={"effort": "none"},
                )
                assert made.usage is not None
                new = made.usage.input_tokens - before
                if options is None and turn:
                    assert made.usage.input_tokens - made.usage.input_tokens_details.cached_tokens <= new + 16
                before, previous = made.usage.input_tokens, made.id
                texts.append("".join(part.text for item in made.output for part in item.content))
            said.append(texts)
    assert said[0][: len(said[1])] == said[1]


def test_equal_conversations_are_equal_prompts_in_both_apis(asked: Asked) -> None:
    first = asked(input="One", instructions="Be brief.")
    asked(input="Two", previous_response_id=first.id, instructions="Be brief.")
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "Two"},
    ]
    before = asked.prompt
    asked.client.chat.completions.create(model="m", messages=messages)
    assert asked.prompt == before and "answer 0" in before


def test_an_answer_and_a_message_of_the_assistant_behind_it_are_two_turns(asked: Asked) -> None:
    first = asked(input="One")
    more: list[Any] = [{"role": "assistant", "content": "It is 5."}, {"role": "user", "content": "Why?"}]
    asked(input=more, previous_response_id=first.id)
    before = asked.prompt
    asked.client.chat.completions.create(
        model="m",
        messages=[
            {"role": "user", "content": "One"},
            {"role": "assistant", "content": first.output_text},
            *more,
        ],
    )
    assert asked.prompt == before


def test_instructions_are_not_inherited(asked: Asked) -> None:
    first = asked(instructions="Be brief.")
    assert "Be brief." in asked.prompt
    second = asked(input="Two", previous_response_id=first.id)
    assert second.instructions is None and "Be brief." not in asked.prompt


def test_two_go_on_from_one(asked: Asked) -> None:
    first = asked(input="Root")
    left, right = (asked(input=word, previous_response_id=first.id) for word in ("Left", "Right"))
    third = asked(input="Leaf", previous_response_id=left.id)
    assert [word in asked.prompt for word in ("Root", "Left", "Right", "Leaf")] == [True, True, False, True]
    assert third.previous_response_id == left.id and right.previous_response_id == first.id


def test_what_was_deleted_is_gone_but_for_those_that_go_on_from_it(asked: Asked) -> None:
    responses = asked.client.responses
    first = asked(input="Root")
    second = asked(input="Leaf", previous_response_id=first.id)
    responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError) as caught:
        asked(previous_response_id=first.id)
    assert (caught.value.param, caught.value.code) == ("previous_response_id", "previous_response_not_found")
    asked(input="More", previous_response_id=second.id)
    assert "Root" in asked.prompt


def test_what_is_not_stored_is_not_found(asked: Asked) -> None:
    made, responses = asked(store=False), asked.client.responses
    for attempt in (
        lambda: responses.retrieve(made.id),
        lambda: asked(previous_response_id=made.id),
        lambda: asked(input=[{"type": "item_reference", "id": made.output[0].id}]),
        lambda: responses.input_items.list(made.id),
        lambda: responses.delete(made.id),
        lambda: responses.cancel(made.id),
    ):
        with pytest.raises(openai.NotFoundError):
            attempt()


def test_a_stream_that_is_left_in_the_middle_stores_nothing() -> None:
    engine = ScriptedEngine(["one two three four", "five"])
    with LocalOpenAI(engine=engine) as client:
        stream = ask(client, stream=True)
        id = next(stream).response.id
        stream.close()
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(id)
    engine.close()


def test_a_response_that_failed_in_a_stream_is_kept_as_failed() -> None:
    engine = ScriptedEngine([Reply("one two three", error=RuntimeError("bad luck"), fail_after=2)])
    with LocalOpenAI(engine=engine) as client:
        events = list(ask(client, stream=True))
        assert [event.type for event in events[-2:]] == ["error", "response.failed"]
        made = client.responses.retrieve(events[0].response.id)
        check_response(made)
        assert made.status == "failed" and made == events[-1].response
    engine.close()


# -- conversations ---------------------------------------------------------------------------------------------------


def test_a_conversation_grows_by_what_is_asked_and_answered(asked: Asked) -> None:
    conversations = asked.client.conversations
    conversation = conversations.create(items=[{"role": "user", "content": "Zero"}])
    first = asked(input="One", conversation=conversation.id)
    assert first.conversation is not None and first.conversation.id == conversation.id
    events = list(asked(input="Two", conversation={"id": conversation.id}, stream=True))
    assert [word in asked.prompt for word in ("Zero", "One", "answer 0", "Two")] == [True] * 4
    items = list(conversations.items.list(conversation.id, order="asc"))
    assert [item.role for item in items] == ["user", "user", "assistant", "user", "assistant"]  # type: ignore[union-attr]
    assert items[-1].id == events[-1].response.output[0].id


def test_a_conversation_that_goes_while_it_is_answered_fails_that_answer_only() -> None:
    engine = ScriptedEngine(["one two three four", "five"])
    with LocalOpenAI(engine=engine) as client:
        conversation = client.conversations.create()
        stream = ask(client, stream=True, conversation=conversation.id)
        next(stream)
        client.conversations.delete(conversation.id)
        with pytest.raises(openai.NotFoundError) as caught:
            list(stream)
        assert caught.value.param == "conversation"
        assert ask(client).output_text == "five"
    engine.close()


def test_a_conversation_is_not_mixed_with_a_chain(asked: Asked) -> None:
    conversation, first = asked.client.conversations.create(), asked()
    with refused("previous_response_id", "mutually_exclusive_parameters", "not both"):
        asked(conversation=conversation.id, previous_response_id=first.id)


# -- what is sent again ----------------------------------------------------------------------------------------------

ADD: dict[str, Any] = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}
OUTPUT = "function_call_output"


@pytest.fixture(params=["previous_response_id", "conversation"])
def called(request: pytest.FixtureRequest) -> Iterator[tuple[ScriptedEngine, LocalOpenAI, Any, dict[str, Any]]]:
    """An engine, its client, a response that calls a function, and the argument that continues it."""
    call = '<tool_call>\n{"name": "add", "arguments": {"x": 1, "y": 2}}\n</tool_call>'
    with ScriptedEngine([f"Let me add.{call}", "Three.", "Bye."]) as engine, LocalOpenAI(engine=engine) as client:
        if request.param == "conversation":
            begun = {"conversation": client.conversations.create().id}
            yield engine, client, ask(client, tools=[ADD], **begun), begun
        else:
            first = ask(client, tools=[ADD])
            yield engine, client, first, {"previous_response_id": first.id}


def sent_back(item: Any, *left_out: str, **changed: Any) -> dict[str, Any]:
    """An item of an answer, as programs send it again."""
    kept = {name: value for name, value in item.to_dict(mode="json").items() if name not in left_out}
    return {**kept, **changed}


def test_an_answer_that_is_sent_again_is_read_once(called: Any) -> None:
    engine, client, first, continued = called
    message, call = first.output
    output = {"type": OUTPUT, "call_id": call.call_id, "output": "3"}
    again = [sent_back(message), sent_back(call, "id", "status", arguments='{"y":2,"x":1}'), output]
    second = ask(client, input=again, tools=[ADD], **continued)
    assert engine.prompts[-1].count("Let me add.") == 1 and engine.prompts[-1].count('"name": "add"') == 2  # one offers
    if "conversation" in continued:
        items = client.conversations.items.list(continued["conversation"], order="asc")
        assert [item.type for item in items] == ["message", "message", "function_call", OUTPUT, "message"]
    else:
        assert [item.type for item in client.responses.input_items.list(second.id)] == [OUTPUT]


def test_an_output_that_is_sent_again_is_read_once(called: Any) -> None:
    engine, client, first, continued = called
    output = {"type": OUTPUT, "call_id": first.output[1].call_id, "output": "three!"}
    second = ask(client, input=[output], tools=[ADD], **continued)
    if "previous_response_id" in continued:
        continued = {"previous_response_id": second.id}
    ask(client, input=[output, {"role": "user", "content": "Thanks"}], tools=[ADD], **continued)
    assert engine.prompts[-1].count("three!") == 1 and "Thanks" in engine.prompts[-1]


def test_an_item_that_says_something_else_than_the_stored_one_is_refused(called: Any) -> None:
    _, client, first, continued = called
    message, call = first.output
    output = {"type": OUTPUT, "call_id": call.call_id, "output": "3"}
    text = [{**message.content[0].to_dict(), "text": "Let me see."}]
    for item, said in [
        (sent_back(message, content=text), f"Duplicate item found with id {message.id}"),
        (sent_back(call, "id", arguments='{"x": 2}'), f"Duplicate tool call found with call_id {call.call_id}"),
        (sent_back(call, "id", name="subtract"), f"Duplicate tool call found with call_id {call.call_id}"),
    ]:
        with refused("input", "duplicate_item", said):
            ask(client, input=[item, output], tools=[ADD], **continued)


def test_a_repeated_item_does_not_shift_the_paths_of_errors(called: Any) -> None:
    _, client, first, continued = called
    message, call = first.output
    foreign = {"type": "compaction", "encrypted_content": "gAAAAB"}
    with refused("input[2].encrypted_content", "invalid_encrypted_content", "not made by this client"):
        ask(client, input=[sent_back(message), sent_back(call), foreign], tools=[ADD], **continued)


# -- files -----------------------------------------------------------------------------------------------------------


def test_a_file_keeps_all_of_it_for_the_next_client(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with LocalOpenAI(engine=ScriptedEngine(["one", "two", "three"]), store=path) as client:
        first = ask(client)
        conversation = client.conversations.create(metadata={"topic": "counting"})
        second = ask(client, conversation=conversation.id)
        third = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], store=True)
    engine = ScriptedEngine(["four"])
    with LocalOpenAI(engine=engine, store=str(path)) as client:
        assert client.responses.retrieve(first.id) == first
        assert client.responses.retrieve(second.id) == second
        assert client.conversations.retrieve(conversation.id).metadata == {"topic": "counting"}
        assert client.chat.completions.retrieve(third.id).choices[0].message.content == "three"
        assert ask(client, previous_response_id=first.id).output_text == "four" and "one" in engine.prompts[-1]
    engine.close()


def test_a_file_that_is_no_store_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no database\n" * 100)
    engine = ScriptedEngine(["one"])
    for place in (path, tmp_path, tmp_path / "nowhere" / "state.db"):
        with pytest.raises(ValueError, match=r"`store`.*cannot be used") as caught:
            LocalOpenAI(engine=engine, store=place)
        assert place.name in str(caught.value)
    engine.close()


def test_a_file_that_breaks_later_fails_what_needs_it_and_says_why(tmp_path: Path) -> None:
    engine = ScriptedEngine(lambda request, prompt, before: "yes")
    with LocalOpenAI(engine=engine, store=tmp_path / "state.db") as client:
        inside.store(client).close()
        with pytest.raises(openai.InternalServerError, match=r"state\.db cannot be used: it is closed"):
            ask(client)
        assert ask(client, store=False).output_text == "yes"
    engine.close()


def test_several_clients_and_threads_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    engine = ScriptedEngine(lambda request, prompt, before: "yes")
    clients = [LocalOpenAI(engine=engine, store=path) for _ in range(3)]
    ids: list[str] = []

    def work(client: LocalOpenAI) -> None:
        previous = None
        for _ in range(10):
            previous = ask(client, previous_response_id=previous).id
            ids.append(previous)

    threads = [threading.Thread(target=work, args=(client,)) for client in clients for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 60
    assert all(client.responses.retrieve(id).status == "completed" for client in clients for id in ids)
    for client in clients:
        client.close()
    engine.close()


STORING = """
import sys
from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine
client = LocalOpenAI(engine=ScriptedEngine(lambda request, prompt, before: "yes"), store=sys.argv[1])
previous = None
for i in range(1000):
    made = client.responses.create(model="m", input=f"Number {i}", previous_response_id=previous if i % 10 else None)
    previous = made.id
    sys.stdout.write(f"{made.id} {i}\\n")
    sys.stdout.flush()
"""


@pytest.mark.parametrize("seed", only([1], [1, 2]))
def test_nothing_that_was_returned_is_lost_when_the_process_is_killed(tmp_path: Path, seed: int) -> None:
    path, after = tmp_path / "state.db", random.Random(seed).randrange(50, 900)
    command = [*python(), "-c", STORING, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(after)]
        os.kill(process.pid, signal.SIGKILL)
        lines += process.stdout.readlines()
    returned = [line.split() for line in lines if line.endswith("\n")]
    assert len(returned) >= after
    engine = ScriptedEngine(["yes"])
    with LocalOpenAI(engine=engine, store=path) as client:
        for id, number in returned:
            made = client.responses.retrieve(id)
            assert made.status == "completed"
            [item] = client.responses.input_items.list(id).data
            assert item.content[0].text == f"Number {number}"  # type: ignore[union-attr]
        id, number = returned[-1]
        ask(client, previous_response_id=id)
        assert all(
            f"Number {i}\n" in engine.prompts[-1] or f"Number {i}<" in engine.prompts[-1]
            for i in range(int(number) // 10 * 10, int(number) + 1)
        )
    engine.close()

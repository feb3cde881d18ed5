"""The grammar of Responses streams accepts legal streams of every kind and catches every single change to one."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from openai import BaseModel
from openai.types import responses as sdk

from tests.endpoints.responses.legal import check_response, check_stream
from tests.endpoints.responses.streams import LOGPROBS, STREAMS, USAGE, Script, make
from tests.samples import only, sample

every_stream = pytest.mark.parametrize("name", list(STREAMS))


def caught(events: Sequence[Any], fragment: str = "", **how: Any) -> None:
    with pytest.raises(AssertionError) as error:
        check_stream(events, **how)
    assert fragment in str(error.value)


def renumbered(events: Sequence[Any]) -> list[Any]:
    return [event.model_copy(update={"sequence_number": i}) for i, event in enumerate(events)]


@every_stream
def test_legal_streams_pass(name: str) -> None:
    check_stream(STREAMS[name])


@every_stream
def test_the_sdk_accumulates_them(name: str) -> None:
    """What the grammar accepts is what the SDK's own `responses.stream()` can read."""
    from openai._types import omit
    from openai.lib.streaming.responses._responses import ResponseStreamState

    state: Any = ResponseStreamState(input_tools=omit, text_format=omit)
    for event in STREAMS[name]:
        if event.type != "error":  # raised by the SDK's transport, before this
            state.handle_event(event)
    if STREAMS[name][-1].type == "response.completed":
        assert state._completed_response.output_text == STREAMS[name][-1].response.output_text


@every_stream
def test_a_beginning_is_legal_only_where_the_caller_stopped_reading(name: str) -> None:
    events = STREAMS[name]
    for end in range(len(events)):
        check_stream(events[:end], complete=False)
        caught(events[:end], "the stream ends with")


@every_stream
def test_a_resumed_stream_is_legal_from_every_event_on(name: str) -> None:
    events = STREAMS[name]
    for after in range(len(events) - 1):
        check_stream(events[after + 1 :], starting_after=after)
        caught(events[after + 1 :], "event 0")
        caught(events[after + 1 :], "event 0", starting_after=after + 1)


Change = Callable[[list[Any]], Any]


def at(event_type: str, path: str, value: Any, n: int = 0) -> Change:
    """Set a field of the n-th event of a type."""

    def change(events: list[Any]) -> None:
        target: Any = [event for event in events if event.type == f"response.{event_type}"][n]
        *way, last = path.split(".")
        for step in way:
            target = target[int(step)] if step.isdigit() else getattr(target, step)
        if last.isdigit():
            target[int(last)] = value
        else:
            setattr(target, last, value)

    return change


def final(path: str, value: Any) -> Change:
    """Set a field of the response of the last event."""
    return lambda events: at(events[-1].type.removeprefix("response."), f"response.{path}", value)(events)


def drop(start: int, stop: int) -> Change:
    """Leave out events and number the rest anew."""

    def change(events: list[Any]) -> None:
        del events[start:stop]
        events[:] = renumbered(events)

    return change


def insert(index: int, *made: Any) -> Change:
    def change(events: list[Any]) -> None:
        events[index:index] = made
        events[:] = renumbered(events)

    return change


def insert_created(events: list[Any]) -> None:
    """Begin anew in the middle."""
    events[0] = STREAMS["text"][0].model_copy(update={"sequence_number": events[0].sequence_number})


E = sdk.response_error.ResponseError(code="server_error", message="broken")
U = sdk.ResponseUsage.model_validate(USAGE)
REASON = sdk.response.IncompleteDetails(reason="content_filter")
TEXT = make(sdk.ResponseOutputText, type="output_text", text="x", annotations=[])
EMPTY = TEXT.model_copy(update={"text": ""})
MESSAGE = STREAMS["text"][-1].response.output[0]
CALL = STREAMS["calls"][-1].response.output[0]
AUDIO = make(sdk.ResponseAudioDoneEvent, type="response.audio.done", sequence_number=0)
AT = {"item_id": "fc_0", "output_index": 0, "sequence_number": 0}
INPUT = make(sdk.ResponseCustomToolCallInputDeltaEvent, type="response.custom_tool_call_input.delta", delta="l", **AT)
LATER = make(sdk.ResponseErrorEvent, type="error", sequence_number=0, message="late")

RULES: list[tuple[str, str, Change, str]] = [
    ("numbers start at 0", "text", at("created", "sequence_number", 1), "event 0 (response.created): has seq"),
    ("numbers go up by one", "text", at("output_text.delta", "sequence_number", 6, 1), "has sequence_number 6, not 5"),
    ("numbers do not repeat", "text", at("in_progress", "sequence_number", 0), "has sequence_number 0, not 1"),
    ("only the SDK's events", "text", insert(2, MESSAGE), "ResponseStreamEvent"),
    ("no hosted events", "text", insert(2, AUDIO), "there is no rule"),
    ("fields of the right type", "text", at("output_text.delta", "delta", 7), "its type demands"),
    ("parts of the right type", "text", at("content_part.done", "part", {"text": "Hello"}), "its type demands"),
    ("created first", "text", drop(0, 1), "comes after nothing"),
    ("in_progress before output", "text", drop(1, 2), "comes after response.created"),
    ("queued after created as queued", "background", drop(1, 2), "follows the status queued"),
    ("created as queued before queued", "background", at("created", "response.status", "in_progress"), "follows the"),
    ("queued is in the background", "background", at("created", "response.background", None), "in the background"),
    ("created has a status", "text", at("created", "response.status", None), "with the status None"),
    ("created is not completed", "text", at("created", "response.status", "completed"), "with the status completed"),
    ("in_progress has that status", "text", at("in_progress", "response.status", "queued"), "with the status queued"),
    ("completed has that status", "text", final("status", "incomplete"), "with the status incomplete"),
    ("nothing after the end", "text", insert(99, LATER), "which is the last event"),
    ("an error only before failed", "text", insert(8, LATER), "comes after error"),
    ("one error", "failed with an error event", insert(2, LATER), "comes after error"),
    ("no cancel after an error", "cancelled in the queue", insert(2, LATER), "cancelled after an error"),
    ("the id stays", "text", final("id", "resp_2"), "has id 'resp_2'"),
    ("created_at stays", "text", final("created_at", 999.0), "has created_at 999"),
    ("model stays", "text", at("in_progress", "response.model", "other"), "has model 'other'"),
    ("tools stay", "text", final("tools", []), "has tools []"),
    ("no output yet", "text", at("in_progress", "response.output", [MESSAGE]), "output before any"),
    ("no usage yet", "text", at("created", "response.usage", U), "has its usage"),
    ("no error yet", "text", at("created", "response.error", E), "with the error"),
    ("output indexes from 0", "text", at("output_item.added", "output_index", 1), "output_index 1, not 0"),
    ("output indexes go up", "calls", at("output_item.added", "output_index", 2, 1), "output_index 2, not 1"),
    ("output index of deltas", "calls", at("function_call_arguments.delta", "output_index", 1), "output_index 1"),
    ("output index of done", "text", at("output_item.done", "output_index", 1), "output_index 1, not 0"),
    ("item id of parts", "text", at("content_part.added", "item_id", "msg_9"), "about item msg_9"),
    ("item id of deltas", "text", at("output_text.delta", "item_id", "msg_9"), "about item msg_9"),
    ("item id of texts", "text", at("output_text.done", "item_id", "msg_9"), "about item msg_9"),
    ("item id of calls", "calls", at("custom_tool_call_input.done", "item_id", "ctc_9"), "about item ctc_9"),
    ("item id of done", "text", at("output_item.done", "item.id", "msg_9"), "about item msg_9"),
    ("ids are used once", "calls", at("output_item.added", "item.id", "fc_0", 1), "an id that was used"),
    ("ids by type", "text", at("output_item.added", "item.id", "item_0"), "with the id 'item_0'"),
    ("item type of events", "calls", insert(4, INPUT), "a custom_tool_call, and output 0 is a function_call"),
    ("call_id stays", "calls", at("output_item.done", "item.call_id", "call_9"), "call_id of fc_0 was 'call_0'"),
    ("name stays", "calls", at("output_item.done", "item.name", "sub"), "name of fc_0 was 'add'"),
    ("name of arguments", "calls", at("function_call_arguments.done", "name", "sub"), "has the name 'sub'"),
    ("arguments with a name", "calls", at("function_call_arguments.done", "name", ""), "has no name"),
    ("items begin in progress", "text", at("output_item.added", "item.status", "completed"), "the status completed"),
    ("items begin empty", "text", at("output_item.added", "item.content", [TEXT]), "content before any"),
    ("calls begin empty", "calls", at("output_item.added", "item.arguments", "{"), "arguments before any"),
    ("summaries begin empty", "reasoning", at("output_item.added", "item.summary", [{}]), "its type demands"),
    ("items end", "text", at("output_item.done", "item.status", "in_progress"), "with the status in_progress"),
    ("a status is not lost", "reasoning", at("output_item.done", "item.status", None), "added with in_progress"),
    ("one item at a time", "two parts, two messages", drop(12, 13), "output 0 is not done"),
    ("the last item is done", "text", drop(8, 9), "output 0 (msg_0) is not done"),
    ("parts begin empty", "text", at("content_part.added", "part.text", "H"), "text before any"),
    ("refusals begin empty", "refusal", at("content_part.added", "part.refusal", "H"), "refusal before any"),
    ("content indexes from 0", "text", at("content_part.added", "content_index", 1), "content_index 1, not 0"),
    ("content indexes go up", "two parts, two messages", at("content_part.added", "content_index", 0, 1), "0, not 1"),
    ("summary indexes go up", "reasoning", at("reasoning_summary_part.added", "summary_index", 2, 1), "2, not 1"),
    ("index of deltas", "text", at("output_text.delta", "content_index", 1), "content_index 1, not 0"),
    ("index of summaries", "reasoning", at("reasoning_summary_text.delta", "summary_index", 1), "1, not 0"),
    ("one part at a time", "two parts, two messages", drop(7, 8), "before content 0 is done"),
    ("deltas in a part", "text", drop(3, 4), "no part of msg_0"),
    ("reasoning text in a part", "reasoning", drop(3, 4), "no part of rs_0"),
    ("summaries in a part", "reasoning", drop(8, 9), "no part of rs_0"),
    ("deltas in a part of their type", "refusal", at("content_part.added", "part", EMPTY), "is about refusal"),
    ("deltas are not empty", "text", at("output_text.delta", "delta", ""), "says nothing"),
    ("deltas add up", "text", at("output_text.delta", "delta", "hel"), "text is 'Hello'"),
    ("refusals add up", "refusal", at("refusal.delta", "delta", "We"), "text is 'I will not.'"),
    ("reasoning adds up", "reasoning", at("reasoning_text.delta", "delta", "Oh,"), "text is 'Hm, 2.'"),
    ("summaries add up", "reasoning", at("reasoning_summary_text.done", "text", "?"), "text is '?'"),
    ("arguments add up", "calls", at("function_call_arguments.done", "arguments", "{}"), "text is '{}'"),
    ("inputs add up", "calls", at("custom_tool_call_input.done", "input", "ls"), "text is 'ls'"),
    ("a text is done once", "text", insert(7, STREAMS["text"][6]), "after its text is done"),
    ("a part is done after its text", "text", drop(6, 7), "before its text is done"),
    ("an item is done after its parts", "text", drop(7, 8), "before the text of its item"),
    ("a call is done after its arguments", "calls", drop(5, 6), "before the arguments"),
    ("parts have the text", "text", at("content_part.done", "part.text", "Hallo"), "a part with 'Hallo'"),
    ("items have the text", "text", at("output_item.done", "item.content.0.text", "Hallo"), "content 0 of msg_0"),
    ("items have the parts", "text", at("output_item.done", "item.content", []), "content 0 of msg_0"),
    ("items have no others", "text", at("output_item.done", "item.content", MESSAGE.content * 2), "has 2 of content"),
    ("summaries are kept", "reasoning", at("output_item.done", "item.summary.1.text", "?"), "summary 1 of rs_0"),
    ("reasoning is kept", "reasoning", at("output_item.done", "item.content", None), "content 0 of rs_0"),
    ("arguments are kept", "calls", at("output_item.done", "item.arguments", "{}"), "arguments 0 of fc_0"),
    ("the response has the texts", "text", final("output.0.content.0.text", "Hallo"), "output 0 is not"),
    ("the response has the items", "calls", final("output", [CALL]), "output 1 is not"),
    ("the response has no others", "text", final("output", [MESSAGE, CALL]), "2 items"),
    ("encrypted content stays", "reasoning", final("output.0.encrypted_content", None), "output 0 is not"),
    ("logprobs of deltas", "logprobs", at("output_text.delta", "logprobs", []), "logprobs is"),
    ("logprobs of the text", "logprobs", at("output_text.done", "logprobs.0.logprob", -0.1), "logprobs is"),
    ("alternatives", "logprobs", at("output_text.done", "logprobs.0.top_logprobs", []), "logprobs is"),
    ("logprobs of the part", "logprobs", at("content_part.done", "part.logprobs", None), "other logprobs"),
    ("logprobs come later", "logprobs", at("content_part.added", "part.logprobs", LOGPROBS), "logprobs before any"),
    ("annotations count up", "annotations", at("output_text.annotation.added", "annotation_index", 0, 1), "0, not 1"),
    ("annotations add up", "annotations", drop(6, 7), "annotations is"),
    ("annotations are there", "annotations", at("output_text.annotation.added", "annotation", None), "no annotation"),
    ("items of completed ones", "text", final("output.0.status", "incomplete"), "and msg_0 is incomplete"),
    ("a cut item is the last", "calls", at("output_item.done", "item.status", "incomplete"), "is the last"),
    ("a cut part, a cut item", "incomplete summary", at("output_item.done", "item.status", "completed"), "one part of"),
    ("completed has its usage", "text", final("usage", None), "has no usage"),
    ("completed has no error", "text", final("error", E), "with the error"),
    ("completed has no reason", "text", final("incomplete_details", REASON), "with the reason"),
    ("completed_at is after created_at", "text", final("completed_at", 999.0), "before it was created"),
    ("incomplete has a reason", "incomplete text", final("incomplete_details", None), "with the reason None"),
    ("failed has an error", "failed", final("error", None), "with the error None"),
    ("cancelled has none", "cancelled", final("error", E), "with the error"),
    ("cancelled is in the background", "failed", final("status", "cancelled"), "not in the background"),
    ("what was cut is incomplete", "cancelled, the rest kept", final("output.1.status", "completed"), "as completed"),
    ("what was cut was streamed", "cancelled, the rest kept", final("output.1.content.0.text", "Hi"), "text is 'Hi'"),
    ("what was cut has its id", "cancelled, the rest kept", final("output.1.id", "msg_9"), "is now msg_9"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "name", "change", "fragment"), RULES, ids=[rule[0] for rule in RULES])
def test_each_rule_is_kept(rule: str, name: str, change: Change, fragment: str) -> None:
    events = copy.deepcopy(STREAMS[name])
    change(events)
    caught(events, fragment)


LEFT_OPEN = [i for i, event in enumerate(STREAMS["cancelled"]) if event.type == "response.output_text.delta"]
"""A delta that nothing later repeats: no one can tell how many there were."""


@every_stream
def test_every_event_is_needed(name: str) -> None:
    events = STREAMS[name]
    for i, event in enumerate(events):
        less = [*events[:i], *events[i + 1 :]]
        caught(less)
        if event.type == "error" or (name == "cancelled" and i in LEFT_OPEN):
            check_stream(renumbered(less))
        else:
            caught(renumbered(less))


@pytest.mark.parametrize("places", only([3], [3, 10_000]), ids=["some places", "all places"])
@every_stream
def test_no_event_comes_twice(name: str, places: int) -> None:
    events = STREAMS[name]
    for i, event in enumerate(events):
        for place in sample(range(len(events) + 1), places, (name, i)):
            more = [*events[:place], event, *events[place:]]
            caught(more, f"event {place + (place == i)} ")
            if name == "cancelled" and i in LEFT_OPEN and place in (i, i + 1):
                check_stream(renumbered(more))
            else:
                caught(renumbered(more))


@pytest.mark.parametrize("most", only([15], [15, 100]))
@every_stream
def test_no_two_events_change_places(name: str, most: int) -> None:
    events, draw = STREAMS[name], random.Random(name)
    pairs = [(i, j) for j in range(len(events)) for i in range(j)]
    for i, j in draw.sample(pairs, min(most, len(pairs))) + [(i, i + 1) for i in range(len(events) - 1)]:
        swapped = list(events)
        swapped[i], swapped[j] = swapped[j], swapped[i]
        caught(swapped, f"event {i} ")
        kinds = {events[i].type, events[j].type}
        # An annotation may come as soon as there is a part.
        if j == i + 1 and kinds == {"response.output_text.delta", "response.output_text.annotation.added"}:
            check_stream(renumbered(swapped))
        else:
            caught(renumbered(swapped))


@pytest.mark.parametrize(
    ("name", "after", "change", "fragment"),
    [
        ("text", 4, at("output_text.done", "text", "Help"), "text is 'Help'"),
        ("text", 4, at("output_text.delta", "item_id", "msg_9"), "is about item msg_0, and output 0 is msg_9"),
        ("text", 4, insert_created, "comes at the beginning only"),
        ("text", 6, at("content_part.done", "content_index", 1), "content 1 of msg_0"),
        ("text", 7, final("output.0.content.0.text", "Hallo"), "output 0 is not"),
        ("calls", 3, at("function_call_arguments.done", "arguments", " 1"), "text is ' 1'"),
        ("calls", 10, at("output_item.added", "output_index", 1), "has output_index 2, not 1"),
        ("two parts, two messages", 8, at("content_part.done", "part.text", "x"), "has a part with 'x'"),
        ("reasoning", 12, at("output_item.done", "item.summary.1.text", "?"), "summary 1 of rs_0"),
        ("logprobs", 4, at("output_text.done", "logprobs.2.logprob", -0.1), "logprobs is"),
    ],
)
def test_what_a_resumed_stream_shows_is_checked(name: str, after: int, change: Change, fragment: str) -> None:
    events = copy.deepcopy(STREAMS[name])[after + 1 :]
    change(events)
    caught(events, fragment, starting_after=after)


RESPONSES = {name: events[-1].response for name, events in STREAMS.items()}


@every_stream
def test_responses_of_every_kind_pass(name: str) -> None:
    check_response(RESPONSES[name])


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_responses_that_are_not_done_pass(status: str) -> None:
    response = STREAMS["background"][0].response.model_copy(update={"status": status})
    check_response(response)


def test_a_parsed_response_passes() -> None:
    from openai._types import omit
    from openai.lib._parsing._responses import parse_response

    class Answer(BaseModel):
        n: int

    plain = Script().start().message(['{"n":', " 1}"]).call(0).end()[-1].response
    parsed: Any = parse_response(text_format=Answer, input_tools=omit, response=plain)
    assert parsed.output_parsed == Answer(n=1)
    check_response(parsed)
    parsed.output[0].content[0].text = None
    with pytest.raises(AssertionError, match="its type demands"):
        check_response(parsed)


@pytest.mark.parametrize(
    ("name", "path", "value", "fragment"),
    [
        ("text", "object", "other", "its type demands"),
        ("text", "id", "1", "id is '1'"),
        ("text", "status", None, "status is None"),
        ("text", "status", "queued", "not in the background"),
        ("text", "status", "incomplete", "is incomplete with the reason None"),
        ("text", "error", E, "is completed with the error"),
        ("text", "incomplete_details", REASON, "is completed with the reason"),
        ("text", "incomplete_details", sdk.response.IncompleteDetails(), "without a reason"),
        ("text", "completed_at", 1.0, "before it was created"),
        ("failed", "completed_at", 2000.0, "is failed, and was completed"),
        ("failed", "error", None, "is failed with the error None"),
        ("incomplete text", "incomplete_details", None, "with the reason None"),
        ("text", "usage", None, "has no usage"),
        ("text", "usage.total_tokens", 30, "not the sum"),
        ("text", "usage.input_tokens_details.cached_tokens", 21, "cached_tokens"),
        ("text", "usage.input_tokens_details.cache_write_tokens", 21, "cache_write_tokens"),
        ("text", "usage.output_tokens_details.reasoning_tokens", 10, "reasoning_tokens"),
        ("text", "usage.output_tokens_details", None, "its type demands"),
        ("text", "output.0.id", "item_1", "with the id 'item_1'"),
        ("calls", "output.0.id", None, "with the id None"),
        ("calls", "output.1.id", "fc_0", "same id twice"),
        ("calls", "output.1.call_id", "call_0", "same call_id twice"),
        ("calls", "output.2.call_id", "c", "the call_id 'c'"),
        ("calls", "output.2.name", "", "without a name"),
        ("reasoning", "output.0.id", "msg_0", "a reasoning with the id 'msg_0'"),
        ("text", "output.0.status", "in_progress", "msg_0 is in_progress"),
        ("text", "output.0.status", "incomplete", "msg_0 is incomplete"),
        ("calls", "output.0.status", None, "fc_0 is None"),
        (
            "incomplete after an item",
            "output",
            [MESSAGE.model_copy(update={"status": "incomplete"}), CALL],
            "incomplete",
        ),
    ],
)
def test_each_rule_of_responses_is_kept(name: str, path: str, value: Any, fragment: str) -> None:
    events = copy.deepcopy(STREAMS[name])
    final(path, value)(events)
    with pytest.raises(AssertionError) as error:
        check_response(events[-1].response)
    assert fragment in str(error.value)


def test_output_text_is_what_the_messages_say(monkeypatch: pytest.MonkeyPatch) -> None:
    response = RESPONSES["two parts, two messages"]
    assert response.output_text == "abcd"
    monkeypatch.setattr(sdk.Response, "output_text", "abc")
    with pytest.raises(AssertionError, match="output_text is 'abc'"):
        check_response(response)

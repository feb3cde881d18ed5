"""Input items of the Responses API as they are stored: every shape that comes in, every way in which it is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.conversations import ConversationItem
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from localai_shim.endpoints.items.resources import PREFIXES, item_resource, item_resources, new_item_id
from localai_shim.errors import BadRequest, NotFound, RequestError

STORED: tuple[TypeAdapter[Any], ...] = (TypeAdapter(ConversationItem), TypeAdapter(ResponseItem))

URL = "https://example.com/a.png"
TEXT = {"type": "input_text", "text": "Hello"}
SAID = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}
LOGPROB = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
TOP = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105]}
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
CUSTOM = {"type": "custom_tool_call", "call_id": "call_1", "name": "f", "input": "x"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
CUSTOM_OUTPUT = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "sunny"}
DONE = {"status": "completed"}
FOUND: dict[str, Any] = {"type": "file_search_call", **DONE, "queries": ["x"]}
SEARCHED: dict[str, Any] = {"type": "web_search_call", **DONE, "action": {"type": "search", "query": "x"}}
RAN = {"type": "code_interpreter_call", **DONE, "code": "1", "container_id": "c", "outputs": None}
LOGS = {"type": "logs", "logs": "1"}
SUMMARY = {"type": "summary_text", "text": "Short."}
THOUGHT = {"type": "reasoning_text", "text": "Long."}
CITATION = {"type": "url_citation", "url": URL, "title": "t", "start_index": 0, "end_index": 1}
ANNOTATIONS = [
    CITATION,
    {"type": "file_citation", "file_id": "f", "filename": "n", "index": 3},
    {"type": "file_path", "file_id": "f", "index": 3},
    {
        "type": "container_file_citation",
        "container_id": "c",
        "file_id": "f",
        "filename": "n",
        "start_index": 0,
        "end_index": 3,
    },
]


def user(*content: Any, **rest: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(content), **rest}


def assistant(*content: Any, **rest: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": list(content), **rest}


# what comes in -> what is stored, but for the id
RESOURCES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"role": "user", "content": "Hello"}, user(TEXT, **DONE)),
    ({"role": "system", "content": "Hello", "type": None}, {**user(TEXT, **DONE), "role": "system"}),
    ({"role": "developer", "content": [TEXT], "type": "message"}, {**user(TEXT, **DONE), "role": "developer"}),
    ({"role": "assistant", "content": "Hi"}, assistant(SAID, **DONE)),
    ({"role": "assistant", "content": None}, assistant({**SAID, "text": ""}, **DONE)),
    ({"role": "assistant", "content": "Hi", "phase": "final_answer"}, assistant(SAID, phase="final_answer", **DONE)),
    ({"role": "user", "content": "Hello", "phase": "commentary"}, user(TEXT, **DONE)),
    (user(), user(**DONE)),
    (user(TEXT, status="incomplete"), user(TEXT, status="incomplete")),
    (user(TEXT, TEXT), user(TEXT, TEXT, **DONE)),
    (
        user({**TEXT, "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"}}),
        user({**TEXT, "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"}}, **DONE),
    ),
    (
        user({"type": "input_image", "image_url": URL}),
        user({"type": "input_image", "image_url": URL, "detail": "auto"}, **DONE),
    ),
    (
        user({"type": "input_image", "file_id": "file_1", "detail": "low", "image_url": None}),
        user({"type": "input_image", "file_id": "file_1", "detail": "low"}, **DONE),
    ),
    (
        user({"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "high"}),
        user({"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "high"}, **DONE),
    ),
    (
        user({"type": "input_file", "file_data": "data:text/plain;base64,AA==", "filename": "a.txt"}),
        user({"type": "input_file", "file_data": "data:text/plain;base64,AA==", "filename": "a.txt"}, **DONE),
    ),
    (
        user({"type": "input_file", "file_url": URL, "detail": "low"}),
        user({"type": "input_file", "file_url": URL, "detail": "low"}, **DONE),
    ),
    (assistant({"type": "output_text", "text": "Hi"}), assistant(SAID, **DONE)),
    (assistant({"type": "output_text", "text": "Hi", "parsed": {"a": 1}}), assistant(SAID, **DONE)),
    (
        assistant({"type": "refusal", "refusal": "No."}, status="in_progress"),
        assistant({"type": "refusal", "refusal": "No."}, status="in_progress"),
    ),
    (
        assistant({**SAID, "logprobs": [{**LOGPROB, "top_logprobs": [TOP]}]}),
        assistant({**SAID, "logprobs": [{**LOGPROB, "top_logprobs": [TOP]}]}, **DONE),
    ),
    (
        assistant({**SAID, "annotations": ANNOTATIONS}),
        assistant({**SAID, "annotations": ANNOTATIONS}, **DONE),
    ),
    (CALL, {**CALL, **DONE}),
    ({**CALL, "status": "in_progress", "parsed_arguments": {}}, {**CALL, "status": "in_progress"}),
    (
        {**CALL, "caller": {"type": "direct"}, "async": True},
        {**CALL, **DONE, "caller": {"type": "direct"}, "async": True},
    ),
    ({**CALL, "async_": False, "created_by": "me"}, {**CALL, **DONE, "async": False, "created_by": "me"}),
    ({**CALL, "arguments": ""}, {**CALL, "arguments": "", **DONE}),
    (OUTPUT, {**OUTPUT, **DONE}),
    ({**OUTPUT, "output": "", "name": "f"}, {**OUTPUT, "output": "", "name": "f", **DONE}),
    (
        {**OUTPUT, "output": [TEXT, {"type": "input_image", "image_url": URL, "detail": None}]},
        {**OUTPUT, "output": [TEXT, {"type": "input_image", "image_url": URL, "detail": "auto"}], **DONE},
    ),
    (SEARCHED, SEARCHED),
    (FOUND, {**FOUND, "results": None}),
    (
        {**FOUND, "results": [{"file_id": "file-1", "filename": "a", "text": "b", "score": 0.5}], "output": "[]"},
        {
            **FOUND,
            "results": [{"file_id": "file-1", "filename": "a", "text": "b", "score": 0.5, "attributes": {}}],
            "output": "[]",
        },
    ),
    (
        {**SEARCHED, "status": None, "action": {**SEARCHED["action"], "sources": None, "queries": ["x", "y"]}},
        {**SEARCHED, "action": {**SEARCHED["action"], "queries": ["x", "y"]}},
    ),
    (
        {**SEARCHED, "action": {**SEARCHED["action"], "sources": [{"type": "url", "url": URL}]}, "output": "[]"},
        {**SEARCHED, "action": {**SEARCHED["action"], "sources": [{"type": "url", "url": URL}]}, "output": "[]"},
    ),
    (
        {"type": "web_search_call", "status": "failed", "action": {"type": "find_in_page", "url": URL, "pattern": "x"}},
        {"type": "web_search_call", "status": "failed", "action": {"type": "find_in_page", "url": URL, "pattern": "x"}},
    ),
    (RAN, RAN),
    ({**RAN, "code": None, "outputs": [LOGS]}, {**RAN, "code": None, "outputs": [LOGS]}),
    ({**RAN, "more_calls": True}, {**RAN, "more_calls": True}),
    (CUSTOM, {**CUSTOM, **DONE}),
    (CUSTOM_OUTPUT, {**CUSTOM_OUTPUT, **DONE}),
    ({**CUSTOM_OUTPUT, "output": [TEXT]}, {**CUSTOM_OUTPUT, "output": [TEXT], **DONE}),
    ({"type": "reasoning", "summary": []}, {"type": "reasoning", "summary": []}),
    (
        {
            "type": "reasoning",
            "summary": [SUMMARY],
            "content": [THOUGHT],
            "encrypted_content": "x",
            "status": "completed",
        },
        {
            "type": "reasoning",
            "summary": [SUMMARY],
            "content": [THOUGHT],
            "encrypted_content": "x",
            "status": "completed",
        },
    ),
    (
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": None, "status": None},
        {"type": "reasoning", "summary": []},
    ),
    ({"type": "compaction", "encrypted_content": "x"}, {"type": "compaction", "encrypted_content": "x"}),
]

MESSAGE = {"role": "user", "content": "Hello"}
IMAGE = {"type": "input_image", "image_url": URL}

# what comes in -> param (after `items[2]`), code and a piece of the message of the error
REFUSED: list[tuple[Any, str, str, str]] = [
    ({"role": "assistant"}, ".content", "missing_required_parameter", "content"),
    ({"role": "user", "content": None}, ".content", "missing_required_parameter", "content"),
    ("Hello", "", "invalid_type", "expected an object, but got a string"),
    (None, "", "invalid_type", "expected an object, but got null"),
    ({}, ".type", "missing_required_parameter", "Missing required parameter"),
    ({"content": "Hello"}, ".type", "missing_required_parameter", "items[2].type"),
    ({"id": "msg_1", "content": "Hello"}, ".type", "missing_required_parameter", "items[2].type"),
    ({"type": 5}, ".type", "invalid_type", "expected a string, but got an integer"),
    ({"type": "massage"}, ".type", "invalid_value", "Supported values are: 'message', 'function_call'"),
    ({"type": "additional_tools"}, ".type", "unsupported_value", "in the request's 'tools'"),
    ({"type": "configuration_update"}, ".type", "unsupported_value", "in the request"),
    ({"type": "compaction_trigger"}, ".type", "unsupported_value", "responses.compact"),
    # ids
    ({**MESSAGE, "id": 5}, ".id", "invalid_type", "expected a string"),
    ({**MESSAGE, "id": ""}, ".id", "invalid_value", "letters, numbers, underscores, or dashes"),
    ({**MESSAGE, "id": "msg 1"}, ".id", "invalid_value", "Invalid 'items[2].id': 'msg 1'"),
    ({**MESSAGE, "id": "msg_1\n"}, ".id", "invalid_value", "additional characters"),
    (
        {**MESSAGE, "id": "m" * 65},
        ".id",
        "string_above_max_length",
        "maximum length 64, but got a string with length 65",
    ),
    ({"type": "item_reference"}, ".id", "missing_required_parameter", "items[2].id"),
    ({"type": "item_reference", "id": ""}, ".id", "invalid_value", "additional characters"),
    ({"type": "item_reference", "id": "msg_1", "role": "user"}, ".role", "unknown_parameter", "Unknown parameter"),
    # messages
    ({"role": "user"}, ".content", "missing_required_parameter", "items[2].content"),
    ({"role": "user", "content": None}, ".content", "missing_required_parameter", "items[2].content"),
    ({"role": "user", "content": 5}, ".content", "invalid_type", "one of a string or array of objects"),
    ({"role": "user", "content": TEXT}, ".content", "invalid_type", "but got an object"),
    ({"role": "user", "content": "\ud800"}, ".content", "invalid_value", "lone surrogate"),
    ({"type": "message", "content": "Hello"}, ".role", "missing_required_parameter", "items[2].role"),
    ({"role": "tool", "content": "Hello"}, ".role", "invalid_value", "'assistant', 'system', 'developer', and 'user'"),
    ({"role": 5, "content": "Hello"}, ".role", "invalid_type", "expected a string"),
    ({**MESSAGE, "status": "done"}, ".status", "invalid_value", "'in_progress', 'completed', and 'incomplete'"),
    ({**MESSAGE, "phase": "last"}, ".phase", "invalid_value", "'commentary' and 'final_answer'"),
    ({**MESSAGE, "name": "Ann"}, ".name", "unknown_parameter", "Unknown parameter: 'items[2].name'."),
    # parts
    (user("Hello"), ".content[0]", "invalid_type", "expected an object, but got a string"),
    (user(TEXT, {"text": "Hello"}), ".content[1].type", "missing_required_parameter", "content[1].type"),
    (user({"type": "text", "text": "Hello"}), ".content[0].type", "invalid_value", "'input_text', 'input_image', and"),
    (user(SAID), ".content[0].type", "invalid_value", "Invalid value: 'output_text'"),
    (assistant(TEXT), ".content[0].type", "invalid_value", "'output_text' and 'refusal'"),
    (user({"type": "input_text"}), ".content[0].text", "missing_required_parameter", "content[0].text"),
    (user({"type": "input_text", "text": 5}), ".content[0].text", "invalid_type", "expected a string"),
    (user({"type": "input_text", "text": "\udfff"}), ".content[0].text", "invalid_value", "lone surrogate"),
    (user({**TEXT, "bold": True}), ".content[0].bold", "unknown_parameter", "Unknown parameter"),
    (assistant({"type": "refusal", "refusal": None}), ".content[0].refusal", "missing_required_parameter", "refusal"),
    (
        user({**TEXT, "prompt_cache_breakpoint": {}}),
        ".content[0].prompt_cache_breakpoint.mode",
        "missing_required_parameter",
        "mode",
    ),
    (
        user({**TEXT, "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "1y"}}),
        ".content[0].prompt_cache_breakpoint.ttl",
        "invalid_value",
        "'30m' and '12h'",
    ),
    (
        user({**TEXT, "prompt_cache_breakpoint": {"mode": "explicit", "size": 5}}),
        ".content[0].prompt_cache_breakpoint.size",
        "unknown_parameter",
        "size",
    ),
    (user({"type": "input_image"}), ".content[0].image_url", "missing_required_parameter", "image_url"),
    (user({**IMAGE, "detail": "max"}), ".content[0].detail", "invalid_value", "'low', 'high', 'auto', and 'original'"),
    (user({**IMAGE, "image_url": "a.png"}), ".content[0].image_url", "invalid_value", "Expected a valid URL"),
    (user({**IMAGE, "image_url": {"url": URL}}), ".content[0].image_url", "invalid_type", "but got an object"),
    (user({**IMAGE, "file_id": "f"}), ".content[0].file_id", "mutually_exclusive_parameters", "image_url"),
    (user({"type": "input_file"}), ".content[0].file_data", "missing_required_parameter", "file_data"),
    (
        user({"type": "input_file", "file_url": URL, "file_id": "f"}),
        ".content[0].file_url",
        "mutually_exclusive_parameters",
        "Ensure you are only providing one",
    ),
    (
        user({"type": "input_file", "file_id": "f", "detail": "original"}),
        ".content[0].detail",
        "invalid_value",
        "'low', 'high', and 'auto'",
    ),
    (assistant({**SAID, "annotations": 5}), ".content[0].annotations", "invalid_type", "an array of objects"),
    (assistant({**SAID, "annotations": [5]}), ".content[0].annotations[0]", "invalid_type", "an object"),
    (assistant({**SAID, "annotations": [{}]}), ".content[0].annotations[0].type", "missing_required_parameter", "type"),
    (
        assistant({**SAID, "annotations": [{**CITATION, "title": None}]}),
        ".content[0].annotations[0].title",
        "missing_required_parameter",
        "title",
    ),
    (
        assistant({**SAID, "annotations": [{**CITATION, "end_index": "1"}]}),
        ".content[0].annotations[0].end_index",
        "invalid_type",
        "expected an integer",
    ),
    (
        assistant({**SAID, "annotations": [{**CITATION, "colour": "red"}]}),
        ".content[0].annotations[0].colour",
        "unknown_parameter",
        "colour",
    ),
    (
        assistant({**SAID, "logprobs": [{**LOGPROB, "logprob": "x"}]}),
        ".content[0].logprobs[0].logprob",
        "invalid_type",
        "expected a decimal",
    ),
    (
        assistant({**SAID, "logprobs": [{**LOGPROB, "bytes": [72, 1.5]}]}),
        ".content[0].logprobs[0].bytes[1]",
        "invalid_type",
        "expected an integer, but got a decimal",
    ),
    (
        assistant({**SAID, "logprobs": [{**LOGPROB, "bytes": [True]}]}),
        ".content[0].logprobs[0].bytes[0]",
        "invalid_type",
        "but got a boolean",
    ),
    (
        assistant({**SAID, "logprobs": [{**LOGPROB, "top_logprobs": [LOGPROB]}]}),
        ".content[0].logprobs[0].top_logprobs[0].top_logprobs",
        "unknown_parameter",
        "top_logprobs",
    ),
    # calls and their outputs
    *[
        ({key: value for key, value in item.items() if key != field}, f".{field}", "missing_required_parameter", field)
        for item in (CALL, CUSTOM, OUTPUT, CUSTOM_OUTPUT)
        for field in item
        if field != "type"
    ],
    *[
        ({**item, field: 5}, f".{field}", "invalid_type", "but got an integer")
        for item in (CALL, CUSTOM, OUTPUT, CUSTOM_OUTPUT)
        for field in (*item, "id", "status")
    ],
    *[
        ({**item, "colour": "red"}, ".colour", "unknown_parameter", "items[2].colour")
        for item in (CALL, CUSTOM, OUTPUT, CUSTOM_OUTPUT)
    ],
    *[
        ({**item, "caller": {"type": "program", "caller_id": "p"}}, ".caller.type", "unsupported_value", "by OpenAI")
        for item in (CALL, CUSTOM, OUTPUT, CUSTOM_OUTPUT)
    ],
    ({**CALL, "call_id": ""}, ".call_id", "string_below_min_length", "minimum length 1"),
    ({**CALL, "call_id": "c" * 65}, ".call_id", "string_above_max_length", "maximum length 64"),
    ({**CALL, "name": ""}, ".name", "string_below_min_length", "minimum length 1"),
    ({**CALL, "arguments": {}}, ".arguments", "invalid_type", "expected a string, but got an object"),
    ({**CALL, "async": 1}, ".async", "invalid_type", "expected a boolean"),
    ({**CALL, "caller": {"type": "me"}}, ".caller.type", "invalid_value", "'direct' and 'program'"),
    ({**CALL, "caller": {"type": "direct", "caller_id": "p"}}, ".caller.caller_id", "unknown_parameter", "caller_id"),
    ({**CALL, "caller": "me"}, ".caller", "invalid_type", "an object"),
    ({**CALL, "namespace": 5}, ".namespace", "invalid_type", "expected a string, but got an integer"),
    ({**OUTPUT, "output": {"a": 1}}, ".output", "invalid_type", "one of a string or array of objects"),
    ({**OUTPUT, "output": [SAID]}, ".output[0].type", "invalid_value", "'input_text', 'input_image', and"),
    ({**OUTPUT, "output": ["sunny"]}, ".output[0]", "invalid_type", "an object"),
    # reasoning and compaction
    ({"type": "reasoning", "id": "rs_1"}, ".summary", "missing_required_parameter", "items[2].summary"),
    ({"type": "reasoning", "summary": "x"}, ".summary", "invalid_type", "an array of objects"),
    ({"type": "reasoning", "summary": [THOUGHT]}, ".summary[0].type", "invalid_value", "'summary_text'"),
    ({"type": "reasoning", "summary": [], "content": "x"}, ".content", "invalid_type", "an array of objects"),
    ({"type": "reasoning", "summary": [], "content": [SUMMARY]}, ".content[0].type", "invalid_value", "reasoning_text"),
    ({"type": "reasoning", "summary": [], "encrypted_content": 5}, ".encrypted_content", "invalid_type", "a string"),
    ({"type": "reasoning", "summary": [], "text": "x"}, ".text", "unknown_parameter", "items[2].text"),
    ({**SEARCHED, "status": "done"}, ".status", "invalid_value", "'searching'"),
    ({**SEARCHED, "action": {"type": "sing"}}, ".action.type", "invalid_value", "'open_page'"),
    ({**SEARCHED, "action": {"type": "search", "q": "x"}}, ".action.q", "unknown_parameter", "action.q"),
    ({**SEARCHED, "results": [{"url": 5}]}, ".results[0].url", "invalid_type", "a string"),
    ({**FOUND, "queries": "x"}, ".queries", "invalid_type", "an array"),
    ({**FOUND, "results": [{"score": "x"}]}, ".results[0].score", "invalid_type", "a decimal"),
    ({**FOUND, "results": [{"colour": "x"}]}, ".results[0].colour", "unknown_parameter", "colour"),
    ({**RAN, "container_id": None}, ".container_id", "missing_required_parameter", "container_id"),
    ({**RAN, "outputs": [{"type": "video"}]}, ".outputs[0].type", "invalid_value", "'logs' and 'image'"),
    ({**RAN, "output": 5}, ".output", "invalid_type", "a string"),
    ({"type": "compaction"}, ".encrypted_content", "missing_required_parameter", "encrypted_content"),
    ({"type": "compaction", "encrypted_content": "x", "status": "completed"}, ".status", "unknown_parameter", "status"),
]

HOSTED = [
    "computer_call", "computer_call_output",
    "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output",
    "apply_patch_call", "apply_patch_call_output",
    "tool_search_call", "tool_search_output", "program", "program_output",
]  # fmt: skip


def nothing(item_id: str) -> None:
    """A store without items."""


@pytest.mark.parametrize(("item", "resource"), RESOURCES)
def test_an_item_is_stored_whole(item: dict[str, Any], resource: dict[str, Any]) -> None:
    made = item_resource(item, "items[0]")
    assert made.pop("id").startswith(PREFIXES[made["type"]] + "_")
    assert made == resource


@pytest.mark.parametrize("stored", STORED, ids=["conversations", "responses"])
@pytest.mark.parametrize("item", [item for item, _ in RESOURCES])
def test_what_is_stored_is_what_the_sdk_calls_an_item(item: dict[str, Any], stored: TypeAdapter[Any]) -> None:
    made = item_resource(item, "items[0]")
    typed = stored.validate_python(made, strict=True)
    assert typed.type == made["type"]
    assert stored.dump_python(typed, exclude_unset=True, by_alias=True) == made


@pytest.mark.parametrize("item", [item for item, _ in RESOURCES])
def test_a_stored_item_that_is_sent_back_stays_the_same(item: dict[str, Any]) -> None:
    made = item_resource(item, "items[0]")
    assert item_resource(made, "items[0]") == made


@pytest.mark.parametrize(("item", "param", "code", "fragment"), REFUSED)
def test_a_wrong_item_is_refused_with_its_path(item: Any, param: str, code: str, fragment: str) -> None:
    with pytest.raises(BadRequest) as caught:
        item_resource(item, "items[2]")
    assert (caught.value.param, caught.value.code) == ("items[2]" + param, code)
    assert fragment in caught.value.message


@pytest.mark.parametrize("kind", HOSTED)
def test_items_of_hosted_tools_are_refused_as_such(kind: str) -> None:
    with pytest.raises(BadRequest) as caught:
        item_resource({"type": kind, "id": "x"}, "input[0]")
    assert (caught.value.param, caught.value.code) == ("input[0].type", "unsupported_value")
    assert "hosted by OpenAI" in caught.value.message


def test_every_type_of_item_that_the_sdk_knows_is_served_or_refused_by_name() -> None:
    from typing import get_args

    from openai.types.responses import response_input_item

    classes = get_args(get_args(response_input_item.ResponseInputItem)[0])
    types = {name for cls in classes for name in _literals(cls.model_fields["type"].annotation)}
    assert {"message", "mcp_call", "item_reference"} <= types
    for kind in types - {*PREFIXES, "item_reference"}:
        with pytest.raises(BadRequest) as caught:
            item_resource({"type": kind}, "input[0]")
        assert caught.value.code == "unsupported_value", kind


def _literals(annotation: Any) -> set[str]:
    """The strings in a `Literal`, or in an `Optional` of one."""
    from typing import get_args

    found: set[str] = set()
    for arg in get_args(annotation):
        found |= {arg} if isinstance(arg, str) else _literals(arg)
    return found


def test_an_id_of_the_caller_is_kept() -> None:
    assert item_resource({**MESSAGE, "id": "mine-1"}, "items[0]")["id"] == "mine-1"
    assert item_resource({**CALL, "id": "fc_1"}, "items[0]")["id"] == "fc_1"


@pytest.mark.parametrize("kind", PREFIXES)
def test_ids_are_unique_and_may_be_sent_back(kind: str) -> None:
    ids = {new_item_id(kind) for _ in range(100)}
    assert len(ids) == 100
    assert all(item_resource({"type": "item_reference", "id": id}, "input[0]")["id"] == id for id in ids)


@pytest.mark.parametrize("reference", [{"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}])
def test_a_reference_stays_one_until_it_is_looked_up(reference: dict[str, Any]) -> None:
    assert item_resource(reference, "input[0]") == {"type": "item_reference", "id": "msg_1"}


# -- lists ----------------------------------------------------------------------------------------------------------


def test_references_in_a_list_become_what_they_stand_for() -> None:
    known = {"id": "msg_1", **user(TEXT, **DONE)}
    items = item_resources([MESSAGE, {"id": "msg_1"}], "input", {"msg_1": known}.get)
    assert [item["content"] for item in items] == [[TEXT], [TEXT]]
    assert items[1] == known


def failing(items: Any, found: dict[str, Any] | None = None) -> RequestError:
    with pytest.raises(RequestError) as caught:
        item_resources(items, "input", lambda item_id: found)
    return caught.value


def test_a_reference_that_leads_nowhere_is_not_found() -> None:
    error = failing([MESSAGE, {"id": "msg_1"}])
    assert isinstance(error, NotFound)
    assert (error.message, error.param, error.code) == (
        "Item with id 'msg_1' not found.",
        "input[1].id",
        "item_not_found",
    )


def test_a_reference_to_a_message_of_a_chat_completion_is_not_found() -> None:
    error = failing([{"id": "chatcmpl-1-0"}], {"id": "chatcmpl-1-0", "role": "user", "content": "Hello"})
    assert (error.status, error.code) == (404, "item_not_found")


@pytest.mark.parametrize("second", [{**MESSAGE, "id": "msg_1"}, {"id": "msg_1"}])
def test_an_id_that_comes_twice_is_refused(second: dict[str, Any]) -> None:
    error = failing([{**MESSAGE, "id": "msg_1"}, second], {"id": "msg_1", **user(TEXT, **DONE)})
    assert (error.status, error.param, error.code) == (400, "input[1].id", "duplicate_item")
    assert error.message.startswith("Duplicate item found with id msg_1.")


@pytest.mark.parametrize("items", ["Hello", {"0": MESSAGE}, 5])
def test_items_are_an_array(items: Any) -> None:
    error = failing(items)
    assert (error.param, error.code) == ("input", "invalid_type")


def test_a_list_may_be_empty() -> None:
    assert item_resources([], "input", nothing) == []

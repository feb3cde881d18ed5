"""Items of MCP servers as callers send them back, and as they are stored."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.conversations import ConversationItem
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from localai_shim.endpoints.hosted.mcp.items import PREFIXES
from localai_shim.endpoints.items.resources import item_resource
from localai_shim.errors import BadRequest
from tests.endpoints.hosted.mcp.servers import shown_error

CALLED: dict[str, Any] = {"server_label": "calc", "name": "add", "arguments": "{}"}
SCHEMA = {"type": "object", "properties": {}}
TOOL = {"name": "add", "input_schema": SCHEMA}
FAILED = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no"}]}
DENIES = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False}
ITEMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"type": "mcp_list_tools", "server_label": "calc", "tools": [TOOL]},
        {"server_label": "calc", "tools": [{**TOOL, "description": None, "annotations": None}]},
    ),
    (
        {"type": "mcp_list_tools", "server_label": "calc", "tools": [], "error": "down"},
        {"server_label": "calc", "tools": [], "error": "down"},
    ),
    (
        {"type": "mcp_call", **CALLED, "output": "5"},
        {"status": "completed", **CALLED, "output": "5", "error": None},
    ),
    (
        {"type": "mcp_call", **CALLED, "error": FAILED, "approval_request_id": "mcpr_1"},
        {
            "status": "failed",
            **CALLED,
            "output": None,
            "error": shown_error(FAILED, "no"),
            "approval_request_id": "mcpr_1",
        },
    ),
    (
        {"type": "mcp_call", **CALLED, "error": {"type": "http_error", "code": 500, "message": "down"}},
        {
            "status": "failed",
            **CALLED,
            "output": None,
            "error": shown_error({"type": "http_error", "code": 500, "message": "down"}, "Error: down"),
        },
    ),
    ({"type": "mcp_approval_request", **CALLED}, CALLED),
    (DENIES, {"approval_request_id": "mcpr_1", "approve": False}),
    ({**DENIES, "reason": "Wrong."}, {"approval_request_id": "mcpr_1", "approve": False, "reason": "Wrong."}),
]
STORED: list[TypeAdapter[Any]] = [TypeAdapter(ConversationItem), TypeAdapter(ResponseItem)]


@pytest.mark.parametrize(("item", "resource"), ITEMS)
def test_an_item_is_stored_whole_and_stays_the_same_when_it_is_sent_back(item: Any, resource: Any) -> None:
    made = item_resource(item, "input[0]")
    assert item_resource(made, "input[0]") == made
    assert made.pop("id").startswith(PREFIXES[made["type"]] + "_")
    assert made == {"type": item["type"], **resource}


@pytest.mark.parametrize("stored", STORED, ids=["conversations", "responses"])
@pytest.mark.parametrize("item", [item for item, _ in ITEMS])
def test_a_stored_item_is_what_the_sdk_calls_one(item: Any, stored: TypeAdapter[Any]) -> None:
    made = item_resource(item, "input[0]")
    typed = stored.validate_python(made, strict=True)
    assert typed.type == made["type"]
    assert stored.dump_python(typed, exclude_unset=True, by_alias=True) == made


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "mcp_list_tools", "server_label": "calc"}, ".tools", "missing_required_parameter"),
    ({"type": "mcp_list_tools", "tools": []}, ".server_label", "missing_required_parameter"),
    (
        {"type": "mcp_list_tools", "server_label": "calc", "tools": [{"name": "add"}]},
        ".tools[0].input_schema",
        "missing_required_parameter",
    ),
    (
        {"type": "mcp_list_tools", "server_label": "calc", "tools": [{**TOOL, "input_schema": object()}]},
        ".tools[0]",
        "invalid_value",
    ),
    ({"type": "mcp_call", **CALLED, "name": ""}, ".name", "string_below_min_length"),
    ({"type": "mcp_call", **CALLED, "status": "searching"}, ".status", "invalid_value"),
    ({"type": "mcp_call", **CALLED, "error": {"type": "other"}}, ".error.type", "invalid_value"),
    ({"type": "mcp_call", **CALLED, "error": 5}, ".error", "invalid_type"),
    ({"type": "mcp_call", **CALLED, "result": 5}, ".result", "unknown_parameter"),
    (
        {"type": "mcp_approval_request", "server_label": "calc", "name": "add"},
        ".arguments",
        "missing_required_parameter",
    ),
    ({**DENIES, "approve": None}, ".approve", "missing_required_parameter"),
    ({**DENIES, "approval_request_id": None}, ".approval_request_id", "missing_required_parameter"),
]


@pytest.mark.parametrize(("item", "param", "code"), REFUSED)
def test_a_wrong_item_is_refused_with_its_path(item: Any, param: str, code: str) -> None:
    with pytest.raises(BadRequest) as caught:
        item_resource(item, "input[2]")
    assert (caught.value.param, caught.value.code) == (f"input[2]{param}", code)

"""Is a response one that the Responses API could have returned? The half of the grammar that is not about streams."""

from __future__ import annotations

from typing import Any

from openai import BaseModel
from openai.types.responses import Response
from pydantic import ValidationError

from tests.endpoints.responses import legal_hosted, legal_mcp

PREFIXES = {
    **legal_hosted.PREFIXES,
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "custom_tool_call": "ctc_",
}
"""Type of an output item -> how its id begins."""

_LAST_ITEM = {
    "completed": {"completed"},
    "incomplete": {"completed", "incomplete"},
    "failed": {"completed", "incomplete"},
    "cancelled": {"completed", "incomplete"},
    "in_progress": {"completed", "in_progress"},
    "queued": set[str](),
}
"""Status of a response -> statuses of its last item. Those before it are completed."""

_MAY_LACK_STATUS = {"reasoning", "custom_tool_call"}


def check_response(response: Response) -> None:
    """A response, from `create`, `retrieve`, `cancel` or an event, is one that the API could have returned.

    Raises:
        AssertionError: it is not; says what is wrong.
    """
    if type(response) is not Response:  # what `parse` returns has more, which does not come from the API
        response = _validated(Response, response.to_dict(warnings=False))
    revalidate(response)
    status = response.status
    assert response.id.startswith("resp_") and len(response.id) > len("resp_"), f"id is {response.id!r}"
    assert status in _LAST_ITEM, f"status is {status!r}"
    assert response.background or status not in ("queued", "cancelled"), f"is {status}, and not in the background"
    assert (response.error is not None) == (status == "failed"), f"is {status} with the error {response.error}"
    reason = response.incomplete_details and response.incomplete_details.reason
    assert (reason is not None) == (status == "incomplete"), f"is {status} with the reason {reason}"
    assert response.incomplete_details is None or reason, "has incomplete_details without a reason"
    completed_at = response.completed_at
    assert completed_at is None or status == "completed", f"is {status}, and was completed at {completed_at}"
    assert completed_at is None or completed_at >= response.created_at, "was completed before it was created"
    _check_usage(response)
    _check_output(response)


def _check_usage(response: Response) -> None:
    usage, status = response.usage, response.status
    assert usage is None or status not in ("queued", "in_progress"), f"is {status}, and has its usage"
    assert usage is not None or status not in ("completed", "incomplete"), f"is {status}, and has no usage"
    if usage is None:
        return
    read, wrote = usage.input_tokens_details, usage.output_tokens_details
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens, f"total_tokens is not the sum: {usage}"
    assert 0 <= read.cached_tokens <= usage.input_tokens, f"cached_tokens is not a part of the input: {usage}"
    assert 0 <= read.cache_write_tokens <= usage.input_tokens, f"cache_write_tokens is not a part of it: {usage}"
    assert 0 <= wrote.reasoning_tokens <= usage.output_tokens, f"reasoning_tokens is not a part of it: {usage}"


def _check_output(response: Response) -> None:
    items: list[Any] = list(response.output)
    for name in ("id", "call_id"):
        ids = [getattr(item, name) for item in items if hasattr(item, name)]
        assert len(set(ids)) == len(ids), f"output has the same {name} twice: {ids}"
    for item in items:
        check_item(item)
        allowed = _LAST_ITEM[str(response.status)] if item is items[-1] else {"completed"}
        if item.type in legal_mcp.WITHOUT_STATUS:
            continue
        if item.type in legal_hosted.CALLS:
            allowed = {*allowed, "failed"}
        status = getattr(item, "status", None)
        assert status in allowed or (allowed and may_lack(item)), f"is {response.status}, and {item.id} is {status}"
    parts = [part for item in items if item.type == "message" for part in item.content]
    text = "".join(part.text for part in parts if part.type == "output_text")
    assert response.output_text == text, f"output_text is {response.output_text!r}, and the messages say {text!r}"


def check_item(item: Any) -> None:
    """An output item is of a type that a local model makes, and its ids are those of this type."""
    prefix = PREFIXES.get(item.type)
    assert prefix is not None, f"has an item of type {item.type}: there is no rule for it"
    assert item.id and item.id.startswith(prefix) and item.id != prefix, f"has a {item.type} with the id {item.id!r}"
    if item.type in ("function_call", "custom_tool_call"):
        assert item.call_id.startswith("call_"), f"has a call with the call_id {item.call_id!r}"
        assert item.name, f"has a call without a name: {item.id}"


def may_lack(item: Any) -> bool:
    """The item has no status, and need not have one."""
    return item.type in _MAY_LACK_STATUS and getattr(item, "status", None) is None


def revalidate(made: BaseModel) -> None:
    """The object is what its own class demands, whole: every required field is there and of the right type."""
    # By alias: in openai 3.x a tool's `async` and a schema's `schema` are fields of another name.
    try:
        fields = made.model_dump(by_alias=True, warnings="error")
    except ValueError as error:
        raise AssertionError(f"is not what its type demands: {error}") from None
    assert _validated(type(made), fields) == made, "is another object after validation"


def _validated(cls: type[BaseModel], fields: dict[str, Any]) -> Any:
    try:
        return cls.model_validate(fields, strict=True)
    except ValidationError as error:
        errors = error.errors()
        # Of a union's members only the one whose `type` is right has something to say.
        others = {each["loc"][:-1] for each in errors if each["loc"][-1] == "type" and each["type"] == "literal_error"}
        said = [each for each in errors if each["loc"][:-1] not in others] or errors
        what = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in said[:3]]
        raise AssertionError(f"is not what its type demands: {'; '.join(what)}") from None

"""OpenAI's messages, checked and brought into the form that chat templates read."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from ..errors import BadRequest

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_FIELDS = {"role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio", "annotations"}
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_MAY_BE_EMPTY = {"assistant"}  # content may be null there


def template_messages(messages: Any, *, knows_developer: bool = False) -> list[dict[str, Any]]:
    """Check `messages` as OpenAI's API does and normalise them for a chat template.

    Args:
        messages: the request's field, untrusted.
        knows_developer: the template has a developer role of its own; otherwise it becomes `system`.

    Raises:
        BadRequest: with the path of the field that is wrong, such as `messages[2].content[0].type`.
    """
    if not isinstance(messages, list):
        raise BadRequest.wrong_type("messages", "an array of objects", messages)
    if not messages:
        raise BadRequest(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            param="messages",
            code="empty_array",
        )
    return [_message(m, f"messages[{i}]", knows_developer) for i, m in enumerate(messages)]


def _message(message: Any, path: str, knows_developer: bool) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise BadRequest.wrong_type(path, "an object", message)
    if "role" not in message:
        raise BadRequest.missing(f"{path}.role")
    role = message["role"]
    if role not in ROLES:
        supported = ", ".join(f"'{r}'" for r in ROLES[:-1]) + f", and '{ROLES[-1]}'"
        raise BadRequest(
            f"Invalid value: {role!r}. Supported values are: {supported}.", param=f"{path}.role", code="invalid_value"
        )
    out: dict[str, Any] = {"role": role, "content": _content(message, role, path)}
    if role == "developer" and not knows_developer:
        out["role"] = "system"
    if role == "function":
        out["role"] = "tool"
    if message.get("audio") is not None:
        raise BadRequest("Audio is not supported by this client.", param=f"{path}.audio", code="unsupported_value")
    name = _optional_string(message, "name", path)
    if role == "function" and name is None:
        raise BadRequest.missing(f"{path}.name")
    if name is not None:
        out["name"] = name
    if role == "tool":
        if message.get("tool_call_id") is None:
            raise BadRequest.missing(f"{path}.tool_call_id")
        out["tool_call_id"] = _optional_string(message, "tool_call_id", path)
    if role == "assistant":
        calls = _tool_calls(message, path)
        if calls:
            out["tool_calls"] = calls
        elif message.get("content") is None and message.get("refusal") is None:
            raise BadRequest.missing(f"{path}.content")
    # Fields beyond OpenAI's, such as reasoning_content, are the template's affair.
    out.update({k: v for k, v in message.items() if k not in _FIELDS and v is not None})
    return out


def _content(message: dict[str, Any], role: str, path: str) -> str:
    content = message.get("content")
    if content is None:
        if role in _MAY_BE_EMPTY or (role == "function" and "content" in message):
            refusal = message.get("refusal")
            return refusal if isinstance(refusal, str) else ""
        raise BadRequest.missing(f"{path}.content")
    if isinstance(content, str):
        return encodable(content, f"{path}.content")
    if not isinstance(content, list):
        raise BadRequest.wrong_type(f"{path}.content", "one of a string or array of objects", content)
    return "".join(_part(part, f"{path}.content[{i}]") for i, part in enumerate(content))


def _part(part: Any, path: str) -> str:
    if not isinstance(part, dict):
        raise BadRequest.wrong_type(path, "an object", part)
    kind = part.get("type")
    if kind is None:
        raise BadRequest.missing(f"{path}.type")
    field = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    if field is None:
        known = kind in ("image_url", "input_image", "input_audio", "file", "input_file", "video_url")
        what = f"Content parts of type {kind!r} are not supported by this model: it reads text only."
        if not known:
            what = f"Invalid value: {kind!r}. Supported values are: 'text' and 'refusal'."
        raise BadRequest(what, param=f"{path}.type", code="unsupported_value" if known else "invalid_value")
    text = part.get(field)
    if text is None:
        raise BadRequest.missing(f"{path}.{field}")
    if not isinstance(text, str):
        raise BadRequest.wrong_type(f"{path}.{field}", "a string", text)
    return encodable(text, f"{path}.{field}")


def encodable(text: str, path: str) -> str:
    """The text, which has to be Unicode that could be sent: lone surrogates are not."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(
            f"Invalid '{path}': the character at index {error.start} is a lone surrogate, which is no text.",
            param=path,
            code="invalid_value",
        ) from None
    return text


def _tool_calls(message: dict[str, Any], path: str) -> list[dict[str, Any]]:
    """The assistant's earlier calls, with arguments as objects, which is what templates render."""
    calls = message.get("tool_calls")
    legacy = message.get("function_call")
    if calls is None and legacy is not None:
        return [{"type": "function", "function": _function(legacy, f"{path}.function_call")}]
    if calls is None:
        return []
    if not isinstance(calls, list):
        raise BadRequest.wrong_type(f"{path}.tool_calls", "an array of objects", calls)
    out = []
    for i, call in enumerate(calls):
        at = f"{path}.tool_calls[{i}]"
        if not isinstance(call, dict):
            raise BadRequest.wrong_type(at, "an object", call)
        if not isinstance(call.get("function"), dict):
            raise BadRequest.missing(f"{at}.function")
        out.append(
            {"id": call.get("id"), "type": "function", "function": _function(call["function"], f"{at}.function")}
        )
    return out


def _function(function: Any, path: str) -> dict[str, Any]:
    if not isinstance(function, dict):
        raise BadRequest.wrong_type(path, "an object", function)
    name, arguments = function.get("name"), function.get("arguments", "{}")
    if not isinstance(name, str):
        raise BadRequest.missing(f"{path}.name")
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):  # a malformed call stays in the conversation as it was
            arguments = json.loads(arguments or "{}")
    return {"name": name, "arguments": arguments}


def _optional_string(message: dict[str, Any], key: str, path: str) -> str | None:
    value = message.get(key)
    if value is not None and not isinstance(value, str):
        raise BadRequest.wrong_type(f"{path}.{key}", "a string", value)
    return value

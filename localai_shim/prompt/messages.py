"""OpenAI's messages, checked and brought into the form that chat templates read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ..errors import BadRequest
from ..formats.values import MAX_NESTING, json_or_text, nests_too_deeply
from .history import Call, Message
from .media import FILES
from .parts import KINDS, FileParts, MediaPart, ReadPart, joined, no_media

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
# What OpenAI's messages have, and what the SDK and frameworks add to an answer that is sent back.
_FIELDS = {"role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio", "annotations"}
_FIELDS |= {"parsed", "invalid_tool_calls"}
REASONING = ("reasoning_content", "reasoning", "thinking")
"""Names of servers, frameworks and templates for reasoning."""
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


def template_messages(
    messages: object, *, knows_developer: bool = False, read_part: ReadPart = no_media
) -> list[Message]:
    """Check `messages` as OpenAI's API does and normalise them for a chat template.

    Calls come out as calls of functions with an id and arguments that are an object (a string, where the model's JSON
    was broken), the messages that answer them with `tool_call_id` and `name`, reasoning as `reasoning_content`. Content
    is a string, or a list of parts where some are not text.

    Args:
        messages: the request's field, untrusted.
        knows_developer: the template has a developer role; otherwise it becomes `system`.
        read_part: reads parts that are not text.

    Raises:
        BadRequest: with the path of the field that is wrong, such as `messages[2].content[0].type`.
    """
    if not isinstance(messages, list):
        raise BadRequest.wrong_type("messages", "an array of objects", messages)
    if not messages:
        raise BadRequest.empty_array("messages")
    out = [_message(m, f"messages[{i}]", knows_developer, read_part) for i, m in enumerate(messages)]
    _match_calls(out, messages)
    return out


def _message(value: object, path: str, knows_developer: bool, read_part: ReadPart) -> Message:
    message = _object(value, path)
    if "role" not in message:
        raise BadRequest.missing(f"{path}.role")
    role = message["role"]
    if not isinstance(role, str) or role not in ROLES:
        raise BadRequest.unknown_value(f"{path}.role", role, ROLES)
    out: Message = {"role": role, "content": _content(message, role, path, read_part)}
    if role == "developer" and not knows_developer:
        out["role"] = "system"
    if role == "function":
        out["role"] = "tool"
    if message.get("audio") is not None:
        raise BadRequest.unsupported_value(f"{path}.audio", "Audio is not supported by this client.")
    name = (_string if role == "function" else _optional_string)(message, "name", path)
    if name is not None:
        out["name"] = name
    if role == "tool":
        out["tool_call_id"] = _string(message, "tool_call_id", path)
    if role == "assistant":
        calls = _tool_calls(message, path)
        if calls:
            out["tool_calls"] = calls
        elif "content" not in message and all(message.get(name) is None for name in ("refusal", *REASONING)):
            raise BadRequest.missing(f"{path}.content")
    # Fields beyond OpenAI's are the template's affair.
    out.update({k: v for k, v in message.items() if k not in _FIELDS and v is not None})
    if role == "assistant":
        _unify_reasoning(out, path)
    return out


def _unify_reasoning(message: Message, path: str) -> None:
    """Put reasoning under one name: servers and frameworks have several."""
    given = [name for name in REASONING if isinstance(message.get(name), str)]
    texts = [encodable(message.pop(name), f"{path}.{name}") for name in given]
    if text := next(filter(None, texts), None):
        message["reasoning_content"] = text


def _content(message: Mapping[str, object], role: str, path: str, read_part: ReadPart) -> str | list[dict[str, str]]:
    content = message.get("content")
    if content is None:
        if role == "assistant" or (role == "function" and "content" in message):
            refusal = message.get("refusal")
            return refusal if isinstance(refusal, str) else ""
        raise BadRequest.missing(f"{path}.content")
    if isinstance(content, str):
        return encodable(content, f"{path}.content")
    if not isinstance(content, list):
        raise BadRequest.wrong_type(f"{path}.content", "one of a string or array of objects", content)
    check_not_bytes(content, f"{path}.content")
    return joined([_part(part, f"{path}.content[{i}]", role, read_part) for i, part in enumerate(content)])


def _part(value: object, path: str, role: str, read_part: ReadPart) -> str | MediaPart | FileParts:
    part = _object(value, path)
    kind = part.get("type")
    if kind is None:
        raise BadRequest.missing(f"{path}.type")
    if isinstance(kind, str) and kind in _TEXT_PARTS:
        return _string(part, _TEXT_PARTS[kind], path)
    if isinstance(kind, str) and (kind in KINDS or kind in FILES) and role != "assistant":
        return read_part(part, path)
    media = () if role == "assistant" else ("image_url", "video_url", "input_audio", "file")
    raise BadRequest.unknown_value(f"{path}.type", kind, ("text", "refusal", *media))


def encodable(text: str, path: str) -> str:
    """The text, which has to be Unicode that could be sent: lone surrogates are not."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        why = f"the character at index {error.start} is a lone surrogate, which is not text"
        raise BadRequest.refused(path, why) from None
    return text


def check_not_bytes(parts: Sequence[object], path: str) -> None:
    """Refuse content that was passed as bytes, of which the SDK makes an array of integers."""
    if parts and all(type(part) is int for part in parts):
        why = "expected a string or an array of objects, but got integers, which the SDK makes of bytes. Pass a string"
        raise BadRequest.refused(path, why, "invalid_type")


def check_texts(value: object, path: str) -> None:
    """Find out whether the strings and keys of a JSON value are text; see `encodable`."""
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise BadRequest.refused(path, "it holds a lone surrogate, which is not text") from None
    except (ValueError, TypeError, RecursionError):
        pass  # the template says what it cannot read


def _tool_calls(message: Mapping[str, object], path: str) -> list[Call]:
    """The assistant's earlier calls, with arguments as objects, which is what templates render."""
    calls, legacy = message.get("tool_calls"), message.get("function_call")
    if calls is not None and not isinstance(calls, list):
        raise BadRequest.wrong_type(f"{path}.tool_calls", "an array of objects", calls)
    if not calls and legacy is not None:  # the older form has no ids, but templates want some
        function = _function(legacy, f"{path}.function_call")
        return [{"id": f"{path}.function_call", "type": "function", "function": function}]
    return [_tool_call(call, f"{path}.tool_calls[{i}]") for i, call in enumerate(calls or ())]


def _tool_call(value: object, path: str) -> Call:
    call = _object(value, path)
    kind = call.get("type") or ("custom" if "custom" in call else "function")
    if kind not in ("function", "custom"):
        raise BadRequest.unknown_value(f"{path}.type", kind, ("function", "custom"))
    if call.get(kind) is None:
        raise BadRequest.missing(f"{path}.{kind}")
    function = (_function if kind == "function" else _custom)(call[kind], f"{path}.{kind}")
    return {"id": _string(call, "id", path), "type": "function", "function": function}


def _function(value: object, path: str) -> dict[str, object]:
    function = _object(value, path)
    name, arguments = _string(function, "name", path), function.get("arguments")
    if arguments is not None and not isinstance(arguments, str | dict):
        raise BadRequest.wrong_type(f"{path}.arguments", "a string", arguments)
    if not isinstance(arguments, dict):
        arguments = parsed_arguments(encodable(arguments or "{}", f"{path}.arguments"))
    elif nests_too_deeply(arguments):
        why = f"more than {MAX_NESTING} objects and arrays stand in each other. A string of JSON may be nested deeper"
        raise BadRequest.refused(f"{path}.arguments", why)
    return {"name": name, "arguments": arguments}


def _custom(value: object, path: str) -> dict[str, object]:
    """The model saw a custom tool as a function of one string."""
    custom = _object(value, path)
    return {"name": _string(custom, "name", path), "arguments": {"input": _string(custom, "input", path)}}


def parsed_arguments(text: str) -> dict[str, object] | str:
    """Arguments as an object. Malformed ones stay in the conversation as they were: the model may put them right."""
    arguments = json_or_text(text)
    try:
        json.dumps(arguments, ensure_ascii=False).encode()  # escapes can hide lone surrogates
    except ValueError:
        return text
    return arguments if isinstance(arguments, dict) else text


def _match_calls(messages: list[Message], sent: list[Message]) -> None:
    """Check that calls and results match, and name the function in each result. `messages` were made of `sent`."""
    calls: dict[str, str] = {}  # of the assistant's last turn: id -> name
    answered: dict[str, int] = {}
    turn = 0
    for i, message in enumerate(messages):
        if sent[i]["role"] == "tool":
            _answer(message, i, calls, answered)
            continue
        _check_answered(turn, calls, answered)
        calls, answered, turn = {}, {}, i
        if sent[i]["role"] == "function":  # the older form, of which OpenAI demands no order
            before = messages[i - 1].get("tool_calls") if i and not sent[i - 1].get("tool_calls") else None
            if before:
                message["tool_call_id"] = before[0]["id"]
        elif sent[i].get("tool_calls"):
            calls = _names_by_id(message, f"messages[{i}]")
    _check_answered(turn, calls, answered)


def _names_by_id(message: Message, path: str) -> dict[str, str]:
    calls: dict[str, str] = {}
    for j, call in enumerate(message.get("tool_calls", ())):
        if call["id"] in calls:
            why = f"Duplicate value for 'id' of '{call['id']}' in '{path}.tool_calls'."
            raise _invalid(f"{path}.tool_calls[{j}].id", why)
        calls[call["id"]] = call["function"]["name"]
    return calls


def _invalid(path: str, why: str) -> BadRequest:
    return BadRequest(f"Invalid parameter: {why}", param=path)


def _answer(message: Message, i: int, calls: dict[str, str], answered: dict[str, int]) -> None:
    call_id, path = message["tool_call_id"], f"messages[{i}].tool_call_id"
    if not calls:
        why = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        raise _invalid(f"messages[{i}].role", why)
    if call_id not in calls:
        raise _invalid(path, f"'tool_call_id' of '{call_id}' not found in 'tool_calls' of previous message.")
    if call_id in answered:
        where = f"messages[{answered[call_id]}] and messages[{i}]"
        raise _invalid(path, f"Duplicate value for 'tool_call_id' of '{call_id}', in {where}.")
    answered[call_id] = i
    message.setdefault("name", calls[call_id])


def _check_answered(turn: int, calls: dict[str, str], answered: dict[str, int]) -> None:
    missing = [call_id for call_id in calls if call_id not in answered]
    if missing:
        text = "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
        text += f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(missing)}"
        raise BadRequest(text, param=f"messages[{turn}].role")


def _object(value: object, path: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise BadRequest.wrong_type(path, "an object", value)
    return value


def _string(message: Mapping[str, object], key: str, path: str) -> str:
    value = _optional_string(message, key, path)
    if value is None:
        raise BadRequest.missing(f"{path}.{key}")
    return value


def _optional_string(message: Mapping[str, object], key: str, path: str) -> str | None:
    value = message.get(key)
    if value is not None and not isinstance(value, str):
        raise BadRequest.wrong_type(f"{path}.{key}", "a string", value)
    return None if value is None else encodable(value, f"{path}.{key}")

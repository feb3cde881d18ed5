"""Items of the Responses API as the messages that chat templates read.

An item is a message, a call, a result, or reasoning. A template reads turns: reasoning, text and the calls after it
are one message of the assistant, and the results of its calls follow it directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ..errors import BadRequest
from ..types import Json
from .fit.form import joined_contents
from .history import Message, without
from .messages import parsed_arguments
from .parts import FileParts, MediaPart, ReadPart, joined, no_media

Item = Json
"""A checked item, as it is stored: its type says which fields it has."""
_CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
_RESULTS = {result: call for call, result in _CALLS.items()}
_SUMMARY = "Summary of the conversation so far:\n\n"


def item_messages(
    items: Sequence[Item],
    instructions: str | None,
    unseal: Callable[[str], str | None],
    *,
    paths: Mapping[str, str] = MappingProxyType({}),
    knows_developer: bool = False,
    read_part: ReadPart = no_media,
) -> list[Message]:
    """The conversation as chat templates read it, in the form of `template_messages`.

    Args:
        items: checked ones, oldest first: what was stored, and then what the request brings.
        instructions: the system message that they begin with.
        unseal: reads `encrypted_content`.
        paths: id of each item that the request brings -> the field that it came in, for errors.
        knows_developer: the template has a developer role; otherwise it becomes `system`.
        read_part: reads parts that are not text.

    Raises:
        BadRequest: a result without its call, a call without its result, an item twice, one that the model cannot
            read, or nothing to answer.
    """
    _check_ids(items)
    turns = _Turns(unseal, "developer" if knows_developer else "system", read_part)
    for item in items:
        turns.add(item, paths.get(item.get("id", ""), "input"))
    messages = turns.finish()
    if instructions is not None:
        messages = [{"role": "system", "content": instructions}, *messages]
    if not messages:
        raise BadRequest.refused("input", "it contains no message to respond to", "empty_array")
    return messages


def qualified_name(namespace: str | None, name: str) -> str:
    """Name that the model has for a tool of a namespace."""
    return name if namespace is None else f"{namespace}__{name}"


def _check_ids(items: Sequence[Item]) -> None:
    seen: set[str] = set()
    for item in items:
        key = item.get("id")
        if key is None:
            continue
        if key in seen:
            raise duplicate_item(key, "input")
        seen.add(key)


def duplicate_item(item_id: str, path: str) -> BadRequest:
    """The error for an id that is used twice."""
    text = f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again."
    return BadRequest(text, param=path, code="duplicate_item")


class _Turns:
    """Collects items into messages. The assistant's last turn may still be open: a call or its text may follow."""

    def __init__(self, unseal: Callable[[str], str | None], developer: str, read_part: ReadPart) -> None:
        self._unseal = unseal
        self._read_part = read_part
        self._developer = developer
        self._messages: list[Message] = []
        self._turn: Message | None = None
        self._has_text = False  # the open turn has had a message, which may have been empty
        self._calls: dict[str, tuple[str, str]] = {}  # call id -> name and kind of what was called
        self._results: dict[str, Message] = {}
        self._cut: set[str] = set()  # calls that the end of the answer cut off

    def add(self, item: Item, path: str) -> None:
        kind = item["type"]
        if kind == "message" and item["role"] == "assistant":
            self._add_text("".join(_text(part) for part in item["content"]))
        elif kind == "message":
            self._turn = None
            content = self._content(item["content"], f"{path}.content")
            role = self._developer if item["role"] == "developer" else item["role"]
            self._messages.append({"role": role, "content": content})
        elif kind == "reasoning":
            self._add_reasoning(item)
        elif kind in _CALLS:
            self._add_call(item, kind)
        elif kind in _RESULTS:
            self._add_result(item, kind, path)
        else:  # a compaction
            self._turn = None
            self._messages.append({"role": "user", "content": _SUMMARY + self._opened(item, path)})

    def finish(self) -> list[Message]:
        """All messages, with results behind the calls that they answer."""
        out: list[Message] = []
        lost = self._cut - self._results.keys()
        for message in self._messages:
            calls = [call for call in message.get("tool_calls", ()) if call["id"] not in lost]
            if "tool_calls" in message:
                message = {**message, "tool_calls": calls} if calls else without(message, "tool_calls")
                if not (calls or message["content"] or message.get("reasoning_content")):
                    continue
            out.append(message)
            out += [self._result(call["id"]) for call in calls]
        return out

    def _result(self, call_id: str) -> Message:
        if call_id not in self._results:
            what = self._calls[call_id][1].replace("_", " ")
            raise BadRequest(f"No tool output found for {what} {call_id}.", param="input", code="missing_tool_output")
        return self._results[call_id]

    def _assistant(self) -> Message:
        if self._turn is None:
            self._turn, self._has_text = {"role": "assistant", "content": ""}, False
            self._messages.append(self._turn)
        return self._turn

    def _add_text(self, text: str) -> None:
        turn = self._assistant()
        if self._has_text and turn.get("tool_calls"):  # whose results come first: the text stays with its calls
            turn["content"] = joined_contents(turn["content"], text)
            return
        if self._has_text:
            self._turn = None
            turn = self._assistant()
        turn["content"], self._has_text = text, True

    def _add_reasoning(self, item: Item) -> None:
        parts = [part["text"] for part in item.get("content") or item.get("summary") or ()]
        text = "\n\n".join(parts)
        if not text and item.get("encrypted_content"):
            text = self._unseal(item["encrypted_content"]) or ""
        if not text:
            return
        turn = self._turn
        if turn is not None and (self._has_text or turn.get("tool_calls")):
            self._turn = None  # reasoning after output begins another turn
        turn = self._assistant()
        before = turn.get("reasoning_content")
        turn["reasoning_content"] = f"{before}\n\n{text}" if before else text

    def _add_call(self, item: Item, kind: str) -> None:
        call_id = item["call_id"]
        if call_id in self._calls:
            raise BadRequest(f"Duplicate tool call found with call_id {call_id}.", param="input", code="duplicate_item")
        arguments = parsed_arguments(item["arguments"] or "{}") if kind == "function_call" else {"input": item["input"]}
        name = qualified_name(item.get("namespace"), item["name"])
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        self._assistant().setdefault("tool_calls", []).append(call)
        self._calls[call_id] = name, kind
        if item.get("status") == "incomplete":
            self._cut.add(call_id)

    def _add_result(self, item: Item, kind: str, path: str) -> None:
        self._turn = None
        call_id = item["call_id"]
        what = kind.replace("_", " ")
        if call_id not in self._calls or self._calls[call_id][1] != _RESULTS[kind]:
            text = f"No tool call found for {what} with call_id {call_id}."
            raise BadRequest(text, param="input", code="missing_tool_call")
        if call_id in self._results:
            text = f"Duplicate {what} found with call_id {call_id}."
            raise BadRequest(text, param="input", code="duplicate_item")
        output = item["output"]
        if not isinstance(output, str):
            output = self._content(output, f"{path}.output")
        name = self._calls[call_id][0]
        self._results[call_id] = {"role": "tool", "content": output, "tool_call_id": call_id, "name": name}

    def _content(self, parts: Sequence[Item], path: str) -> str | list[dict[str, str]]:
        return joined([self._part(part, f"{path}[{j}]") for j, part in enumerate(parts)])

    def _part(self, part: Item, path: str) -> str | MediaPart | FileParts:
        return _text(part) if "text" in part or part["type"] == "refusal" else self._read_part(part, path)

    def _opened(self, item: Item, path: str) -> str:
        text = self._unseal(item["encrypted_content"])
        if text is None:
            why = "it was not made by this client"
            raise BadRequest.refused(f"{path}.encrypted_content", why, "invalid_encrypted_content")
        return text


def _text(part: Item) -> str:
    return str(part["refusal" if part["type"] == "refusal" else "text"])

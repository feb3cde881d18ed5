"""Calls of hosted tools in cassettes: they are played as they were recorded, without hooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...endpoints.chat.searching import SearchAssembler
from ...endpoints.hosted.items import OUTPUT
from ...endpoints.hosted.kind import Outcome, written
from ...endpoints.hosted.mcp.items import CALL, LIST, REQUEST
from ...endpoints.hosted.table import BY_ITEM
from ...endpoints.responses.assembler import ResponseAssembler
from ...endpoints.responses.hosted import HostedAssembler
from ...endpoints.responses.mcp import McpAssembler
from ...types import Json
from . import mcp
from .tape import Interaction

if TYPE_CHECKING:
    from ...endpoints.turn import AnyAssembler


def not_recorded(*arguments: object, **options: object) -> object:
    """Hook of a client that plays a cassette, for calls that the cassette does not have."""
    raise LookupError("this call is not in the cassette")


def replay(assembler: AnyAssembler, played: Interaction) -> None:
    """Let an answer have the items and annotations that were recorded, and call no hook."""
    if isinstance(assembler, SearchAssembler):
        found = [delta for delta in played.deltas if "annotations" in delta]
        assembler.cited = {delta.get("choice", 0): delta["annotations"] for delta in found}
    if isinstance(assembler, ResponseAssembler):
        assembler.cited = _cited(played.deltas)
    if isinstance(assembler, HostedAssembler):
        items = _items(played.deltas)
        names = dict.fromkeys(map(_tool_name, items))
        assembler.recorded = partial(_next, {name: iter(_calls(items, name)) for name in names})
        if isinstance(assembler, McpAssembler):
            assembler.listed = partial(mcp.recorded_list, items)


def round_of(played: Interaction, number: int) -> Interaction:
    """Part of an answer that one round made: a further one begins behind items that are done."""
    rounds: list[list[Json]] = [[]]
    behind_item = False
    for delta in mcp.generated(played.deltas):
        is_item = "item" in delta and delta["item"]["type"] != REQUEST  # which is done before its round ends
        if behind_item and "item" not in delta and "end" not in delta:
            rounds.append([])
        behind_item = is_item or (behind_item and "end" in delta)
        rounds[-1].append(delta)
    deltas = rounds[number] if number < len(rounds) else []
    is_last = number >= len(rounds) - 1
    ends = [delta for delta in played.deltas if "end" in delta] if is_last else []
    return replace(played, deltas=[*(delta for delta in deltas if "end" not in delta), *ends])


def arguments(deltas: Sequence[Json]) -> str:
    """Arguments of a call that were not recorded: those of a hosted tool are in its item."""
    for delta in deltas:
        if "item" in delta:
            item = delta["item"]
            if item["type"] in mcp.TYPES:
                return item["arguments"] or "{}"
            kind = BY_ITEM[item["type"]]
            return written({kind.argument: kind.asked(item)})
    return "{}"


def _items(deltas: Sequence[Json]) -> list[Json]:
    """Recorded items, in the order of the output."""
    done = {delta["call"]: delta["item"] for delta in deltas if "item" in delta}
    return [done[call] for call in sorted(done)]


def _tool_name(item: Json) -> str:
    """Name of the tool that an item calls, or an empty one."""
    if item["type"] == LIST:
        return ""
    return mcp.tool_name(item) if item["type"] in mcp.TYPES else BY_ITEM[item["type"]].name


def _calls(items: Sequence[Json], name: str) -> list[Json]:
    """Items of calls of a tool that were made."""
    return [item for item in items if item["type"] != REQUEST and _tool_name(item) == name]


def _next(calls: Mapping[str, Iterator[Json]], name: str) -> Outcome | None:
    """The outcome of a tool that was recorded next; None: there is none."""
    item = next(calls.get(name, iter(())), None)
    if item is None:
        return None
    if item["type"] == CALL:
        return mcp.outcome(item)
    kind, text = BY_ITEM[item["type"]], item.get(OUTPUT)
    fields = {name: value for name, value in item.items() if name not in ("id", "type", "status")}
    failed = item.get("status") == "failed"
    return Outcome(kind.shown_output(item) if text is None else text, failed=failed, item=fields)


def _cited(deltas: Sequence[Json]) -> dict[str, Sequence[Json]]:
    """Recorded annotations by the texts that they belong to."""
    found: dict[str, Sequence[Json]] = {}
    text = ""
    for delta in deltas:
        if "annotations" in delta:
            found[text] = delta["annotations"]
        text = text + delta["content"] if "content" in delta else text if "tokens" in delta else ""
    return found

"""Calls of hosted tools in cassettes: they are played as they were recorded, without hooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...endpoints.chat.searching import SearchAssembler
from ...endpoints.hosted.items import OUTPUT
from ...endpoints.hosted.kind import Outcome, written
from ...endpoints.hosted.table import BY_ITEM
from ...endpoints.responses.hosted import HostedAssembler
from ...types import Json
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
    if isinstance(assembler, HostedAssembler):
        assembler.cited = _cited(played.deltas)
        hooks = {name: partial(_next, items) for name, items in _items(played.deltas).items()}
        assembler.hosting = replace(assembler.hosting, hooks={**assembler.hosting.hooks, **hooks})


def round_of(played: Interaction, number: int) -> Interaction:
    """Part of an answer that one round made: a further one begins behind items that are done."""
    rounds: list[list[Json]] = [[]]
    behind_item = False
    for delta in played.deltas:
        if behind_item and "item" not in delta and "end" not in delta:
            rounds.append([])
        behind_item = "item" in delta or (behind_item and "end" in delta)
        rounds[-1].append(delta)
    deltas = rounds[number] if number < len(rounds) else []
    is_last = number >= len(rounds) - 1
    ends = [delta for delta in played.deltas if "end" in delta] if is_last else []
    return replace(played, deltas=[*(delta for delta in deltas if "end" not in delta), *ends])


def arguments(deltas: Sequence[Json]) -> str:
    """Arguments of a call that were not recorded: those of a hosted tool are in its item."""
    for delta in deltas:
        if "item" in delta:
            kind = BY_ITEM[delta["item"]["type"]]
            return written({kind.argument: kind.asked(delta["item"])})
    return "{}"


def _items(deltas: Sequence[Json]) -> dict[str, Iterator[Json]]:
    """Recorded items by the names of their hooks, in the order of their calls."""
    begun = dict.fromkeys(delta["call"] for delta in deltas if "call" in delta)
    done = {delta["call"]: delta["item"] for delta in deltas if "item" in delta}
    items = [done[call] for call in begun if call in done]
    names = dict.fromkeys(BY_ITEM[item["type"]].name for item in items)
    return {name: iter([item for item in items if BY_ITEM[item["type"]].name == name]) for name in names}


def _next(items: Iterator[Json], *arguments: object, **options: object) -> Outcome:
    """The outcome that was recorded next."""
    item = next(items, None)
    if item is None:
        raise LookupError("this call is not in the cassette")
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

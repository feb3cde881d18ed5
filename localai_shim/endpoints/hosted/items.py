"""Items of hosted tools: as callers send them back, and as prompts have them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from ...media import MediaKind
from ...types import Json
from ..fields import Fields, given
from .kind import Calls, Kind, written
from .table import BY_ITEM

PREFIXES = {name: kind.names.prefix for name, kind in BY_ITEM.items()}
"""Type of an item -> what its id begins with."""
MORE = "more_calls"
"""Field of an item that is true if the model made another call in the same turn, which the next item shows."""
OUTPUT = "output"
"""Field of an item with the text that the model has read."""
UNSEEN = "unseen_images"
"""Field of an item that is true if its images and audio did not fit into the context of a model that reads them."""
_STATUSES = ("in_progress", "searching", "interpreting", "generating", "completed", "incomplete", "failed")
_CALLS = ("function_call", "custom_tool_call")


def read_item(fields: Fields) -> Json:
    """An item that a caller sends back, as it is stored, without its id and type.

    Raises:
        BadRequest: with the path of what is wrong.
    """
    kind = BY_ITEM[str(fields.get("type"))]
    status = fields.choice("status", _STATUSES) or "completed"
    more: Json = given(**{OUTPUT: fields.string(OUTPUT), MORE: fields.boolean(MORE), UNSEEN: fields.boolean(UNSEEN)})
    return {"status": status, **kind.read_item(fields), **more}


def citations(text: str, found: Mapping[Calls, Sequence[Json]], earlier: Sequence[Json]) -> list[Json]:
    """Annotations of a message.

    Args:
        found: results of the response's own calls, by their kinds.
        earlier: items of the conversation before the response, oldest first.
    """
    every = {kind: list(results) for kind, results in found.items()}
    for item in reversed(earlier):  # the latest title of a page counts
        kind = BY_ITEM.get(item["type"])
        if kind is not None:
            every.setdefault(kind, []).extend(kind.found_in(item))
    return [each for kind, results in every.items() for each in kind.citations(text, results)]


class Shown(NamedTuple):
    """An item as a call of a function, and its output."""

    call: Json
    output: Json
    ends: bool
    """The model made no further call in the same turn, unless the item says so."""


class Others(Protocol):
    """Items that are calls, too, and that hooks do not serve."""

    types: Collection[str]

    def shown(self, item: Json) -> Shown | None:
        """Such an item as a call; None: it is none, or an earlier item shows it."""


def as_function_items(
    items: Sequence[Json], others: Others | None = None, *, reads: Collection[MediaKind] = ()
) -> list[Json]:
    """Items of which those of hosted tools are calls of functions and their outputs.

    The calls of one turn of the model come before their outputs.

    Args:
        others: reads further items.
        reads: media that the model reads.
    """
    made: list[Json] = []
    outputs: list[Json] = []
    for item in items:
        if others is not None and item["type"] in others.types:
            shown = others.shown(item)
            if shown is not None:
                made.append(shown.call)
                outputs.append(shown.output)
                if shown.ends and not item.get(MORE):
                    made += outputs
                    outputs = []
            continue
        kind = BY_ITEM.get(item["type"])
        if outputs and kind is None and item["type"] not in _CALLS:
            made += outputs
            outputs = []
        if kind is None:
            made.append(item)
            continue
        call = {"type": "function_call", "id": item["id"], "call_id": item["id"], "name": kind.name}
        made.append({**call, "arguments": written({kind.argument: kind.asked(item)})})
        output = _output(kind, item, reads)
        outputs.append({"type": "function_call_output", "call_id": item["id"], "output": output})
        if not item.get(MORE):
            made += outputs
            outputs = []
    return made + outputs


def _output(kind: Kind, item: Json, reads: Collection[MediaKind]) -> str | list[Json]:
    text = item.get(OUTPUT)
    return with_media(str(kind.shown_output(item) if text is None else text), kind, item, reads)


def with_media(text: str, kind: Calls, item: Json, reads: Collection[MediaKind]) -> str | list[Json]:
    """Output of a call as the model reads it: a text, and the item's images and audio if the model reads them.

    Args:
        reads: media that the model reads.
    """
    parts: list[Json] = []
    if not item.get(UNSEEN):
        pictures, sounds = (
            kind.pictures(item) if "image" in reads else (),
            kind.sounds(item) if "audio" in reads else (),
        )
        parts += [{"type": "input_image", "image_url": url, "detail": "auto"} for url in pictures]
        parts += [{"type": "audio_url", "audio_url": {"url": url}} for url in sounds]
    return [{"type": "input_text", "text": text}, *parts] if parts else text

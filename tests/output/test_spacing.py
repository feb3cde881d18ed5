"""Calls in JSON with other spacing, or another order, than the model's template writes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from localai_shim.formats.syntaxes.arguments import JsonArguments
from tests.output.recorded import WRITERS
from tests.output.recorded.case import Call, Case
from tests.output.recorded.read import markup_of, read

JSON_FAMILIES = [
    name for name in WRITERS if (tools := markup_of(name).tools) and isinstance(tools.arguments, JsonArguments)
]
CALLS: tuple[Call, ...] = (("plan_trip", {"city": 'a, "b": c', "nights": 3, "tags": ["x", {"y": None}]}), ("ring", {}))
SPACINGS: dict[str, Callable[[object], str]] = {
    "none": lambda value: json.dumps(value, separators=(",", ":")),
    "everywhere": lambda value: json.dumps(value, separators=("  ,  ", " : ")).replace("{", "{ ").replace("}", " }"),
    "newlines": lambda value: json.dumps(value, indent=2),
    "tabs": lambda value: json.dumps(value, indent="\t", separators=("\t,", "\t:\t")),
}


def rewritten(text: str, write: Callable[[object], str], *, reverse: bool) -> str:
    """A text in which every JSON object is written anew."""
    out, at, decoder = "", 0, json.JSONDecoder()
    while at < len(text):
        if text[at] != "{":
            out, at = out + text[at], at + 1
            continue
        value, at = decoder.raw_decode(text, at)
        out += write(dict(reversed(value.items())) if reverse else value)
    return out


@pytest.mark.parametrize("spacing", SPACINGS)
@pytest.mark.parametrize("family", JSON_FAMILIES)
def test_spacing_and_order_of_keys_do_not_matter(family: str, spacing: str) -> None:
    writer = WRITERS[family]
    calls = list(CALLS if writer.parallel else CALLS[:1])
    block = writer.turn("", "", writer.block(calls))
    for reverse in (False, True):
        text = rewritten(block, SPACINGS[spacing], reverse=reverse)
        for pieces in ([text], list(text)):
            found = read(Case(family, "", text), pieces)
            assert found.whole_calls == calls, text
            assert (found.content, found.invalid) == ("", []), text

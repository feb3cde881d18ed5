"""Calls as upstream's parsers read them: an oracle where mlx-lm or mlx-vlm has the family."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from tests import upstream
from tests.output.recorded.case import Call

FAMILIES = [*upstream.PARSERS, "cohere2_moe"]
"""Families whose calls upstream reads."""


def parser(family: str) -> ModuleType:
    """Upstream's parser of a family: its markers and `parse_tool_call`."""
    return upstream.parser("command_r7b" if family == "cohere2_moe" else family)


def upstream_calls(family: str, text: str, tools: Sequence[Mapping[str, Any]]) -> list[Call]:
    """The calls of an answer that is calls and nothing else."""
    module = parser(family)
    calls: list[Call] = []
    for block in _blocks(text, module.tool_call_start, module.tool_call_end):
        read = module.parse_tool_call(block, list(tools))
        for call in read if isinstance(read, list) else [read]:
            arguments = call.get("arguments", call.get("parameters"))
            arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
            calls.append((call.get("name", call.get("tool_name")), arguments or {}))
    return calls


def _blocks(text: str, start: str, end: str) -> list[str]:
    """All that stands between the markers."""
    if not end:
        return text.split(start)[1:]
    return [part.partition(end)[0] for part in text.split(start)[1:]]

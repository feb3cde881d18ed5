"""Calls as upstream's parsers read them: an oracle where mlx-lm or mlx-vlm has the family."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.output.recorded.case import Call

PARSERS = {
    "hermes": ("mlx_lm", "json_tools"),
    "qwen3_coder": ("mlx_lm", "qwen3_coder"),
    "mistral": ("mlx_lm", "mistral"),
    "mistral_array": ("mlx_lm", "mistral"),
    "kimi_k2": ("mlx_lm", "kimi_k2"),
    "kimi_k3": ("mlx_lm", "kimi_k3"),
    "gemma4": ("mlx_lm", "gemma4"),
    "functiongemma": ("mlx_lm", "function_gemma"),
    "glm": ("mlx_lm", "glm47"),
    "longcat": ("mlx_lm", "longcat"),
    "minicpm5": ("mlx_lm", "minicpm5"),
    "minimax_m2": ("mlx_lm", "minimax_m2"),
    "minimax_m3": ("mlx_vlm", "minimax_m3"),
    "muse": ("mlx_lm", "muse_spark"),
    "lfm2": ("mlx_lm", "pythonic"),
    "command_r7b": ("mlx_vlm", "cohere2_moe"),
    "cohere2_moe": ("mlx_vlm", "cohere2_moe"),
    "harmony": ("mlx_vlm", "harmony"),
}
"""Family -> (package, parser)."""
_FOLDERS = {"mlx_lm": ("tool_parsers",), "mlx_vlm": ("tools", "parsers")}


def parser(family: str) -> ModuleType:
    """Upstream's parser of a family: its markers and `parse_tool_call`."""
    package, name = PARSERS[family]
    return module(package, *_FOLDERS[package], name)


@cache
def module(package: str, *path: str) -> ModuleType:
    """A module of upstream's, without what its packages import: MLX for the one, web servers (5 s) for the other."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    parent = "_".join(("_upstream", package, *path[:-1]))
    if parent not in sys.modules:
        made = ModuleType(parent)
        made.__path__ = [str(Path(spec.submodule_search_locations[0], *path[:-1]))]
        sys.modules[parent] = made
    return importlib.import_module(f"{parent}.{path[-1]}")


def upstream_calls(family: str, text: str, tools: Sequence[Mapping[str, Any]]) -> list[Call]:
    """The calls of an answer that is calls and nothing else."""
    upstream = parser(family)
    calls: list[Call] = []
    for block in _blocks(text, upstream.tool_call_start, upstream.tool_call_end):
        read = upstream.parse_tool_call(block, list(tools))
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

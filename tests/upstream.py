"""Parsers of tool calls in mlx-lm and mlx-vlm, as oracles."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

PARSERS = {
    "hermes": ("mlx_lm", "json_tools"),
    "mistral": ("mlx_lm", "mistral"),
    "mistral_array": ("mlx_lm", "mistral"),
    "kimi_k2": ("mlx_lm", "kimi_k2"),
    "kimi_k3": ("mlx_lm", "kimi_k3"),
    "qwen3_coder": ("mlx_lm", "qwen3_coder"),
    "glm": ("mlx_lm", "glm47"),
    "longcat": ("mlx_lm", "longcat"),
    "minicpm5": ("mlx_lm", "minicpm5"),
    "minimax_m2": ("mlx_lm", "minimax_m2"),
    "minimax_m3": ("mlx_vlm", "minimax_m3"),
    "muse": ("mlx_lm", "muse_spark"),
    "lfm2": ("mlx_lm", "pythonic"),
    "gemma4": ("mlx_lm", "gemma4"),
    "functiongemma": ("mlx_lm", "function_gemma"),
    "command_r7b": ("mlx_vlm", "cohere2_moe"),
    "harmony": ("mlx_vlm", "harmony"),
}
"""Package and name of the parser of a call format, where upstream has one."""


@cache
def parser(format: str) -> ModuleType:
    """The module, without what its package imports: MLX for the one, web servers (5 s) for the other."""
    package, name = PARSERS[format]
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    path = ("tool_parsers",) if package == "mlx_lm" else ("tools", "parsers")
    parent = "_".join(("tests_upstream", package, *path))
    if parent not in sys.modules:
        made = ModuleType(parent)
        made.__path__ = [str(Path(spec.submodule_search_locations[0], *path))]
        sys.modules[parent] = made
    return importlib.import_module(f"{parent}.{name}")


def calls(format: str, text: str, tools: list[dict[str, Any]] | None = None) -> list[tuple[str, Any]]:
    """Names and arguments that upstream reads in an answer that is calls and nothing else."""
    module = parser(format)
    start, end = module.tool_call_start, module.tool_call_end
    if format == "harmony":
        text = text[text.rindex(start) :]
    found: list[dict[str, Any]] = []
    while text.strip():
        text = text.lstrip()
        assert text.startswith(start), f"{text!r} is no call"
        body, marker, text = text.removeprefix(start).partition(end) if end else (text.removeprefix(start), "", "")
        assert marker == end or format == "harmony"
        read = module.parse_tool_call(body, tools)
        found += read if isinstance(read, list) else [read]
    arguments = [(call["name"], call["arguments"]) for call in found]
    return [(name, json.loads(given) if isinstance(given, str) else given) for name, given in arguments]

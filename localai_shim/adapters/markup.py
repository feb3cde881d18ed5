"""Which markers a model writes, and upstream's parsers for its tool calls.

mlx-lm names the tool format when it loads a tokenizer, from its config or chat template; formats that only mlx-vlm
has (harmony, cohere2_moe, minimax_m3) are recognised by its own registry.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Container
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ..output.markup import Markup, ToolFormat

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

# How a call can be read before it is complete; see `ToolFormat`. Formats that are not here are read when complete.
_KIMI_HEADER = r"(?:functions\.)?(?P<name>[^\s<|>:]+):\d+\s*<\|tool_call_argument_begin\|>\s*(?=\{)"
_HARMONY_HEADER = r"^\s*(?:functions\.)?(?P<name>[^\s<|]+)[^{]*?<\|message\|>\s*(?=\{)"
_closed = partial(ToolFormat, style="closed")
_header = partial(ToolFormat, style="header")
_READING: dict[str, Callable[..., ToolFormat]] = {
    "json_tools": partial(ToolFormat, style="json", openings=("{", "[")),
    "cohere2_moe": partial(ToolFormat, style="json", openings=("{", "[")),
    "mistral": partial(_header, header=re.compile(r"(?P<name>[\w-]+)\s*\[ARGS\]\s*(?=\{)")),
    "kimi_k2": partial(_header, header=re.compile(_KIMI_HEADER)),
    "harmony": partial(_header, header=re.compile(_HARMONY_HEADER)),
    "qwen3_coder": partial(
        _closed, boundary="</parameter>", suffix="</function>", openings=("<function=",), untyped=True
    ),
    "gemma4": partial(_closed, boundary=",", suffix="}", quote='<|"|>', openings=("call:",)),
    "function_gemma": partial(ToolFormat, openings=("call:",)),
    "glm47": partial(_closed, boundary="</arg_value>", lenient=True),
    "laguna": partial(_closed, boundary="</arg_value>", lenient=True),
    "longcat": partial(_closed, boundary="</longcat_arg_value>"),
    "minicpm5": partial(_closed, boundary="</param>"),
    "minimax_m2": partial(_closed, boundary="</parameter>", suffix="</invoke>", openings=("<invoke",)),
    "minimax_m3": partial(ToolFormat, openings=("]<]minimax[>[<invoke",)),
    "muse_spark": partial(_closed, boundary="</atem:parameter>", openings=("<atem:invoke",)),
    "kimi_k3": partial(
        _closed, boundary="<|close|>argument<|sep|>", suffix="<|close|>call<|sep|>", openings=("<|open|>call",)
    ),
    "pythonic": partial(ToolFormat, openings=("[",)),
}

# Pairs that mlx-lm does not look for, and mlx-vlm does.
_MORE_THINKING = (("<think>", "</think>"), ("<|START_THINKING|>", "<|END_THINKING|>"), ("<mm:think>", "</mm:think>"))
_COHERE = ("<|START_RESPONSE|>", "<|END_RESPONSE|>")


def describe(tokenizer: TokenizerWrapper) -> Markup:
    """The markers of a model.

    Args:
        tokenizer: mlx-lm's `TokenizerWrapper`.
    """
    vocabulary = tokenizer.get_vocab()
    name = tool_format_name(tokenizer)
    structural = tuple(tokenizer.structural_markers) + tuple(m for m in _COHERE if m in vocabulary)
    return Markup(
        think=_thinking(tokenizer, vocabulary),
        tools=None if name is None else tool_format(name),
        harmony=all(marker in vocabulary for marker in ("<|channel|>", "<|message|>", "<|start|>", "<|end|>")),
        structural=structural,
        transitions=tuple((state, tuple(edges)) for state, edges in tokenizer.response_transitions.items()),
        initial=tokenizer.response_initial_state or "normal",
    )


def added_tokens(tokenizer: TokenizerWrapper) -> dict[int, str]:
    """Tokens that were added to the trained vocabulary, markers and ends of sequence among them, by id."""
    return {int(i): str(token) for i, token in tokenizer.added_tokens_decoder.items()}


def grammar_tokens(tokenizer: TokenizerWrapper, special: Container[int]) -> dict[int, str]:
    """Of the `added_tokens` those that a grammar names, and that its free text never holds, by id.

    Words, letters and runs of spaces were added as text; `special` are those that are flagged.
    """
    added = added_tokens(tokenizer)
    return {i: text for i, text in added.items() if i in special or text[:1] in ("<", "[")}


def tool_format_name(tokenizer: TokenizerWrapper) -> str | None:
    """The format in which a model writes tool calls, by the name of upstream's parser; None if there is none."""
    name = tokenizer.init_kwargs.get("tool_parser_type")
    if name is None:
        name = _module("mlx_vlm", "tools", "registry")._infer_tool_parser(tokenizer.chat_template)
    return None if name is None else str(name)


@cache
def tool_format(name: str) -> ToolFormat:
    """A format by the name of upstream's parser.

    Raises:
        ValueError: neither mlx-lm nor mlx-vlm has it.
    """
    for package, folder in (("mlx_lm", ("tool_parsers",)), ("mlx_vlm", ("tools", "parsers"))):
        try:
            parser = _module(package, *folder, name)
        except ImportError:
            continue
        make = _READING.get(name, ToolFormat)
        return make(name, parser.tool_call_start, parser.tool_call_end, parser.parse_tool_call)
    raise ValueError(f"neither mlx-lm nor mlx-vlm has a tool parser '{name}'")


def _thinking(tokenizer: TokenizerWrapper, vocabulary: dict[str, int]) -> tuple[str, str] | None:
    if tokenizer.has_thinking:
        return tokenizer.think_start, tokenizer.think_end
    text = str(tokenizer.chat_template or "")
    for start, end in _MORE_THINKING:
        if (start in vocabulary and end in vocabulary) or (start in text and end in text):
            return start, end
    return None


def _module(package: str, *path: str) -> ModuleType:
    """A module of upstream's, without what its packages import: MLX for the one, web servers (5 s) for the other."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"{package} is not installed")
    folder = Path(spec.submodule_search_locations[0], *path[:-1])
    parent = "_".join(("_localai_shim", package, *path[:-1]))
    if parent not in sys.modules:
        made = ModuleType(parent)
        made.__path__ = [str(folder)]
        sys.modules[parent] = made
    return importlib.import_module(f"{parent}.{path[-1]}")

"""Reading an answer of a family by its name: all that the cases need to know of the readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from localai_shim.output.answer import AnswerParser
from localai_shim.output.markup import REASONING
from localai_shim.output.tool_calls import OfferedTools
from localai_shim.types import FinishReason
from tests.output.families import FAMILIES
from tests.output.reading import Answer, Detokenizer, tokens

# Families that upstream's parsers read, by the names of these.
_UPSTREAM = {
    "hermes": "json_tools",
    "command_r7b": "cohere2_moe",
    "cohere2_moe": "cohere2_moe",
    "mistral": "mistral",
    "mistral_array": "mistral_array",
    "kimi_k2": "kimi_k2",
    "harmony": "harmony",
    "qwen3_coder": "qwen3_coder",
    "gemma4": "gemma4",
    "functiongemma": "function_gemma",
    "glm": "glm47",
    "longcat": "longcat",
    "minicpm5": "minicpm5",
    "minimax_m2": "minimax_m2",
    "minimax_m3": "minimax_m3",
    "muse": "muse_spark",
    "kimi_k3": "kimi_k3",
    "lfm2": "pythonic",
}


def read(
    family: str, pieces: Sequence[str], *, tools: Sequence[Mapping[str, Any]], opened: bool, finish: FinishReason
) -> Answer:
    """An answer of a family that comes in these pieces.

    Args:
        family: its name.
        pieces: of the answer.
        tools: what was offered.
        opened: the prompt ended within the reasoning.
        finish: how the answer ended.
    """
    markup = FAMILIES[_UPSTREAM[family]].markup
    state = REASONING if opened else None
    parser = AnswerParser(Detokenizer(pieces), markup, state=state, tools=OfferedTools(tools))
    out = Answer()
    for token in tokens(pieces, finish):
        out.add(parser.feed(token))
    return out

"""Reading an answer of a family by its name: all that the cases need to know of the readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from localai_shim.output.answer import AnswerParser
from localai_shim.output.formats.detection import CHANNELS
from localai_shim.output.formats.table import FORMATS
from localai_shim.output.markup import HEADER, REASONING, Markup
from localai_shim.output.offered import OfferedTools
from localai_shim.types import FinishReason
from tests.output.reading import Answer, Detokenizer, tokens
from tests.output.recorded.writers import WRITERS

# What stands around an answer's text.
_AROUND = {
    "command_r7b": ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    "cohere2_moe": ("<|START_TEXT|>", "<|END_TEXT|>"),
    "hunyuan_a13b": ("<answer>", "</answer>"),
    "granite3": ("<response>", "</response>"),
    "apriel": ("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"),
    "kimi_k3": ("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
    "command_r_plus": ("<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
    "solar_open": ("<|content|>", "<|begin|>assistant"),
}
_FORMATS = {"cohere2_moe": "command_r7b"}


def markup_of(family: str) -> Markup:
    """The markers of a family's models."""
    think = WRITERS[family].think
    return Markup(
        think=None if think is None else (think[0].strip() or "\0", think[1].strip()),
        tools=FORMATS[_FORMATS.get(family, family)],
        channels=CHANNELS.get(family),
        structural=_AROUND.get(family, ()),
    )


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
    markup = markup_of(family)
    initial = HEADER if markup.channels is not None and markup.channels.initial else None
    state = REASONING if opened else initial
    parser = AnswerParser(Detokenizer(pieces), markup, state=state, tools=OfferedTools(tools))
    out = Answer()
    for token in tokens(pieces, finish):
        out.add(parser.feed(token))
    return out

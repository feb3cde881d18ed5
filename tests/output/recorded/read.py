"""Reading an answer of a family by its name: all that the cases need to know of the readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localai_shim.formats.markup import HEADER, REASONING, Markup, Thought
from localai_shim.formats.table import FORMATS
from localai_shim.formats.values import OfferedTools
from localai_shim.output.answer import AnswerParser
from localai_shim.output.channels import ChannelSplitter, Piece
from tests.formats.channels import CHANNELS
from tests.output.reading import Answer, Detokenizer, tokens
from tests.output.recorded.case import Case
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
        None if think is None else Thought("think", think[0].strip() or "\0", think[1].strip()),
        tools=FORMATS[_FORMATS.get(family, family)],
        channels=CHANNELS.get(family),
        structural=_AROUND.get(family, ()),
    )


def state_of(case: Case) -> str | None:
    """The state that the answer begins in."""
    if case.opened:
        return REASONING
    channels = markup_of(case.family).channels
    return HEADER if channels is not None and channels.initial else None


def parser_of(case: Case, pieces: Sequence[str], **options: Any) -> AnswerParser:
    """A parser for an answer that comes in these pieces.

    Args:
        case: the answer.
        pieces: of it.
        options: of the parser.
    """
    options.setdefault("tools", OfferedTools(case.tools))
    return AnswerParser(Detokenizer(pieces), markup_of(case.family), state=state_of(case), **options)


def read(case: Case, pieces: Sequence[str], **options: Any) -> Answer:
    """An answer that comes in these pieces.

    Args:
        case: the answer.
        pieces: of it.
        options: of the parser.
    """
    parser = parser_of(case, pieces, **options)
    out = Answer()
    for token in tokens(pieces, case.finish):
        out.add(parser.feed(token))
    assert parser.calls == len(out.calls)
    return out


def split(case: Case, pieces: Sequence[str]) -> list[Piece]:
    """The same through the splitter alone."""
    splitter = ChannelSplitter(markup_of(case.family), state=state_of(case), tools=OfferedTools(case.tools))
    out = [found for piece in pieces for found in splitter.feed(piece)]
    return out + splitter.finish(cut=case.finish == "length")

"""Which markers a model writes: by its chat template, its vocabulary, and what its config says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..output.formats.description import CallFormat
from ..output.formats.detection import CHANNELS, STRUCTURAL, THOUGHTS, call_format
from ..output.formats.table import PLAIN
from ..output.markup import Markup

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper


def describe(tokenizer: TokenizerWrapper) -> Markup:
    """The markers of a model.

    Args:
        tokenizer: mlx-lm's `TokenizerWrapper`.
    """
    vocabulary = tokenizer.get_vocab()
    text = _template_text(tokenizer)
    tools = call_format(text, vocabulary) or PLAIN
    channels = CHANNELS.get(tools.name)
    seen = [thought for thought in THOUGHTS if _occurs(thought.start, text, vocabulary) and _occurs(thought.end, text, vocabulary)]
    thought = seen[0] if seen and channels is None else None
    think = None if thought is None else (thought.start, thought.end)
    return Markup(
        think=think,
        tools=tools,
        channels=channels,
        structural=tuple(text_ for text_ in STRUCTURAL if _occurs(text_, text, vocabulary) and text_ not in (think or ())),
        openers=() if thought is None else thought.openers,
        opened=() if thought is None else thought.opened,
    )


def _occurs(marker: str, text: str, vocabulary: dict[str, int]) -> bool:
    return marker in vocabulary or marker in text


def _template_text(tokenizer: TokenizerWrapper) -> str:
    template = tokenizer.chat_template
    if isinstance(template, dict):
        return "\n".join(map(str, template.values()))
    return str(template or "")


def added_tokens(tokenizer: TokenizerWrapper) -> dict[int, str]:
    """Tokens that were added to the trained vocabulary, markers and ends of sequence among them, by id."""
    return {int(i): str(token) for i, token in tokenizer.added_tokens_decoder.items()}

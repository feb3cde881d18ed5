"""A model's tokenizer and chat template, as an adapter has them, and tokens of a text that follows another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..media import Media, MediaKind, MediaSize, MediaSpan, ProcessedMedia
from .history import Message

Tools = list[dict[str, object]] | None
"""Tools in the form that `Tool.template` makes."""


class Tokenizing(Protocol):
    """An adapter's tokenizer and template. It does not hold the model, which what is made of it may outlive."""

    @property
    def tokenizer(self) -> Any:
        """mlx-lm's `TokenizerWrapper`."""
        ...

    @property
    def cuts_anywhere(self) -> bool:
        """Rows' caches can be cut to any shorter length."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...

    def apply_chat_template(
        self,
        messages: list[Message],
        variables: dict[str, object],
        tools: Tools = None,
        add_generation_prompt: bool = True,
        restore: Callable[[str], str] | None = None,
        media: Sequence[ProcessedMedia] = (),
    ) -> list[int]:
        """Prompt tokens for a conversation.

        Args:
            restore: changes the rendered text before it is tokenised, and before media are put in.
            media: what the messages' parts `{"type": "image"}` (or video, audio) stand for, in their order; each
                replaces such a part.
        """
        ...

    @property
    def media_kinds(self) -> frozenset[MediaKind]:
        """Kinds of media that the model reads, apart from text."""
        ...

    def process(self, media: Media) -> ProcessedMedia:
        """Run the model's processor over one item; may be called from any thread.

        Raises:
            ValueError: the model cannot read this one; says why.
        """
        ...

    def unread(self, size: MediaSize) -> ProcessedMedia | None:
        """An item of this size without its data, with the tokens that it takes at least; None: that is not known."""
        ...

    def spans(self, ids: Sequence[int], media: Sequence[ProcessedMedia]) -> list[MediaSpan]:
        """Find these items in a prompt's ids, which have them in this order.

        Raises:
            ValueError: the template left some out.
            SpelledPlaceholder: a text spells what stands for an item.
        """
        ...


_BEFORE = ("\x02", "\N{WHITE SMILING FACE}")  # hardly any token joins these to what stands behind them


def encode_within(encode: Callable[[str], list[int]], text: str) -> list[int]:
    """The tokens of a text without the space that tokenizers of sentencepiece put before one.

    Args:
        encode: text to ids, no special token put around it.
    """
    for before in _BEFORE:
        known, ids = encode(before), encode(before + text)
        if ids[: len(known)] == known:
            return ids[len(known) :]
    return encode(text)

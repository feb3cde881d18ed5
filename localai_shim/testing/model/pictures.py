"""Images, videos and sounds of requests to a scripted model, which looks at none of them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence

from ...media import Media, MediaKind, MediaSpan, ProcessedMedia
from ...types import Json
from .tokenizer import ScriptedTokenizer

# Digits, which no filter of a template changes; random, so that no caller can write it.
_MARK = "7" + "".join(secrets.choice("012345689") for _ in range(20))
_KINDS: tuple[MediaKind, ...] = ("image", "video", "audio")


def process(media: Media, tokenizer: ScriptedTokenizer) -> ProcessedMedia:
    """An item as one token, `<image>`, whatever the picture."""
    shown = f"<{media.kind}>"
    return ProcessedMedia(media.kind, 1, {}, shown, [tokenizer.intern(shown)])


def spans(ids: Sequence[int], media: Sequence[ProcessedMedia]) -> list[MediaSpan]:
    """Find the items in a prompt.

    Raises:
        ValueError: the template left some out.
    """
    import numpy as np

    found: list[MediaSpan] = []
    at = -1
    for item in media:
        try:
            at = list(ids).index(item.tokens[0], at + 1)
        except ValueError:
            raise ValueError(f"the chat template leaves out the {item.kind}") from None
        found.append(MediaSpan(item, np.array([at])))
    return found


def as_text(messages: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Messages whose content is a string, as any template can render it, with marks at the places of items."""
    return [{**message, "content": _content(message["content"])} for message in messages]


def _content(content: object) -> object:
    return "".join(map(_text, content)) if isinstance(content, list) else content


def _text(part: Json) -> str:
    return str(part["text"]) if part["type"] == "text" else f"{_MARK}{_KINDS.index(part['type'])}"


def encode(rendered: str, tokenizer: ScriptedTokenizer) -> list[int]:
    """Token ids of a rendered conversation, in which each item is one token."""
    out: list[int] = []
    for i, piece in enumerate(re.split(f"{_MARK}([012])", rendered)):
        out += [tokenizer.intern(f"<{_KINDS[int(piece)]}>")] if i % 2 else tokenizer.encode(piece)
    return out

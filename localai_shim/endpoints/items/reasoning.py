"""Reasoning and summaries that the caller holds as `encrypted_content`, and sends back.

They are compressed, not encrypted: a local process does not have to hide them. So a conversation that is not
stored can be sent back whole.
"""

from __future__ import annotations

import base64
import binascii
import zlib

_MARK = b"localai1"


def seal(text: str) -> str:
    """The text as an opaque string."""
    packed = zlib.compress(text.encode(errors="replace"))
    return base64.urlsafe_b64encode(_MARK + packed).decode()


def unseal(content: str) -> str | None:
    """The text that `seal` was given; None if something else made the content."""
    try:
        packed = base64.urlsafe_b64decode(content)
        if not packed.startswith(_MARK):
            return None
        return zlib.decompress(packed[len(_MARK) :]).decode()
    except (ValueError, binascii.Error, zlib.error):
        return None

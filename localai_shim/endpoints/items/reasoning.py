"""Reasoning and summaries that travel through the caller's hands as `encrypted_content`.

A local process has nobody to hide them from: they are packed, not encrypted, so that a conversation whose items nobody
stores can be sent back whole.
"""

from __future__ import annotations

import base64
import binascii
import zlib

_MARK = b"localai1"


def seal(text: str) -> str:
    """The text as an opaque string."""
    packed = zlib.compress(text.encode("utf-8", "surrogatepass"))
    return base64.urlsafe_b64encode(_MARK + packed).decode()


def unseal(content: str) -> str | None:
    """What `seal` made it from; None if it was made by somebody else."""
    try:
        packed = base64.urlsafe_b64decode(content)
        if not packed.startswith(_MARK):
            return None
        return zlib.decompress(packed[len(_MARK) :]).decode("utf-8", "surrogatepass")
    except (ValueError, binascii.Error, zlib.error):
        return None

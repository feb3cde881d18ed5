"""Audio that servers return."""

from __future__ import annotations

import base64
import binascii

from ....errors import BadRequest


def is_sound_url(url: str) -> bool:
    """True for a `data:` URL of audio that models can read, if the package that decodes it is installed."""
    head, _, text = url.partition(",")
    if not (head.startswith("data:audio/") and head.endswith(";base64")):
        return False
    from ....prompt.media.sounds import decode_sound  # imports NumPy, which scripted clients do without

    try:
        decode_sound(base64.b64decode(text, validate=True), "audio")
    except (BadRequest, binascii.Error, ImportError, ValueError):
        return False
    return True

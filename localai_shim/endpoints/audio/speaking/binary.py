"""Answers that are bytes, such as sound."""

from __future__ import annotations

from openai import BaseModel


class Binary(BaseModel):
    """Bytes of an answer: all of them, or the next ones of a stream."""

    content: bytes
    media_type: str
    """Of the whole answer, such as `audio/wav`."""

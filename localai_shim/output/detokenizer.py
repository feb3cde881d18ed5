"""Streaming detokenisation of byte-level tokenizers.

mlx-lm has detokenizers for every kind of tokenizer, and they are used for all others. Its byte-level one drops the
space that a text begins with, holds a lone space back until the next token (so that a stop string that ends in one is
seen too late), and turns byte 0 into another character; here text is exactly the tokens' bytes, decoded.
"""

from __future__ import annotations

import codecs
from typing import Protocol

from ..panics import panics_are_errors
from .token_bytes import TokenBytes

_make_decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer(Protocol):
    """Turns one text's tokens into text as they come: mlx-lm's interface."""

    def add_token(self, token: int, /) -> None: ...

    def finalize(self) -> None: ...

    @property
    def last_segment(self) -> str:
        """The text since this was last asked."""
        ...


class LibraryDetokenizer:
    """One of mlx-lm's, whose tokenizer may panic: an error of its own text then.

    Args:
        inner: it.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: Detokenizer) -> None:
        self._inner = inner

    @panics_are_errors
    def add_token(self, token: int) -> None:
        self._inner.add_token(token)

    @panics_are_errors
    def finalize(self) -> None:
        self._inner.finalize()

    @property
    @panics_are_errors
    def last_segment(self) -> str:
        return self._inner.last_segment


class ByteDetokenizer:
    """One text, token by token."""

    __slots__ = ("_decoder", "_partial", "_segment", "_texts", "_token_bytes", "_whole")

    def __init__(self, token_bytes: TokenBytes) -> None:
        self._token_bytes = token_bytes
        self._whole, self._texts = token_bytes.whole, token_bytes.texts
        self._partial = False
        self._decoder = _make_decoder("replace")
        self._segment = ""

    def alone(self, token: int) -> str | None:
        """A token's text where that is known and all that there is: it need not be added. None: it has to be."""
        return None if self._partial else self._texts.get(token)

    def add_token(self, token: int) -> None:
        """Take a token; bytes that do not make a whole character yet are kept for the next ones."""
        if not self._partial:
            text = self._whole(token)
            if text is not None:
                self._segment += text
                return
        self._segment += self._decoder.decode(self._token_bytes(token))
        self._partial = bool(self._decoder.getstate()[0])

    def finalize(self) -> None:
        """No more tokens come: what is left of a character becomes U+FFFD."""
        self._segment += self._decoder.decode(b"", final=True)

    @property
    def last_segment(self) -> str:
        """The text since this was last asked."""
        segment, self._segment = self._segment, ""
        return segment

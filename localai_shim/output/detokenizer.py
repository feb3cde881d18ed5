"""Streaming detokenisation: tokens' bytes, decoded.

mlx-lm has detokenizers for every kind of tokenizer, and they are used where what a token stands for is not known. Its
byte-level one drops the space that a text begins with, holds a lone space back until the next token (so that a stop
string that ends in one is seen too late), and turns byte 0 into another character. Its one for sentencepiece fails for
ids beyond the tokenizer's, holds whole characters back with a broken one, and adds each token to all of the text.
"""

from __future__ import annotations

import codecs
from typing import Protocol

from ..threads.panics import panics_are_errors
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
    """One of mlx-lm's; a panic of its tokenizer is a `PanicError`.

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
    """One text, token by token.

    Args:
        token_bytes: the tokenizer's.
        strips_space: the space that the text begins with, if it does, is none of it.
    """

    __slots__ = ("_decoder", "_partial", "_segment", "_stripped", "_strips", "_texts", "_token_bytes", "_whole")

    def __init__(self, token_bytes: TokenBytes, *, strips_space: bool = False) -> None:
        self._token_bytes = token_bytes
        self._whole, self._texts = token_bytes.whole, token_bytes.texts
        self._strips, self._stripped = strips_space, 0
        self._partial = strips_space
        """Some character has begun, or the text has not: what a token adds is not its own text alone."""
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
        text = self._decoder.decode(self._token_bytes(token))
        if self._strips and text:
            self._strips, self._stripped = False, int(text[0] == " ")
            text = text[self._stripped :]
        self._segment += text
        self._partial = self._strips or bool(self._decoder.getstate()[0])

    def finalize(self) -> None:
        """No more tokens come: what is left of a character becomes U+FFFD."""
        self._segment += self._decoder.decode(b"", final=True)

    @property
    def last_segment(self) -> str:
        """The text since this was last asked."""
        segment, self._segment = self._segment, ""
        return segment

    def take_stripped(self) -> int:
        """The characters that the tokens since this was last asked had before the text: 0 or 1."""
        stripped, self._stripped = self._stripped, 0
        return stripped

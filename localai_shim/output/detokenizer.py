"""The bytes that a token stands for, and the text that a stream of tokens makes.

mlx-lm has detokenizers for every kind of tokenizer, and they are used where what a token stands for is not known. Its
byte-level one drops the space that a text begins with, holds a lone space back until the next token (so that a stop
string that ends in one is seen too late), and turns byte 0 into another character. Its one for sentencepiece fails for
ids beyond the tokenizer's, holds whole characters back with a broken one, and adds each token to all of the text.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, Protocol

from ..threads.panics import panics_are_errors

_WORD = re.compile("\u2581[A-Za-z]+")


@lru_cache(maxsize=1)
def byte_of_char() -> dict[str, int]:
    """GPT-2's byte-level alphabet, backwards: printable bytes stand for themselves, the rest from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(b): b for b in printable}
    others = (b for b in range(256) if b not in set(printable))
    alphabet.update({chr(0x100 + n): b for n, b in enumerate(others)})
    return alphabet


@lru_cache(maxsize=1)
def _alphabet() -> dict[int, int | str]:
    """`byte_of_char` for `str.translate`; what stands for no byte becomes a character that Latin-1 lacks."""
    alphabet: dict[str, int | str] = {chr(code): "\ufffd" for code in range(0x100)}
    return str.maketrans(alphabet | byte_of_char())


class TokenBytes:
    """Maps token ids to bytes, whichever way the tokenizer writes them down.

    Args:
        tokenizer: a Hugging Face tokenizer, or mlx-lm's wrapper of one.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._token = tokenizer.convert_ids_to_tokens  # mlx-lm's wrapper takes longer to find it than it takes to run
        self._special = {int(i) for i in getattr(tokenizer, "all_special_ids", ())}
        self._added = {int(i) for i in getattr(tokenizer, "added_tokens_decoder", ())}
        self.kind = _spelling(tokenizer)
        """Spelling of token strings: byte_level, sentencepiece or other."""
        self._bytes: dict[int, bytes] = {}
        self.texts: dict[int, str | None] = {}
        """Texts that `whole` has found so far."""

    @cached_property
    def strips_space(self) -> bool:
        """The tokenizer drops the space that a text begins with, since it puts one before every text that it reads."""
        if self.kind != "sentencepiece":
            return False
        tokenizer = self._tokenizer
        words = (i for i in range(len(tokenizer)) if _WORD.fullmatch(str(self._token(i))))
        word = next(words, None)
        return word is not None and not str(tokenizer.decode([word])).startswith(" ")

    def __call__(self, token_id: int) -> bytes:
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self.convert(token_id)
        return known

    def joined(self, token_ids: Sequence[int]) -> bytes:
        """Those of several tokens."""
        return b"".join(map(self, token_ids))

    def whole(self, token_id: int) -> str | None:
        """A token's text if it is made of whole characters."""
        try:
            return self.texts[token_id]
        except KeyError:
            try:
                text = self(token_id).decode()
            except UnicodeDecodeError:
                text = None
            self.texts[token_id] = text
            return text

    def text(self, token_id: int) -> str:
        r"""A token as OpenAI writes it: its text, or `\xe2\x80` where it is part of a character only."""
        text = self.whole(token_id)
        return "".join(f"\\x{byte:02x}" for byte in self(token_id)) if text is None else text

    def spelled(self, token_id: int) -> str:
        """A token's text in an answer, a character for each byte; control tokens have none."""
        return "" if token_id in self._special else self(token_id).decode("latin-1")

    def convert(self, token_id: int) -> bytes:
        """Find a token's bytes like a call, without keeping them: for callers that ask once for each token of a
        vocabulary.
        """
        token = self._token(token_id)
        if token is None:  # the model's vocabulary is padded beyond the tokenizer's
            return b""
        if token_id in self._special:
            return str(token).encode()
        if self.kind == "byte_level":
            if token_id in self._added:  # DeepSeek's `õ` is no byte of GPT-2's alphabet
                return str(token).encode()
            try:
                return str(token).translate(_alphabet()).encode("latin-1")
            except UnicodeError:
                return str(token).encode()
        if self.kind == "sentencepiece":
            if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
                return bytes([int(token[3:5], 16)])
            return str(token).replace("\u2581", " ").encode()
        return str(self._tokenizer.decode([token_id])).encode()


def _spelling(tokenizer: object) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder, *encoders = (repr(getattr(backend, part, None)) for part in ("decoder", "pre_tokenizer", "normalizer"))
    if any("ByteLevel" in part for part in (decoder, *encoders)):  # what encodes decides, whatever decodes
        return "byte_level"
    if "ByteFallback" in decoder or "Metaspace" in decoder or "\u2581" in decoder:
        return "sentencepiece"
    return "other"


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

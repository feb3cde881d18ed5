"""A model's tokens as llguidance sees them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterator, Mapping

from llguidance import LLTokenizer, TokenizerWrapper

MAX_ENCODED_TEXTS = 1024


class Vocabulary:
    """The tokens that a model can generate. One per model; may be used from several threads.

    Args:
        token_bytes: the bytes that a token stands for, such as a `TokenBytes`; empty where a token has none.
        size: how many token ids there are, padding of the model's vocabulary included.
        eos_token_ids: the tokens that end a sequence.
        added: contents of the tokens that were added to the tokenizer, by id. All of them but those that are only
            whitespace are special: free text never holds them, and a grammar names them.
        encode: text to token ids, special tokens recognised, none put around it.
    """

    def __init__(
        self,
        token_bytes: Callable[[int], bytes],
        size: int,
        eos_token_ids: Collection[int],
        added: Mapping[int, str],
        encode: Callable[[str], list[int]],
    ) -> None:
        self.size = size
        self.eos_token_ids = sorted(eos_token_ids)
        self.special = {i: content for i, content in added.items() if content.strip()}
        self._token_bytes = token_bytes
        self._added = dict(added)
        self._encode = encode

    @property
    def words(self) -> int:
        """Number of 32-bit words in a mask of all tokens."""
        return (self.size + 31) // 32

    @functools.cached_property
    def tokenizer(self) -> LLTokenizer:
        """Built when first asked for. That takes 0.9 s for 152,000 tokens, with the GIL: better while a model loads."""
        tokens = [self._added[i].encode() if i in self._added else self._token_bytes(i) for i in range(self.size)]
        wrapped = _WrappedTokenizer(tokens, sorted({*self.special, *self.eos_token_ids}), self._encode)
        made = LLTokenizer(TokenizerWrapper(wrapped), n_vocab=self.size, eos_token=self.eos_token_ids)
        tokens.clear()  # it has copied them, and keeps `wrapped`
        return made

    def split(self, text: str) -> Iterator[str | int]:
        """The pieces of a marker: ids of special tokens, and the text between them."""
        position = 0
        for token in self._encode(text):
            content = self.special.get(token)
            if content is None or (start := text.find(content, position)) < 0:
                continue
            if start > position:
                yield text[position:start]
            yield token
            position = start + len(content)
        if position < len(text):
            yield text[position:]

    def lark(self, text: str) -> str:
        """A Lark expression, for use in rules, of a marker: `<[id]>` for special tokens, the rest as literals."""
        return " ".join(map(expression, self.split(text))) or '""'


def expression(part: str | int) -> str:
    """A Lark expression of a piece that `Vocabulary.split` yields."""
    return f"<[{part}]>" if isinstance(part, int) else literal(part)


def literal(text: str) -> str:
    """A Lark string literal."""
    # DEL is not a character of Lark's literals, and JSON leaves it as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


class _WrappedTokenizer:
    """Tokens and encoder for llguidance's `TokenizerWrapper`, which has no base class for it."""

    bos_token_id = None

    def __init__(self, tokens: list[bytes], special: list[int], encode: Callable[[str], list[int]]) -> None:
        self.tokens = tokens
        self.special_token_ids = special
        self.eos_token_id = 0  # overridden by what LLTokenizer is given, which may be several
        # llguidance asks for the text that has to come next with every mask: a fifth of a millisecond each time.
        self._encode = functools.lru_cache(MAX_ENCODED_TEXTS)(encode)

    def __call__(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):  # this is how the wrapper finds out what it may pass
            raise TypeError("text is a str")
        return self._encode(text)

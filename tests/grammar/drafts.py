"""An untrained writer: draws any token that a grammar allows. What it writes shows what the grammar lets through."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from localai_shim.grammar.compile import Grammar, GrammarMatcher, Vocabulary
from localai_shim.output.detokenizer import TokenBytes
from tests.tiny import make_tokenizer

EOS = "<|im_end|>"


@functools.cache
def tokenizer_with(*added: str) -> Any:
    """The tiny byte-level tokenizer with more special tokens."""
    from transformers import AddedToken, PreTrainedTokenizerFast

    folder = Path(tempfile.mkdtemp(prefix="localai_shim-tokenizer-"))
    make_tokenizer(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens([AddedToken(content, special=bool(content.strip()), normalized=False) for content in added])
    return tokenizer


def vocabulary_of(tokenizer: Any, *, padding: int = 0, eos: Iterable[int] | None = None) -> Vocabulary:
    """What grammars see of a tokenizer."""
    return Vocabulary(
        TokenBytes(tokenizer),
        size=len(tokenizer) + padding,
        eos_token_ids=[tokenizer.eos_token_id] if eos is None else list(eos),
        added={i: token.content for i, token in tokenizer.added_tokens_decoder.items()},
        encode=lambda text: list(tokenizer.encode(text, add_special_tokens=False)),
    )


@functools.cache
def vocabulary_with(*added: str) -> Vocabulary:
    """The tiny byte-level vocabulary with more special tokens."""
    return vocabulary_of(tokenizer_with(*added))


def closed(properties: dict[str, Any], *optional: str, **more: Any) -> dict[str, Any]:
    """An object schema with these properties, all required but the optional ones, and no others."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False, **more}


def allowed(mask: np.ndarray) -> list[int]:
    """The ids of the tokens that a mask allows."""
    return list(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())


def draft(
    grammar: Grammar, vocabulary: Vocabulary, seed: object, *, limit: int = 600, endings: Sequence[str] = ()
) -> str | None:
    """A text that satisfies a grammar; None if it was not done within the limit.

    Uniform over the allowed tokens, but for a liking for tokens that end something, which grows with the text.

    Args:
        endings: texts of several tokens that end something.
    """
    rng = np.random.default_rng(seed)  # type: ignore[arg-type]
    matcher = grammar.matcher()
    mask = np.zeros(vocabulary.words, np.int32)
    eos, closing = _marked(vocabulary)
    begun: list[int] = []  # what is left of an ending
    tokens: list[int] = []
    for n in range(limit):
        matcher.mask(mask)
        options = np.unpackbits(mask.view(np.uint8), bitorder="little", count=vocabulary.size).astype(bool)
        hurry = rng.random() < max(0.2, n / limit)
        if (options & eos).any():
            options &= ~eos
            if not options.any() or rng.random() < 0.5:
                break
        if endings and hurry and not begun:
            begun = _tokens(vocabulary, endings[rng.integers(len(endings))])
        if begun and options[begun[0]]:
            tokens.append(begun.pop(0))
        else:
            begun = []
            pool = options & closing if hurry and (options & closing).any() else options
            tokens.append(int(rng.choice(np.flatnonzero(pool))))
        if matcher.accept(tokens[-1]):
            break
    else:
        return None
    return vocabulary.tokenizer.decode_bytes(tokens).decode()


def drafts(
    grammar: Grammar, vocabulary: Vocabulary, count: int, *, limit: int = 600, endings: Sequence[str] = ()
) -> list[str]:
    """That many texts of different seeds, finished all."""
    texts: list[str] = []
    seed = 0
    while len(texts) < count:
        text = draft(grammar, vocabulary, seed, limit=limit, endings=endings)
        seed += 1
        assert seed < 3 * count + 10, "the writer does not come to an end"
        if text is not None:
            texts.append(text)
    return texts


def says(grammar: Grammar, vocabulary: Vocabulary, text: str) -> bool:
    """Whether a text satisfies a grammar."""
    matcher = grammar.matcher()
    mask = np.zeros(vocabulary.words, np.int32)
    stopped = False
    for token in vocabulary.tokenizer.tokenize_str(text, parse_special=True):
        mask[:] = 0
        if not stopped:
            matcher.mask(mask)
        if token not in allowed(mask):
            return False
        stopped = matcher.accept(token)
    return stopped or may_end(matcher, vocabulary)


def may_end(matcher: GrammarMatcher, vocabulary: Vocabulary) -> bool:
    """An end of sequence is among the tokens that are allowed next."""
    mask = np.zeros(vocabulary.words, np.int32)
    matcher.mask(mask)
    return bool(np.flatnonzero(_marked(vocabulary)[0])[0] in allowed(mask))


@functools.cache
def _marked(vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """Which tokens end a sequence; which begin with a character that ends something, or are markers."""
    eos, closing = np.zeros(vocabulary.size, bool), np.zeros(vocabulary.size, bool)
    eos[vocabulary.eos_token_ids] = True
    closing[list(vocabulary.special)] = True
    for i in range(vocabulary.size):
        closing[i] |= vocabulary.tokenizer.decode_bytes([i])[:1] in (b'"', b"}", b"]", b"<", b"\n")
    return eos, closing


@functools.cache
def _cached_tokens(vocabulary: Vocabulary, text: str) -> tuple[int, ...]:
    return tuple(vocabulary.tokenizer.tokenize_str(text, parse_special=True))


def _tokens(vocabulary: Vocabulary, text: str) -> list[int]:
    return list(_cached_tokens(vocabulary, text))

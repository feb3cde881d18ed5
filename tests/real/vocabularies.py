"""The vocabularies that llama.cpp publishes beside its tests, as tokenizers that mlx-lm loads.

A gguf file holds a vocabulary's tokens, their types, and merges or scores. It does not hold how the tokenizer splits
text before it merges, of which it has the name alone: that is written down here, as the tokenizers library has it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONTROL, USER_DEFINED = 3, 4  # llama.cpp's types of tokens
_PADDING = re.compile(r"\[PAD\d+\]")  # what the converter calls ids that the tokenizer has no token for
_SPACE = "\u2581"

LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
ENGLISH = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class Kind:
    """How one vocabulary is used.

    Attributes:
        splits: makes the pre-tokenizer; None: a sentencepiece model's, which has a normalizer instead.
        bos: texts begin with the beginning-of-sequence token.
        whole_words: a word that is a token is that token, whatever the merges make of it.
        prepends: a space is put before every text.
        strips: control tokens that the models were tuned with take the whitespace behind them.
    """

    splits: Callable[[], Any] | None
    bos: bool = False
    whole_words: bool = False
    prepends: bool = False
    strips: bool = False


def _byte_level(*patterns: str, digits: bool | None = None, regex: bool = False) -> Callable[[], Any]:
    """Splits of byte-level vocabularies: patterns, numbers (True: digit by digit), and GPT-2's own pattern."""

    def make() -> Any:
        from tokenizers import Regex, pre_tokenizers

        parts: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
        if digits is not None:
            parts.append(pre_tokenizers.Digits(individual_digits=digits))
        return pre_tokenizers.Sequence([*parts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)])

    return make


def _falcon() -> Any:
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    )


def _gemma() -> Any:
    from tokenizers import pre_tokenizers

    return pre_tokenizers.Split(" ", "merged_with_previous")  # of which the normalizer leaves none


_HAN = "[一-龥\u0800-一가-\ud7ff]+"
_DEEPSEEK = ("[\r\n]", r"\s?[\p{Lu}\p{Ll}\p{Lt}]+", "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", _HAN)
_DEEPSEEK_CODER = ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN)

KINDS: dict[str, Kind] = {
    "aquila": Kind(_byte_level(regex=True)),
    "baichuan": Kind(None, prepends=True),
    "command-r": Kind(_byte_level(digits=True, regex=True), bos=True),
    "deepseek-coder": Kind(_byte_level(*_DEEPSEEK_CODER, digits=True), bos=True),
    "deepseek-llm": Kind(_byte_level(*_DEEPSEEK, digits=False), bos=True),
    "falcon": Kind(_falcon),
    "gemma-4": Kind(_gemma, bos=True),
    "gpt-2": Kind(_byte_level(regex=True)),
    "gpt-neox": Kind(_byte_level(regex=True)),
    "llama-bpe": Kind(_byte_level(rf"{ENGLISH}|{LETTERS}|\p{{N}}{{1,3}}|{REST}"), bos=True, whole_words=True),
    "llama-spm": Kind(None, bos=True, prepends=True),
    "mpt": Kind(_byte_level(regex=True)),
    "phi-3": Kind(None, bos=True, prepends=True, strips=True),
    "qwen2": Kind(_byte_level(rf"{ENGLISH}|{LETTERS}|\p{{N}}|{REST}")),
    "qwen35": Kind(
        _byte_level(
            rf"{ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    ),
    "refact": Kind(_byte_level(digits=True, regex=True)),
    "starcoder": Kind(_byte_level(digits=True, regex=True)),
}
"""Vocabularies of models that answer."""

LEFT_OUT = {
    "bert-bge": "an encoder's, which answers nothing",
    "nomic-bert-moe": "an encoder's, which answers nothing",
}
"""The other vocabularies, and why they are none of `KINDS`."""

CLASSES = {"llama-spm": "LlamaTokenizer", "phi-3": "LlamaTokenizer", "gemma-4": "GemmaTokenizer"}
"""Classes of transformers that the checkpoints name, which make a pre-tokenizer and a decoder of their own."""

UNTESTED = ("aquila", "baichuan", "gpt-neox")
"""Vocabularies beside which no expected tokenisations are published."""


def folder() -> Path:
    """The folder of the published vocabularies."""
    return Path(os.environ["LLAMA_CPP"]) / "models"


def published() -> list[str]:
    """Names of all the vocabularies that are there."""
    prefix = "ggml-vocab-"
    return sorted(path.stem.removeprefix(prefix) for path in folder().glob(f"{prefix}*.gguf"))


def expected(name: str) -> list[tuple[str, list[int]]]:
    """The published texts and their token ids, without a beginning of sequence."""
    path, mark = folder() / f"ggml-vocab-{name}.gguf", "\n__ggml_vocab_test__\n"
    texts = Path(f"{path}.inp").read_bytes().decode().removesuffix(mark).split(mark)
    lines = Path(f"{path}.out").read_text(encoding="utf-8").splitlines()
    return [(text, [int(i) for i in line.split()]) for text, line in zip(texts, lines, strict=True)]


def read(name: str) -> dict[str, Any]:
    """What a vocabulary's file says."""
    import mlx.core as mx

    _, metadata = mx.load(str(folder() / f"ggml-vocab-{name}.gguf"), return_metadata=True)
    return {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items()}


def save(name: str, target: Path, template: str | None, *, by_class: bool = False) -> int:
    """Write a vocabulary as the files of a tokenizer. Returns how many ids a model has for it, padding included.

    Args:
        by_class: transformers is to load it with the class in `CLASSES`.
    """
    from tokenizers import AddedToken, Tokenizer, processors
    from transformers import PreTrainedTokenizerFast

    kind, found = KINDS[name], read(name)
    texts, types = list(found["tokens"]), found["token_type"].tolist()
    size = len(texts)
    texts = [text for text in texts if not _PADDING.fullmatch(text)]
    tokenizer = Tokenizer(_model(kind, found, texts))
    _wrap(tokenizer, kind, plain=found["model"] == "gpt2")
    eos_id = int(found["eos_token_id"])
    added = [
        AddedToken(text, special=types[i] == CONTROL, normalized=False, rstrip=kind.strips and i > eos_id)
        for i, text in enumerate(texts)
        if types[i] in (CONTROL, USER_DEFINED)
    ]
    tokenizer.add_tokens(added)
    bos, eos = (texts[int(found[f"{which}_token_id"])] for which in ("bos", "eos"))
    if kind.bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, texts.index(bos))]
        )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos)
    fast.chat_template = template
    fast.save_pretrained(target)
    assert len(fast) == len(texts), "every id is the vocabulary's own"
    if by_class:
        path = target / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "tokenizer_class": CLASSES[name]}))
    return size


def _model(kind: Kind, found: dict[str, Any], texts: list[str]) -> Any:
    from tokenizers import models
    from transformers.convert_slow_tokenizer import generate_merges

    vocabulary = {text: i for i, text in enumerate(texts)}
    unknown = texts[int(found["unknown_token_id"])] if "unknown_token_id" in found else None
    if found["model"] == "llama":
        scores = dict(zip(texts, found["scores"].tolist(), strict=False))
        return models.BPE(
            vocabulary, generate_merges(vocabulary, scores), unk_token=unknown, fuse_unk=True, byte_fallback=True
        )
    merges = [_pair(merge, vocabulary) for merge in found["merges"]]
    if found["model"] == "gpt2":
        return models.BPE(vocabulary, merges, ignore_merges=kind.whole_words)
    return models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)


def _pair(merge: str, vocabulary: dict[str, int]) -> tuple[str, str]:
    """The halves of a merge, between which a space stands."""
    at = merge.index(" ", 1)
    assert merge[:at] in vocabulary and merge[at + 1 :] in vocabulary, merge
    return merge[:at], merge[at + 1 :]


def _wrap(tokenizer: Any, kind: Kind, *, plain: bool) -> None:
    """What stands around a tokenizer's model."""
    from tokenizers import decoders, normalizers

    if kind.splits is not None:
        tokenizer.pre_tokenizer = kind.splits()
    if plain:
        tokenizer.decoder = decoders.ByteLevel()
        return
    replace = normalizers.Replace(" ", _SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), replace]) if kind.prepends else replace
    parts = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)] if kind.prepends else parts)

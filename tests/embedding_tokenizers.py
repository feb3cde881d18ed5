"""Tokenizers of the tiny embedders: of the same form as those of each kind's published checkpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.tiny import CORPUS, byte_fallback_tokenizer

MAX_POSITIONS = 128
"""Tokens that encoders with learnt positions take."""


def _save(folder: Path, tokenizer: Any, special: str, length: int, *, types: bool = False, **more: Any) -> int:
    """Write a tokenizer whose special tokens are `name=token`, of texts of at most so many tokens."""
    from transformers import PreTrainedTokenizerFast

    inputs = ["input_ids", *["token_type_ids"] * types, "attention_mask"]
    tokens = {f"{name}_token": token for name, token in (pair.split("=") for pair in special.split())}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=length, model_input_names=inputs, **tokens, **more
    )
    fast.save_pretrained(folder)
    return len(fast)


def _around(tokenizer: Any, single: str, pair: str | None, names: Sequence[str]) -> None:
    from tokenizers import processors

    special = [(name, tokenizer.token_to_id(name)) for name in names]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)


def _word_pieces(folder: Path) -> int:
    """As BERT's: lower case, [CLS] a [SEP] b [SEP], the second text with type 1."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    words = sorted({word for line in CORPUS for word in re.findall(r"[a-z]+", line.lower())})
    letters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *words]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys(names))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    _around(tokenizer, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ["[CLS]", "[SEP]"])
    return _save(folder, tokenizer, "pad=[PAD] unk=[UNK] cls=[CLS] sep=[SEP] mask=[MASK]", MAX_POSITIONS, types=True)


def _bytes(names: Sequence[str]) -> Any:
    """Byte-level BPE with a few merges: each of the corpus' words of letters is a token, alone and behind a space."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {name: i for i, name in enumerate([*names, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    merges: list[tuple[str, str]] = []
    words = ["yes", "no", *sorted({word for line in CORPUS for word in re.findall(r"[a-z]{2,}", line)})]
    for text in [start + word for word in words for start in ("", "Ġ")]:
        for end in range(2, len(text) + 1):
            if text[:end] not in vocabulary:
                vocabulary[text[:end]] = len(vocabulary)
                merges.append((text[: end - 1], text[end - 1]))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(names))
    return tokenizer


def _modern(folder: Path) -> int:
    """As ModernBERT's: [CLS] a [SEP] b [SEP], without types."""
    names = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    tokenizer = _bytes(names)
    _around(tokenizer, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ["[CLS]", "[SEP]"])
    return _save(folder, tokenizer, "unk=[UNK] cls=[CLS] sep=[SEP] pad=[PAD] mask=[MASK]", MAX_POSITIONS)


def _qwen(folder: Path) -> int:
    """As Qwen3-Embedding's, which appends <|endoftext|>; a chat template's text has no token appended."""
    tokenizer = _bytes(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"])
    _around(tokenizer, "$A <|endoftext|>", "$A $B <|endoftext|>", ["<|endoftext|>"])
    return _save(folder, tokenizer, "eos=<|im_end|> pad=<|endoftext|>", 512, padding_side="left")


def _begun(folder: Path) -> int:
    """As Llama's: a token for the beginning."""
    tokenizer = _bytes(["<pad>", "<|startoftext|>", "<|im_end|>"])
    _around(tokenizer, "<|startoftext|> $A", "<|startoftext|> $A $B", ["<|startoftext|>"])
    return _save(folder, tokenizer, "bos=<|startoftext|> eos=<|im_end|> pad=<pad>", 512)


def _pieces(folder: Path) -> int:
    """As XLM-RoBERTa's: <s> a </s></s> b </s>, with pieces that have scores."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    words = sorted({word for line in CORPUS for word in re.findall(r"[^\W\d_]+", line)})
    letters = sorted({letter for line in CORPUS for letter in line if not letter.isspace()})
    names = ["<s>", "<pad>", "</s>", "<unk>", "▁", *letters, *(f"▁{word}" for word in words), "<mask>"]
    scored = [(name, -float(10 - min(len(name), 9)) if i > 3 else 0.0) for i, name in enumerate(dict.fromkeys(names))]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    _around(tokenizer, "<s> $A </s>", "<s> $A </s> </s> $B </s>", ["<s>", "</s>"])
    return _save(folder, tokenizer, "bos=<s> eos=</s> cls=<s> sep=</s> unk=<unk> pad=<pad> mask=<mask>", MAX_POSITIONS)


def _gemma(folder: Path) -> int:
    """As EmbeddingGemma's: bytes for what the vocabulary has not, between <bos> and <eos>."""
    from tokenizers import decoders, normalizers

    tokenizer = byte_fallback_tokenizer(normalizers.Replace(" ", "▁"), CORPUS)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>", "<pad>"])
    _around(tokenizer, "<s> $A </s>", "<s> $A $B </s>", ["<s>", "</s>"])
    return _save(folder, tokenizer, "bos=<s> eos=</s> unk=<unk> pad=<pad>", 512)


TOKENIZERS: dict[str, Callable[[Path], int]] = {
    "bert": _word_pieces,
    "modernbert": _modern,
    "xlm-roberta": _pieces,
    "qwen3": _qwen,
    "gemma3_text": _gemma,
    "lfm2": _begun,
    "ministral3": _begun,
    "llama_bidirec": _begun,
}
"""Each writes a kind's tokenizer into a folder and returns the size of its vocabulary."""

"""Prompts that have a model fill in what is missing between two texts, for tokenizers with tokens for that."""

from __future__ import annotations

from dataclasses import dataclass

from .template import ChatTokenizer
from .tokenizing import encode_within

# Tokens that mark the parts in a family of models: before the prefix, before the suffix, and behind both (empty where
# nothing is); the suffix comes first; tokens that may end an answer, beside the marks and the ends of sequences.
_FAMILIES: tuple[tuple[str, str, str, bool, tuple[str, ...]], ...] = (
    # Qwen2.5-Coder (https://github.com/QwenLM/Qwen2.5-Coder, "Fill in the middle" and "Repository level"),
    # CodeGemma (https://huggingface.co/google/codegemma-2b)
    (
        *("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", False),
        ("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|file_separator|>", "<|endoftext|>"),
    ),
    # StarCoder (https://huggingface.co/bigcode/starcoder, "Fill-in-the-middle")
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", False, ("<fim_pad>", "<file_sep>", "<|endoftext|>")),
    # DeepSeek-Coder (https://github.com/deepseek-ai/DeepSeek-Coder, "Code Insertion")
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", False, ()),
    # CodeLlama (https://github.com/meta-llama/codellama, `infilling_prompt_tokens`)
    ("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>", False, ("\u2581<EOT>",)),
    # Codestral (https://github.com/mistralai/mistral-common, `encode_fim`)
    ("[PREFIX]", "[SUFFIX]", "", True, ("[MIDDLE]",)),
)


@dataclass(frozen=True, slots=True)
class InfillingFormat:
    """Token ids of a model's marks."""

    prefix: int
    suffix: int
    middle: int | None
    suffix_first: bool
    ends: frozenset[int]
    """An answer ends before these."""


def find_infilling(tokenizer: ChatTokenizer) -> InfillingFormat | None:
    """Find the infilling format of a model; None where its tokenizer has no tokens for it."""
    ids = tokenizer.vocabulary
    for prefix, suffix, middle, suffix_first, others in _FAMILIES:
        marks = [text for text in (prefix, suffix, middle) if text]
        if all(text in ids for text in marks):
            ends = frozenset(ids[text] for text in (*marks, *others) if text in ids)
            return InfillingFormat(ids[prefix], ids[suffix], ids.get(middle), suffix_first, ends)
    return None


def infilling_prompt(
    format: InfillingFormat, tokenizer: ChatTokenizer, before: str, behind: str, *, raw: bool
) -> list[int]:
    """The tokens of a prompt that asks for what is missing between two texts.

    Args:
        raw: control tokens that the texts spell become such tokens; otherwise all of them is text.
    """
    encode = tokenizer.encode_bare if raw else tokenizer.encode_text
    is_byte_level = tokenizer.token_bytes.kind == "byte_level"  # others are of sentencepiece, which puts a space before
    prefix = [format.prefix, *encode(before)]
    suffix = [format.suffix, *(encode(behind) if is_byte_level else encode_within(encode, behind))]
    parts = [*suffix, *prefix] if format.suffix_first else [*prefix, *suffix]
    beginning = tokenizer.encode("")
    return [*beginning, *parts] if format.middle is None else [*beginning, *parts, format.middle]

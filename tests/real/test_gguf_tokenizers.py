"""The published vocabularies as they are read in GGUF files that are served."""

from __future__ import annotations

from pathlib import Path

import pytest

from localai_shim.models.gguf.header import read_header
from localai_shim.models.gguf.tokenizer import read_tokenizer
from localai_shim.types import ModelLoadError
from tests.real import vocabularies

READ = (
    *("command-r", "deepseek-coder", "deepseek-llm", "gpt-2", "llama-bpe", "llama-spm", "mpt", "phi-3"),
    *("gemma-4", "qwen2", "qwen35", "refact", "starcoder"),
)
"""Those whose splits are known; of the others no architecture is served, or the file does not name its splits."""


def file_of(name: str) -> Path:
    return vocabularies.folder() / f"ggml-vocab-{name}.gguf"


@pytest.mark.parametrize("name", READ)
def test_texts_become_the_published_tokens(name: str) -> None:
    tokenizer = read_tokenizer(read_header(file_of(name)))
    cases = vocabularies.expected(name)
    assert len(cases) >= 46
    assert [(text, tokenizer.encode(text, add_special_tokens=False)) for text, _ in cases] == cases


@pytest.mark.parametrize("name", sorted({*vocabularies.KINDS} - {*READ, "baichuan"}))
def test_what_is_not_known_is_refused(name: str) -> None:
    with pytest.raises(ModelLoadError, match=r"Unsupported pre-tokenizer|cannot be read, only gpt2, llama, and gemma4"):
        read_tokenizer(read_header(file_of(name)))


def test_pieces_of_gemma_merge_in_the_order_of_its_vocabulary() -> None:
    """Files of Gemma 3 have scores that fall from piece to piece where those of Gemma 4 have merges."""
    header = read_header(file_of("gemma-4"))
    count = len(header.list_of("tokenizer.ggml.tokens", str))
    scores = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [-float(i) for i in range(count)]}
    tokenizer = read_tokenizer(header._replace(metadata={**header.metadata, **scores}))
    cases = vocabularies.expected("gemma-4")
    assert [(text, tokenizer.encode(text, add_special_tokens=False)) for text, _ in cases] == cases

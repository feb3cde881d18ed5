"""Headers that are read without the tokenizer's lists: as whole ones, and sooner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest

from localai_shim.models.gguf import detection, header
from localai_shim.types import ModelLoadError
from tests.models.gguf.writing import close

WORDS = [f"word{i}" for i in range(5000)]


def file_of(path: Path, words: Sequence[str], *, after: bool = True, own: bool = False) -> Path:
    """A file with a vocabulary, and what stands before and after it."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_token_list(list(words))
    if own:
        writer.add_uint32("llama.after", 7)
    if after:
        writer.add_file_type(15)
        writer.add_chat_template("{{ messages }}")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    return close(writer)


@pytest.mark.parametrize("words", [WORDS, WORDS[:10], [*WORDS, "\0\0\0\0tokenizer.ggml", "\0\0\0\0general.x"]])
@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("own", [True, False])
def test_a_header_without_lists_is_the_rest_of_the_header(
    words: list[str], after: bool, own: bool, tmp_path: Path
) -> None:
    file = file_of(tmp_path / "x", words, after=after, own=own)
    whole = header.read_header(file)
    assert whole.metadata["tokenizer.ggml.tokens"] == words
    rest = {**whole.metadata, "tokenizer.ggml.tokens": []}
    for short in (header.peek(file), header.read_header(file, lists=False)):
        assert short.metadata == rest
        assert [tensor[:2] for tensor in short.tensors.values()] == [tensor[:2] for tensor in whole.tensors.values()]
    assert header.read_header(file, lists=False).tensors == whole.tensors


def test_a_tensor_that_mlx_cannot_read_is_shown_and_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x", "llama")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.int8))
    file = close(writer)
    [tensor] = header.peek(file).tensors.values()
    assert tensor.kind == gguf.GGMLQuantizationType.I8
    with pytest.raises(ModelLoadError, match=r"tensor 'token_embd.weight'"):
        header.read_header(file, lists=False)


def test_a_header_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    file = file_of(tmp_path / "x", WORDS)
    content = file.read_bytes()
    for size in (10, 1000, 50_000, content.index(b"general.file_type")):
        file.write_bytes(content[:size])
        with pytest.raises(ModelLoadError, match="damaged, or was not downloaded completely"):
            header.peek(file)


def test_files_are_known_by_their_first_bytes(tmp_path: Path) -> None:
    assert detection.is_gguf(file_of(tmp_path / "sha256-abc", WORDS))
    (tmp_path / "x.gguf").write_bytes(b"GGU")
    assert not detection.is_gguf(tmp_path / "x.gguf") and not detection.is_gguf(tmp_path)

"""GGUF files that are made to harm: refused in little time and memory, before MLX's reader sees them."""

from __future__ import annotations

import os
import struct
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from localai_shim.models.gguf import header as limits
from localai_shim.models.gguf.checkpoint import read_checkpoint
from localai_shim.models.gguf.header import read_header
from localai_shim.models.gguf.tokenizer import MAX_TOKENS, end_tokens, read_tokenizer
from localai_shim.models.loading import load_model
from localai_shim.options import LoadOptions
from localai_shim.types import ModelLoadError
from tests.models.gguf.writing import write
from tests.tiny import tiny

F32, Q8_0 = 0, 8
U8, U32, U64, TEXT, ARRAY = 0, 4, 10, 8, 9
BOUND_SECONDS = 20.0
"""Many times what the slowest takes on a busy machine; what is refused took a minute or more."""


def text(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key.encode()) + struct.pack("<I", kind) + value


def listed(key: str, kind: int, count: int, content: bytes) -> bytes:
    return pair(key, ARRAY, struct.pack("<IQ", kind, count) + content)


def tensor(name: str = "t", shape: Sequence[int] = (8,), kind: int = F32, offset: int = 0) -> bytes:
    return text(name.encode()) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def made(tensors: Sequence[bytes], pairs: Sequence[bytes] = (), *, counts: tuple[int, int] | None = None) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, *(counts or (len(tensors), len(pairs))))
    return head + b"".join([*pairs, *tensors])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (made([tensor(shape=[1] * 9)]), "tensor 't' has 9 dimensions, and no tensor has more than 4"),
        (made([tensor(shape=[1] * 3_000_000)]), "tensor 't' has 3,000,000 dimensions"),
        (made([tensor(shape=[])]), "tensor 't' has 0 dimensions"),
        (made([tensor(shape=[0, 1 << 40])]), r"tensor 't' has the shape \[0, 1099511627776\]"),
        (made([tensor(shape=[1 << 31])]), r"tensor 't' has the shape \[2147483648\]"),
        (made([tensor(shape=[1 << 30] * 4)]), "tensor 't' .* ends past the end of the file"),
        (made([tensor(offset=(1 << 64) - 32)]), "tensor 't' .* ends past the end of the file"),
        (made([tensor(offset=16)]), "tensor 't' .* begins at 16, which is no multiple of 32"),
        (made([tensor(shape=[31], kind=Q8_0)]), "rows that are no multiple of 32 values"),
        (made([tensor(), tensor()]), "it has two tensors of the name 't'"),
        (made([tensor(), tensor("u")]), "tensors 't' and 'u' overlap"),
        (made([tensor("t" * 256)]), "it has a text of 256 bytes where no file has more than 255"),
        (made([], counts=(1 << 63, 0)), "it has 9,223,372,036,854,775,808 tensors, and no model has more than"),
        (made([], counts=(0, 1 << 32)), "it has 4,294,967,296 keys of metadata"),
        (made([], [pair("a", U32, bytes(4))] * 2), "its metadata has 'a' twice"),
        (made([], [pair("a", 13, bytes(8))]), "its metadata has a value of the unknown type 13"),
        (made([], [listed("a", ARRAY, 1, struct.pack("<IQ", ARRAY, 1) * 100_000)]), "its metadata has a list of lists"),
        (made([], [listed("a", U8, 1 << 63, b"")]), "its header ends past the end of the file"),
        (made([], [listed("a", TEXT, 1 << 63, b"")]), "its header ends past the end of the file"),
        (made([], [listed("a", TEXT, 2, text(b"") + struct.pack("<Q", 1 << 62))]), "ends past the end of the file"),
        (
            made([], [listed("tokenizer.ggml.tokens", TEXT, 1 << 22, bytes(8 << 22))]),
            "a list of 4,194,304 values, and no model has more than 2,097,152",
        ),
        (made([], [pair("a" * 70_000, U32, bytes(4))]), "a text of 70,000 bytes where no file has more than 65,535"),
        (made([], [listed("a", U8, 90 << 20, bytes(90 << 20))]), "its header has more than 64 MiB"),
        (made([], [pair("general.alignment", U32, struct.pack("<I", 0))]), "'general.alignment' is 0, which is no pow"),
        (made([], [pair("general.alignment", U32, struct.pack("<I", 24))]), "'general.alignment' is 24"),
        (made([], [pair("general.alignment", U32, struct.pack("<I", 1 << 31))]), "'general.alignment' is 2,147"),
        (made([], [pair("general.alignment", U64, struct.pack("<Q", 64))]), "is not an unsigned number of 32 bits"),
    ],
    ids=range(27),
)
def test_a_lie_in_the_header_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    """In a bounded time, and in memory for little more than the bytes that are read."""
    (tmp_path / "a.gguf").write_bytes(content + bytes(64))
    began = time.thread_time()
    with pytest.raises(ModelLoadError, match=rf"a\.gguf' is damaged, or was not downloaded completely: .*{message}"):
        read_header(tmp_path / "a.gguf")
    assert time.thread_time() - began < BOUND_SECONDS
    (tmp_path / "a.gguf").unlink()


def test_lists_that_nothing_needs_are_passed_over(tmp_path: Path) -> None:
    """The most that a header has room for: of the numbers of a list of bytes no objects are made."""
    size = limits.MAX_HEADER_BYTES - 200
    (tmp_path / "a.gguf").write_bytes(made([], [listed("a", U8, size, bytes(size))]))
    tracemalloc.start()
    header = read_header(tmp_path / "a.gguf")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    (tmp_path / "a.gguf").unlink()
    assert header.metadata == {"a": []}
    assert peak < 1.5 * limits.MAX_HEADER_BYTES


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tokenizer.ggml.tokens", ["a"] * (MAX_TOKENS + 1), "has 1,048,577 tokens, and no model has more"),
        (
            "tokenizer.ggml.tokens",
            ["a" * 5000],
            "has a token of 5,000 characters, and no model of its kind has one of m",
        ),
        ("tokenizer.ggml.tokens", ["a", 1], "'tokenizer.ggml.tokens' is not a list of str"),
        ("tokenizer.ggml.tokens", 7, "'tokenizer.ggml.tokens' is not a list of str"),
        ("tokenizer.ggml.token_type", [1, 2], "has 400 tokens, and types of 2"),
        ("tokenizer.ggml.token_type", [True] * 400, "'tokenizer.ggml.token_type' is not a list of int"),
        ("tokenizer.ggml.merges", ["ab"], "'tokenizer.ggml.merges' has 'ab', which is no pair"),
        ("tokenizer.ggml.eos_token_id", "x", "'tokenizer.ggml.eos_token_id' is a str, not a int"),
        ("tokenizer.ggml.eos_token_id", True, "'tokenizer.ggml.eos_token_id' is a bool, not a int"),
        ("tokenizer.chat_template", 5, "'tokenizer.chat_template' is a int, not a str"),
    ],
)
def test_a_tokenizer_that_lies_is_refused(key: str, value: limits.Value, message: str, tmp_path: Path) -> None:
    header = read_header(write(tiny("qwen3"), tmp_path / "a.gguf"))
    kinds: dict[str, limits.Value] = {"tokenizer.ggml.token_type": []} if key == "tokenizer.ggml.tokens" else {}
    with pytest.raises(ModelLoadError, match=rf"a\.gguf'.* {message}"):
        read_tokenizer(header._replace(metadata={**header.metadata, **kinds, key: value}))


def test_ends_that_are_no_tokens_end_nothing(tmp_path: Path) -> None:
    """Files write the largest number for none."""
    header = read_header(write(tiny("qwen3"), tmp_path / "a.gguf"))
    wild = {"tokenizer.ggml.eot_token_id": (1 << 32) - 1, "tokenizer.ggml.eom_token_id": -1}
    assert end_tokens(header._replace(metadata={**header.metadata, **wild})) == end_tokens(header)


def test_damage_anywhere_ends_in_an_answer_or_a_refusal(tmp_path: Path) -> None:
    """Each byte of a header is another, in turn: what is not refused MLX loads."""
    path = write(tiny("qwen3"), tmp_path / "a.gguf")
    content = path.read_bytes()
    tensors = content.index(text(b"token_embd.weight"))
    loaded = refused = 0
    for at in [*range(0, 1000, 29), *range(tensors, tensors + 1500, 41)]:
        for byte in (0, 0xFF):
            path.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
            try:
                read_header(path)
                read_checkpoint(path)
                loaded += 1
            except (ModelLoadError, ValueError):  # of mlx-lm: shapes that do not fit the config
                refused += 1
    assert loaded > 10
    assert refused > 50


def test_loading_a_file_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a process that is killed leaves nothing behind."""
    file = write(tiny("qwen3"), tmp_path / "a.gguf")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    model = load_model(str(file), LoadOptions())
    assert model.tasks[0] == "generate"
    assert os.listdir(tmp_path / "temporary") == []
    assert sorted(os.listdir(tmp_path)) == ["a.gguf", "temporary"]


def test_the_ending_may_be_in_capitals(tmp_path: Path) -> None:
    file = write(tiny("qwen3"), tmp_path / "a.gguf").rename(tmp_path / "A.GGUF")
    assert load_model(str(file), LoadOptions()).name == "A.GGUF"

"""Tokenizers of GGUF files: the original ones on many texts, and SentencePiece itself."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import sentencepiece
from gguf import TokenType
from transformers import AutoTokenizer

from localai_shim.models.gguf.header import read_header
from localai_shim.models.gguf.tokenizer import end_tokens, read_tokenizer
from localai_shim.types import ModelLoadError
from tests.models.gguf import writing
from tests.tiny import CORPUS, THINKING, make_tokenizer

TEXTS = [
    *CORPUS[:5],
    "",
    " ",
    "  two  spaces   three ",
    "\n\n\t a\r\n \n",
    "1234567890 12 3.14 1,000,000 ٣٤ ²½",
    "e\u0301te\u0301 \u00e9t\u00e9 A\u030angstro\u0308m",
    "👩‍👩‍👧‍👦🏳️‍🌈 flags 🇫🇷\ufe0f",
    "I'll can't WE'VE don’t",
    "مرحبا שלום नमस्ते สวัสดี 한국어",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|> <|im_start|> <|im_end",
    "<think> a</think><tool_call>",
    "a\u00a0b\u3000c\u200bd\x00\x7f",
    "https://example.org/a?b=c&d=%20 {'x': [1, 2]}  # !!",
]
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello, 你好!"}]


def file_of(path: Path, write: Any, architecture: str = "llama") -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    write(writer)
    return writing.close(writer)


@pytest.mark.parametrize(("name", "pre"), [("Qwen2Tokenizer", "qwen2"), ("GPT2Tokenizer", "gpt-2")])
def test_byte_level_texts_become_the_tokens_of_the_original(name: str, pre: str, tmp_path: Path) -> None:
    """Transformers' own class is the original: it brings what a vocabulary's splits and normaliser are."""
    import transformers

    make_tokenizer(tmp_path, template=THINKING, vocabulary=600)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    vocabulary, merges = content["model"]["vocab"], [tuple(merge) for merge in content["model"]["merges"]]
    ends = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None, "bos_token": None}
    original = getattr(transformers, name)(vocab=vocabulary, merges=merges, **ends)
    original.add_tokens(["<|im_start|>"], special_tokens=True)
    original.add_tokens(["<think>", "</think>"])
    original.chat_template = THINKING
    original.save_pretrained(tmp_path / "original")
    file = file_of(tmp_path / "a.gguf", lambda each: writing.write_tokenizer(each, tmp_path / "original", pre))
    found = read_tokenizer(read_header(file))
    assert {text: found.encode(text) for text in TEXTS} == {text: original.encode(text) for text in TEXTS}
    ids = [found.encode(text) for text in TEXTS]
    assert [found.decode(each) for each in ids] == [original.decode(each) for each in ids]
    assert found.get_vocab() == original.get_vocab()
    assert set(found.all_special_ids) == set(original.all_special_ids)
    rendered = original.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert found.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True) == rendered


@pytest.mark.parametrize("prefix", [True, False])
def test_pieces_are_those_of_sentencepiece(prefix: bool, tmp_path: Path) -> None:
    """A model that its own library trained: scores, byte fallback, texts that are always one piece."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=trained,
        model_type="bpe",
        vocab_size=420,
        byte_fallback=True,
        user_defined_symbols=["<think>", "\t\t"],
        control_symbols=["<end_of_turn>"],
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=prefix,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    checks = {
        TokenType.UNKNOWN: model.IsUnknown,
        TokenType.CONTROL: model.IsControl,
        TokenType.BYTE: model.IsByte,
        TokenType.USER_DEFINED: lambda i: model.IdToPiece(i) in ("<think>", "\t\t"),
    }
    ids = range(model.GetPieceSize())
    kinds = [next((kind for kind, check in checks.items() if check(i)), TokenType.NORMAL) for i in ids]

    def write(writer: Any) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list([model.IdToPiece(i) for i in ids])
        writer.add_token_scores([model.GetScore(i) for i in ids])
        writer.add_token_types(kinds)
        writer.add_bos_token_id(model.bos_id())
        writer.add_eos_token_id(model.eos_id())
        writer.add_unk_token_id(model.unk_id())
        writer.add_add_space_prefix(prefix)

    header = read_header(file_of(tmp_path / "a.gguf", write))
    found = read_tokenizer(header)
    texts = [text for text in TEXTS if not (prefix and "<think>" in text)]  # llama.cpp has a prefix behind it, too
    expected = {text: model.encode(text) for text in texts}
    assert {text: found.encode(text, add_special_tokens=False) for text in texts} == expected
    assert all(found.encode(text) == [model.bos_id(), *ids] for text, ids in expected.items()), "one begins a text"
    decoded = {text: found.decode(ids) for text, ids in expected.items()}
    assert decoded == {text: model.decode(ids) for text, ids in expected.items()}
    assert end_tokens(header) == [model.eos_id(), model.PieceToId("<end_of_turn>")]


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    make_tokenizer(tmp_path)
    return tmp_path


def test_several_templates_keep_their_names(vocabulary: Path) -> None:
    templates = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "with tools"}]

    def write(writer: Any) -> None:
        (vocabulary / "chat_template.jinja").unlink()
        writing.write_tokenizer(writer, vocabulary)
        writer.add_chat_template(templates)

    made = read_tokenizer(read_header(file_of(vocabulary / "a.gguf", write)))
    made.save_pretrained(vocabulary / "saved")
    saved = AutoTokenizer.from_pretrained(vocabulary / "saved")
    assert saved.chat_template == {"default": "plain", "tool_use": "with tools"}


def test_ids_that_only_fill_the_vocabulary_are_no_tokens(vocabulary: Path) -> None:
    """Else a draft model of the same family, whose embedding has another number of rows, would have other tokens."""

    def write(writer: Any, more: int) -> None:
        writing.write_tokenizer(writer, vocabulary)
        [pairs] = writer.kv_data
        pairs["tokenizer.ggml.tokens"].value.extend(f"[PAD{400 + i}]" for i in range(more))
        pairs["tokenizer.ggml.token_type"].value.extend([TokenType.UNUSED] * more)

    files = [file_of(vocabulary / f"{more}.gguf", lambda each, n=more: write(each, n)) for more in (0, 5)]
    first, second = (read_tokenizer(read_header(file)).get_vocab() for file in files)
    assert first == second


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tokenizer.ggml.pre", "unheard-of", r"Unsupported pre-tokenizer 'unheard-of'.*Supported: gpt-2"),
        ("tokenizer.ggml.model", "bert", "tokenizers of the kind 'bert' cannot be read, only gpt2, llama, and gemma4"),
        ("tokenizer.ggml.model", "llama", "'tokenizer.ggml.scores' has no score for each token"),
        ("tokenizer.ggml.merges", ["zzz zzz"], "the tokenizer in the metadata is damaged"),
        ("tokenizer.ggml.tokens", ["a", "a"], "has the same token twice"),
        ("tokenizer.ggml.tokens", ["a", 1], "the metadata lacks 'tokenizer.ggml.tokens'"),
    ],
)
def test_a_tokenizer_that_cannot_be_read_is_said(key: str, value: Any, message: str, vocabulary: Path) -> None:
    file = file_of(vocabulary / "a.gguf", lambda each: writing.write_tokenizer(each, vocabulary))
    header = read_header(file)
    broken = {**header.metadata, key: value if value != ["a", 1] else []}
    broken["tokenizer.ggml.token_type"] = []
    with pytest.raises(ModelLoadError, match=message):
        read_tokenizer(header._replace(metadata=broken))


def test_a_message_of_harmony_does_not_end_an_answer(tmp_path: Path) -> None:
    """`<|end|>` ends an answer of Phi 3, and one of several messages of gpt-oss."""

    def with_tokens(*texts: str) -> list[str]:
        def tokens(writer: Any) -> None:
            writer.add_tokenizer_model("gpt2")
            writer.add_token_list([*texts, "a"])
            writer.add_token_types([TokenType.CONTROL] * len(texts) + [TokenType.NORMAL])

        return [texts[i] for i in end_tokens(read_header(file_of(tmp_path / "a.gguf", tokens)))]

    assert with_tokens("<|end|>", "<|user|>") == ["<|end|>"]
    assert with_tokens("<|end|>", "<|return|>", "<|call|>") == ["<|return|>", "<|call|>"]
    assert with_tokens("<turn|>", "<|tool_response>") == ["<turn|>", "<|tool_response>"]


def test_pieces_with_listed_merges_are_merged_in_their_order(tmp_path: Path) -> None:
    """Gemma 4 has pieces as SentencePiece has, and merges as BPE has."""
    texts = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a", "b", "c", "ab", "bc", "\u2581ab"]

    def tokens(writer: Any) -> None:
        writer.add_tokenizer_model("gemma4")
        writer.add_token_list(texts)
        kinds = [TokenType.UNKNOWN, *[TokenType.BYTE] * 256, *[TokenType.NORMAL] * 7]
        writer.add_token_types(kinds)
        writer.add_token_merges(["b c", "a b", "\u2581 ab"])
        writer.add_add_space_prefix(False)

    tokenizer = read_tokenizer(read_header(file_of(tmp_path / "a.gguf", tokens)))

    def pieces(text: str) -> list[str]:
        return tokenizer.convert_ids_to_tokens(tokenizer.encode(text, add_special_tokens=False))

    assert pieces("abc ab") == ["a", "bc", "\u2581ab"]
    assert pieces("a\u00e9") == ["a", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("abc ab\u00e9", add_special_tokens=False)) == "abc ab\u00e9"

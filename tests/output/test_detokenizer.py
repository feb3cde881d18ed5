"""The bytes of a token: those of a text's tokens, one after the other, are the text."""

from __future__ import annotations

from typing import Any

import pytest

from localai_shim.models.text import correct_decoder
from localai_shim.output.detokenizer import TokenBytes
from tests.conftest import TEXTS


@pytest.mark.parametrize("text", [*TEXTS, " leading space", "\x00\x01\x7f", "\u00a0\u200b\ufeff"])
def test_the_bytes_of_all_tokens_are_the_text(tokenizer: Any, text: str) -> None:
    token_bytes = TokenBytes(tokenizer)
    ids = tokenizer.encode(text, add_special_tokens=False)
    joined = b"".join(token_bytes(i) for i in ids)
    # Sentencepiece writes a space before the first word.
    assert joined in (text.encode(), b" " + text.encode())


@pytest.mark.parametrize("part", ["pre_tokenizer", "normalizer"])
def test_what_encodes_says_how_tokens_are_spelled_whatever_decodes(byte_level: Any, part: str) -> None:
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer.from_str(byte_level._tokenizer.backend_tokenizer.to_str())
    if part == "normalizer":
        backend.normalizer, backend.pre_tokenizer = normalizers.ByteLevel(), pre_tokenizers.Whitespace()
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    token_bytes, text = TokenBytes(tokenizer), "Zażółć two"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert token_bytes.kind == "byte_level"
    assert token_bytes.joined(ids) == text.encode()
    assert tokenizer.decode(ids) != text
    correct_decoder(tokenizer)
    assert tokenizer.decode(ids) == text


def test_a_decoder_that_fits_stays_as_it_is(tokenizer: Any) -> None:
    backend = tokenizer._tokenizer.backend_tokenizer
    before = repr(backend.decoder)
    correct_decoder(tokenizer._tokenizer)
    assert repr(backend.decoder) == before


def test_every_byte_has_a_token(byte_level: Any) -> None:
    token_bytes = TokenBytes(byte_level)
    single = {token_bytes(i) for i in range(len(byte_level)) if len(token_bytes(i)) == 1}
    assert single == {bytes([b]) for b in range(256)}


def test_byte_tokens_of_sentencepiece_stand_for_their_byte(sentencepiece: Any) -> None:
    token_bytes = TokenBytes(sentencepiece)
    for byte in range(256):
        assert token_bytes(sentencepiece.convert_tokens_to_ids(f"<0x{byte:02X}>")) == bytes([byte])


def test_a_special_token_is_its_name(tokenizer: Any) -> None:
    assert TokenBytes(tokenizer)(tokenizer.eos_token_id) == tokenizer.eos_token.encode()


def test_a_special_token_is_no_text_and_others_are_spelled_byte_by_byte(tokenizer: Any) -> None:
    bytes_of = TokenBytes(tokenizer)
    assert bytes_of.spelled(tokenizer.all_special_ids[0]) == ""
    for token in tokenizer.encode("A dog.", add_special_tokens=False):
        assert bytes_of.spelled(token).encode("latin-1") == bytes_of(token)


def test_an_id_beyond_the_tokenizers_vocabulary_has_no_bytes(tokenizer: Any) -> None:
    assert TokenBytes(tokenizer)(len(tokenizer) + 5) == b""


def test_bytes_do_not_depend_on_what_was_asked_before(tokenizer: Any) -> None:
    forwards, backwards = TokenBytes(tokenizer), TokenBytes(tokenizer)
    ids = range(len(tokenizer))
    assert [forwards(i) for i in ids] == [backwards(i) for i in reversed(ids)][::-1]
    assert [forwards(i) for i in ids] == [backwards(i) for i in ids]


def test_another_kind_of_tokenizer_is_asked_for_the_text_of_the_token() -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "one": 1, "##s": 2, "é": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    token_bytes = TokenBytes(fast)
    assert [token_bytes(i) for i in (1, 3)] == [b"one", "é".encode()]

"""A chat model's tokenizer in each of the forms that tokenizers come in, trained on the spot."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.tiny import CORPUS, byte_fallback_tokenizer

MARKUP = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
LIKE_HTML = ["<image>", "<boi>", "<eot>", "<video>", "<sep>"]  # special by their flag alone
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *LIKE_HTML]


class Added(NamedTuple):
    """Tokens that are added to what was trained."""

    special: Sequence[str]
    markup: Sequence[str]


ALL = Added(SPECIAL, MARKUP)
END = Added(["<|im_end|>"], [])
"""The end of a turn alone, which every tokenizer has."""

# Qwen 3's way to look into contents, and the places that callers' strings have in templates.
TEMPLATE = r"""
{%- if tools %}<|im_start|>system
<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools><|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- set content = message.content -%}
{%- if message.role == 'tool' -%}
<|im_start|>user
<tool_response>
{{ message.name }} {{ message.tool_call_id }} {{ content }}
</tool_response><|im_end|>
{% else -%}
<|im_start|>{{ message.role }}{{ ' ' + message.name if message.name }}
{% if message.role == 'assistant' -%}
{%- set reasoning = message.reasoning_content -%}
{%- if not reasoning and '</think>' in content -%}
{%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') -%}
{%- set content = content.split('</think>')[-1].lstrip('\n') -%}
{%- endif -%}
{%- if reasoning -%}<think>
{{ reasoning }}
</think>

{% endif -%}
{%- endif -%}
{{ content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"id": {{ call.id | tojson }}, "name": {{ call.function.name | tojson }}
{{- ', "arguments": ' }}{{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}"""


def byte_level(folder: Path, added: Added = ALL) -> None:
    """GPT-2's kind, which most have."""
    from tokenizers import decoders, models, pre_tokenizers, trainers

    trained = _new(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trained.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    _save(trained, folder, added)


def byte_level_misdecoded(folder: Path, added: Added = ALL) -> None:
    """Devstral Small 2's: GPT-2's kind with the decoder of Llama 2's."""
    byte_level(folder, added)
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    content["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    file.write_text(json.dumps(content))


def prepending(folder: Path, added: Added = ALL) -> None:
    """Llama 2's kind: a space is put before every text, behind control tokens as well."""
    from tokenizers import decoders, normalizers

    normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer = _with_bytes(normalizer)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    _save(tokenizer, folder, added)


def metaspace(folder: Path, added: Added = ALL) -> None:
    """Mistral's kind: a space is put before the first text only."""
    from tokenizers import decoders, pre_tokenizers

    tokenizer = _with_bytes(None)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    _save(tokenizer, folder, added)


def unigram(folder: Path, added: Added = ALL, *, with_bytes: bool = False) -> None:
    """T5's kind; the control tokens are in the model's own vocabulary, which finds them in any text."""
    from tokenizers import decoders, models, normalizers

    words = [*"\n\t0123456789", *map(chr, range(0x21, 0x7F)), "\u2581", "\u2581the", "ing", "Hi", "im"]
    pieces = [("<unk>", -20.0), *((text, 0.0) for text in [*added.special, *added.markup])]
    pieces += [(f"<0x{byte:02X}>", -15.0) for byte in range(256) if with_bytes]
    pieces += [(piece, -5.0) for piece in dict.fromkeys(words)]
    tokenizer = _new(models.Unigram(pieces, unk_id=0, byte_fallback=with_bytes))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    _save(tokenizer, folder, added)


def unigram_with_bytes(folder: Path, added: Added = ALL) -> None:
    """As `unigram`, with bytes for characters that it has not."""
    unigram(folder, added, with_bytes=True)


def word_pieces(folder: Path, added: Added = ALL) -> None:
    """BERT's kind, in lower case, with a space between any two words."""
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    letters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    words = sorted({word for text in CORPUS for word in re.findall(r"[a-z]+", text.lower())})
    names = dict.fromkeys(["[UNK]", *letters, *(f"##{letter}" for letter in letters), *words])
    tokenizer = _new(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    _save(tokenizer, folder, added)


KINDS: dict[str, Callable[[Path], None]] = {
    "byte_level": byte_level,
    "prepending": prepending,
    "metaspace": metaspace,
    "unigram": unigram,
}


def load(folder: Path, kind: str) -> Any:
    """mlx-lm's wrapper of a tokenizer of this kind."""
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from mlx_lm.tokenizer_utils import load as load_fast

    if kind in KINDS:
        KINDS[kind](folder)
        return load_fast(folder)
    made = _Sentencepiece.make(folder) if kind == "sentencepiece in Python" else _of_tiktoken()
    made.chat_template = TEMPLATE
    return TokenizerWrapper(made)


def _new(model: Any) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer(model)


def _with_bytes(normalizer: Any) -> Any:
    return byte_fallback_tokenizer(normalizer, [text.replace(" ", "\u2581") for text in CORPUS if text.isascii()])


def _save(tokenizer: Any, folder: Path, added: Added) -> None:
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast

    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in added.special])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in added.markup])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)


class _Sentencepiece:
    @staticmethod
    def make(folder: Path) -> Any:
        """A sentencepiece model that transformers runs in Python, markup being symbols of the model's own."""
        import sentencepiece
        from transformers.tokenization_utils_sentencepiece import SentencePieceBackend

        corpus = folder / "corpus.txt"
        corpus.write_text(
            "\n".join(text for text in CORPUS if text.isascii()) + "\n" + "".join(map(chr, range(33, 127)))
        )
        sentencepiece.SentencePieceTrainer.train(
            input=str(corpus),
            model_prefix=str(folder / "spm"),
            vocab_size=400,
            model_type="bpe",
            byte_fallback=True,
            character_coverage=1.0,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            user_defined_symbols=[*MARKUP, "\n"],
            minloglevel=2,
        )
        return SentencePieceBackend(
            vocab_file=str(folder / "spm.model"),
            legacy=False,
            eos_token="<|im_end|>",
            unk_token="<unk>",
            additional_special_tokens=SPECIAL,
        )


def _of_tiktoken() -> Any:
    """As Kimi's: `encode` is the tokenizer's own, and finds special tokens that only `special_tokens` tells of."""
    from transformers import PreTrainedTokenizer

    class Tiktoken(PreTrainedTokenizer):  # type: ignore[misc]
        special_tokens = dict(zip([*SPECIAL, *MARKUP, "<|reserved_1|>"], range(256, 320), strict=False))  # noqa: RUF012
        _pattern = re.compile("(" + "|".join(map(re.escape, special_tokens)) + ")")

        @property
        def vocab_size(self) -> int:
            return 256 + len(self.special_tokens)

        def get_vocab(self) -> dict[str, int]:
            return {chr(0x100 + byte): byte for byte in range(256)} | self.special_tokens

        def encode(self, text: str, **_: Any) -> list[int]:
            parts = enumerate(self._pattern.split(text))
            return [i for n, part in parts for i in ([self.special_tokens[part]] if n % 2 else part.encode())]

        def decode(self, ids: Sequence[int], **_: Any) -> str:
            names = {i: text.encode() for text, i in self.special_tokens.items()}
            return b"".join(names.get(i) or bytes([i]) for i in ids).decode(errors="replace")

        def _convert_token_to_id(self, token: str) -> int:
            return self.get_vocab()[token]

        def _convert_id_to_token(self, index: int) -> str:
            return next(token for token, i in self.get_vocab().items() if i == index)

        def _tokenize(self, text: str, **_: Any) -> list[str]:
            return [self._convert_id_to_token(i) for i in self.encode(text)]

    return Tiktoken(eos_token="<|im_end|>")

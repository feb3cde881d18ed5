"""Tokenizer of a GGUF file, built with the tokenizers library as the original one is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ...types import ModelLoadError
from .header import Header

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5
_SPACE = "\u2581"
_PADDING = re.compile(r"\[PAD\d+\]")  # what fills the vocabulary up to the number of rows of the embedding
_ENDS = frozenset(
    [
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>"),
        *("<|return|>", "<|call|>", "<turn|>", "<|tool_response>"),
    ]
)
"""Special tokens that end an answer, whatever the metadata names."""
_HARMONY = {"<|return|>", "<|call|>"}
_HARMONY_MESSAGE = "<|end|>"  # where both are, it ends one of several messages of an answer
MAX_TOKENS = 1 << 20  # four times the largest vocabulary
MAX_TOKEN_CHARACTERS = 4096  # eight times the longest
MAX_PIECE_CHARACTERS = 256  # of SentencePiece: a merge is looked for at every place of each piece

_ENGLISH = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN_LETTERS = rf"[^\r\n\p{{L}}\p{{N}}]?(?:{_UPPER}*{_LOWER}+|{_UPPER}+{_LOWER}*)"
_HAN = "[一-龥\u0800-一가-\ud7ff]+"


class Splits(NamedTuple):
    """Splitting of texts before they are merged, of one `tokenizer.ggml.pre`.

    Attributes:
        patterns: one after another.
        digits: numbers are split off; True: digit by digit.
        gpt2: GPT-2's own pattern comes last.
        whole_words: a word that is a token is that token, whatever the merges make of it.
        composes: characters and accents are composed (NFC).
        bos: texts begin with the beginning of sequence where the metadata does not say.
    """

    patterns: tuple[str, ...] = ()
    digits: bool | None = None
    gpt2: bool = False
    whole_words: bool = False
    composes: bool = False
    bos: bool = False


_GPT2 = Splits(gpt2=True)
_BY_DIGIT = Splits(digits=True, gpt2=True)
_LLAMA3 = Splits((rf"{_ENGLISH}|{_LETTERS}|\p{{N}}{{1,3}}|{_REST}",), whole_words=True, bos=True)
_QWEN2 = Splits((rf"{_ENGLISH}|{_LETTERS}|\p{{N}}|{_REST}",), composes=True)
_QWEN35 = (
    rf"{_ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENGLISH}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENGLISH}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = rf"{_TEKKEN_LETTERS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {
    **dict.fromkeys(("gpt-2", "gpt2", "mpt", "olmo", "jais", "phi-2"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"), _BY_DIGIT),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _QWEN2),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _LLAMA3._replace(whole_words=False, bos=False)),
    **dict.fromkeys(("gpt-4o", "llama4"), Splits((_O200K,))),
    "qwen35": Splits((_QWEN35,)),
    "tekken": Splits((_TEKKEN,), whole_words=True, bos=True),
    "deepseek-llm": Splits(
        ("[\r\n]", r"\s?[\p{Lu}\p{Ll}\p{Lt}]+", "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", _HAN),
        digits=False,
        bos=True,
    ),
    "deepseek-coder": Splits(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN), digits=True, bos=True),
}
"""By `tokenizer.ggml.pre`."""


def read_tokenizer(header: Header) -> PreTrainedTokenizerFast:
    """A file's tokenizer and chat templates.

    Raises:
        ModelLoadError: its kind is not known, or a part is missing.
    """
    from tokenizers import AddedToken, processors
    from transformers import PreTrainedTokenizerFast

    texts, kinds = _tokens(header)
    while texts and kinds[-1] == UNUSED and _PADDING.fullmatch(texts[-1]):
        del texts[-1], kinds[-1]
    if not texts:
        raise ModelLoadError(f"'{header.path}' has no tokenizer: the metadata lacks 'tokenizer.ggml.tokens'.")
    kind = header.get("tokenizer.ggml.model", "")
    if kind == "gpt2":
        tokenizer, bos = _byte_level(header, texts)
    elif kind in ("llama", "gemma4"):
        tokenizer, bos = _sentencepiece(header, texts, kinds, has_merges=kind == "gemma4"), True
    else:
        raise ModelLoadError(
            f"'{header.path}': tokenizers of the kind '{kind[:100]}' cannot be read, only gpt2, llama, and gemma4."
        )
    special = {CONTROL: True, UNKNOWN: True, USER_DEFINED: False}
    added = [(text, special[type_]) for text, type_ in zip(texts, kinds, strict=True) if type_ in special]
    tokenizer.add_tokens([AddedToken(text, special=is_special, normalized=False) for text, is_special in added])
    names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    ids = {ours: header.get(f"tokenizer.ggml.{name}_token_id", -1) for name, ours in names.items()}
    named = {name: texts[i] for name, i in ids.items() if 0 <= i < len(texts)}
    begins = named.get("bos_token") if header.get("tokenizer.ggml.add_bos_token", bos) else None
    ends = named.get("eos_token") if header.get("tokenizer.ggml.add_eos_token", False) else None
    if begins or ends:
        single = [each for each in (begins, "$A", ends) if each]
        around = [(text, texts.index(text)) for text in (begins, ends) if text]
        tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=around)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **named)
    fast.chat_template = _templates(header)
    return fast


def end_tokens(header: Header) -> list[int]:
    """Ids that end an answer, the end of sequence first."""
    named = [header.get(f"tokenizer.ggml.{name}_token_id", -1) for name in ("eos", "eot", "eom")]
    texts, kinds = _tokens(header)
    special = (CONTROL, USER_DEFINED)
    by_name = [i for i, (text, kind) in enumerate(zip(texts, kinds, strict=True)) if kind in special and text in _ENDS]
    if {texts[i] for i in by_name} >= _HARMONY:
        by_name = [i for i in by_name if texts[i] != _HARMONY_MESSAGE]
    return [i for i in dict.fromkeys([*named, *by_name]) if 0 <= i < len(texts)]


def _tokens(header: Header) -> tuple[list[str], list[int]]:
    """The vocabulary's texts, and their types."""
    texts, kinds = header.list_of("tokenizer.ggml.tokens", str), header.list_of("tokenizer.ggml.token_type", int)
    if len(kinds) not in (0, len(texts)):
        raise ModelLoadError(f"'{header.path}': the metadata has {len(texts):,} tokens, and types of {len(kinds):,}.")
    if len(texts) > MAX_TOKENS:
        raise ModelLoadError(f"'{header.path}' has {len(texts):,} tokens, and no model has more than {MAX_TOKENS:,}.")
    _check_lengths(header, texts, MAX_TOKEN_CHARACTERS)
    return texts, kinds or [NORMAL] * len(texts)


def _check_lengths(header: Header, texts: list[str], most: int) -> None:
    if (longest := max(map(len, texts), default=0)) > most:
        raise ModelLoadError(
            f"'{header.path}' has a token of {longest:,} characters, and no model of its kind has one of more than "
            f"{most:,}."
        )


def _templates(header: Header) -> str | dict[str, str] | None:
    prefix = "tokenizer.chat_template"
    found = {
        key.removeprefix(prefix).removeprefix(".") or "default": header.get(key, "")
        for key in header.metadata
        if key == prefix or key.startswith(prefix + ".")
    }
    return found.get("default") if len(found) < 2 else found


def _byte_level(header: Header, texts: list[str]) -> tuple[Tokenizer, bool]:
    """A byte-level BPE, and whether its texts begin with the beginning of sequence."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    pre = header.get("tokenizer.ggml.pre", "qwen2" if header.get("general.architecture", "")[:4] == "qwen" else "")
    if pre not in SPLITS:
        raise ModelLoadError(
            f"'{header.path}': Unsupported pre-tokenizer '{pre[:100]}' ('tokenizer.ggml.pre'). Supported: "
            f"{', '.join(SPLITS)}. Use the model's folder of safetensors instead."
        )
    splits = SPLITS[pre]
    tokenizer = Tokenizer(_bpe(models.BPE, header, texts, _pairs(header), ignore_merges=splits.whole_words))
    parts: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in splits.patterns
    ]
    if splits.digits is not None:
        parts.append(pre_tokenizers.Digits(individual_digits=splits.digits))
    parts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=splits.gpt2))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    tokenizer.decoder = decoders.ByteLevel()
    if splits.composes:
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer, splits.bos


def _pairs(header: Header) -> list[tuple[str, str]]:
    """Merges that the metadata lists."""
    pairs = []
    for merge in header.list_of("tokenizer.ggml.merges", str):
        at = merge.find(" ", 1)
        if at < 0:
            raise ModelLoadError(f"'{header.path}': 'tokenizer.ggml.merges' has '{merge[:100]}', which is no pair.")
        pairs.append((merge[:at], merge[at + 1 :]))
    return pairs


def _sentencepiece(header: Header, texts: list[str], kinds: list[int], *, has_merges: bool) -> Tokenizer:
    """A SentencePiece model of the BPE kind: its merges are listed, or the order of its pieces' scores."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    merges = _pairs(header) if has_merges else _merges(_scores(header, texts, kinds))
    unknown = next((text for text, kind in zip(texts, kinds, strict=True) if kind == UNKNOWN), None)
    more = {"unk_token": unknown} if unknown is not None else {}
    tokenizer = Tokenizer(_bpe(models.BPE, header, texts, merges, byte_fallback=True, fuse_unk=True, **more))
    replace = normalizers.Replace(" ", _SPACE)
    parts = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if header.get("tokenizer.ggml.add_space_prefix", True):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), replace])
        parts.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = replace
    tokenizer.decoder = decoders.Sequence(parts)
    return tokenizer


def _scores(header: Header, texts: list[str], kinds: list[int]) -> dict[str, float]:
    """Scores of the pieces that are text."""
    scores = header.list_of("tokenizer.ggml.scores", float)
    if len(scores) < len(texts):
        raise ModelLoadError(f"'{header.path}': the metadata's 'tokenizer.ggml.scores' has no score for each token.")
    _check_lengths(header, texts, MAX_PIECE_CHARACTERS)
    return {text: score for text, score, kind in zip(texts, scores, kinds, strict=False) if kind == NORMAL}


def _bpe(make: type[BPE], header: Header, texts: list[str], merges: list[tuple[str, str]], **how: bool | str) -> BPE:
    vocabulary = {text: i for i, text in enumerate(texts)}
    if len(vocabulary) < len(texts):
        raise ModelLoadError(f"'{header.path}': 'tokenizer.ggml.tokens' has the same token twice.")
    try:
        return make(vocabulary, merges, **how)
    except Exception as error:  # the library's own kind
        raise ModelLoadError(f"'{header.path}': the tokenizer in the metadata is damaged: {error}") from error


def _merges(scores: dict[str, float]) -> list[tuple[str, str]]:
    """Pairs of pieces that make a piece, best score first; of one score those with the longer beginning."""
    found = [
        (-score, -at, at - len(text), text[:at], text[at:])
        for text, score in scores.items()
        for at in range(1, len(text))
        if text[:at] in scores and text[at:] in scores
    ]
    found.sort(key=lambda merge: merge[:3])
    return [(left, right) for *_, left, right in found]

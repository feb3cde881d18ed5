"""Settings of a Whisper model, as its tokenizer and the size of its vocabulary say them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from ...speech import Transcribing
from ...types import Json, ModelLoadError
from .listening import WINDOW_FRAMES

ENGLISH_VOCABULARY = 51_864
"""Size of the vocabularies of models that hear English only."""
TIMESTAMP_SECONDS = 0.02
TIMESTAMPS = WINDOW_FRAMES // 2 + 1
"""From `<|0.00|>` to `<|30.00|>`."""
_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")
_NO_SPEECH = ("<|nospeech|>", "<|nocaptions|>")
_OF_PROMPTS = ("<|startoftranscript|>", "<|startofprev|>", "<|startoflm|>", "<|transcribe|>", "<|translate|>")
_NOTES = "♩♪♫♬♭♮♯"
_SYMBOLS = (
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *("<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", '("', "((", "))", "(((", ")))", "[[", "]]", "{{", "}}"),
    *("♪♪", "♪♪♪"),
)
"""Texts that OpenAI's decoder never writes, with and without a space before them."""


def transcribing(
    vocabulary: Mapping[str, int], encode: Callable[[str], Sequence[int]], size: int, context: int, generation: Json
) -> Transcribing:
    """Settings of a model.

    Args:
        vocabulary: tokens and their ids.
        encode: token ids of a text, without special ones.
        size: tokens that the model knows.
        context: most tokens of its decoder.
        generation: the folder's generation_config.json.

    Raises:
        ModelLoadError: the tokenizer is none of Whisper's; names the token.
    """

    def required(token: str) -> int:
        found = vocabulary.get(token)
        if found is None or found >= size:
            raise ModelLoadError(f"its tokenizer has no token {token!r} for this model: {_COPY}")
        return found

    begin, end, no_timestamps = map(required, ("<|startoftranscript|>", "<|endoftext|>", "<|notimestamps|>"))
    first = no_timestamps + 1  # tokenizers of some folders have none of these
    if first + TIMESTAMPS > size or vocabulary.get("<|0.00|>", first) != first:
        raise ModelLoadError(
            f"its {size} tokens have no room for {TIMESTAMPS} timestamps behind <|notimestamps|>, "
            f"which is {no_timestamps} in its tokenizer: {_COPY}"
        )
    hears_more = _hears_more(vocabulary, size, generation)
    no_speech = next((vocabulary[token] for token in _NO_SPEECH if token in vocabulary), None)
    special = [vocabulary[token] for token in _OF_PROMPTS if token in vocabulary]
    return Transcribing(
        begin=begin,
        end=end,
        previous=required("<|startofprev|>"),
        no_timestamps=no_timestamps,
        first_timestamp=first,
        last_timestamp=first + TIMESTAMPS - 1,
        no_speech=no_speech,
        transcribe=required("<|transcribe|>") if hears_more else None,
        translate=required("<|translate|>") if hears_more else None,
        languages=_languages(vocabulary, begin, size) if hears_more else {},
        suppressed=tuple(sorted({*_not_speech(encode), *special, *([] if no_speech is None else [no_speech])})),
        blank=tuple(sorted({*encode(" "), end})),
        max_tokens=context,
        timestamp_seconds=TIMESTAMP_SECONDS,
    )


_COPY = "copy tokenizer.json from the checkpoint that it was made of, such as openai/whisper-tiny"


def _hears_more(vocabulary: Mapping[str, int], size: int, generation: Json) -> bool:
    """True if a model hears other languages than English."""
    said = generation.get("is_multilingual")
    if isinstance(said, bool):
        return said
    return size != ENGLISH_VOCABULARY and "<|transcribe|>" in vocabulary


def _languages(vocabulary: Mapping[str, int], begin: int, size: int) -> dict[str, int]:
    """Codes of languages and their tokens, which follow `<|startoftranscript|>`, in the order of these."""
    found = {match[1]: i for token, i in vocabulary.items() if (match := _LANGUAGE.fullmatch(token))}
    return {code: i for code, i in sorted(found.items(), key=lambda item: item[1]) if begin < i < size}


def _not_speech(encode: Callable[[str], Sequence[int]]) -> set[int]:
    """Tokens that write no speech, as in OpenAI's `non_speech_tokens`."""
    found = {encode(text)[0] for text in (" -", " '")}
    for symbol in (*_SYMBOLS, *_NOTES):
        for tokens in (encode(symbol), encode(f" {symbol}")):
            if tokens and (len(tokens) == 1 or symbol in _NOTES):
                found.add(tokens[0])
    return found

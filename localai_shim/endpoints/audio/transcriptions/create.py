"""Turns for POST /audio/transcriptions and /audio/translations.

https://platform.openai.com/docs/api-reference/audio
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ....errors import BadRequest
from ....speech import Transcribing
from ...served import ServedModel
from ...turn import Turn
from .fields import TranscriptionFields, read_transcription, read_translation
from .languages import read_language

if TYPE_CHECKING:
    from ....state.store import Store


def prepare_transcription(body: Mapping[str, object], model: ServedModel, store: Callable[[], Store]) -> Turn:
    """Validate a request for a transcription, and decode its file. Takes about a second per hour of speech.

    Raises:
        BadRequest: with the field, its value and what to do.
    """
    return _prepare(read_transcription(body), model)


def prepare_translation(body: Mapping[str, object], model: ServedModel, store: Callable[[], Store]) -> Turn:
    """Validate a request for a translation into English, and decode its file.

    Raises:
        BadRequest: with the field, its value and what to do.
    """
    return _prepare(read_translation(body), model)


def _prepare(asked: TranscriptionFields, model: ServedModel) -> Turn:
    """Make the turn of the model's kind. Models that take a whole file have other settings than Whisper's."""
    from .recognition import recognition_turn  # NumPy: other endpoints do without

    whisper = model.transcribing
    if whisper is not None:
        return _whisper_turn(asked, model, whisper)
    return recognition_turn(asked, model)


def _whisper_turn(asked: TranscriptionFields, model: ServedModel, settings: Transcribing) -> Turn:
    """Make a turn whose rounds decode one window of thirty seconds after the other."""
    from .assembler import TranscriptionAssembler
    from .sound import hear
    from .transcript import Transcript

    if asked.translates and settings.translate is None:
        raise BadRequest(
            f"The model '{model.name}' cannot translate: its vocabulary has no task for it. Load a multilingual "
            "Whisper model, such as mlx-community/whisper-large-v3-mlx.",
            param="model",
            code="unsupported_model",
        )
    given = [read_language(each, settings.languages, asked.language_path(i)) for i, each in enumerate(asked.languages)]
    languages = list(dict.fromkeys(given)) if settings.languages and given else list(settings.languages)
    prompt = _prompt_tokens(asked, model, settings)
    transcript = Transcript(hear(asked.file, "file", model), asked, model, settings, languages, prompt)
    assembler = TranscriptionAssembler(transcript, asked, model.tokenizer, settings.end)
    return Turn(assembler, transcript.works(), stream=asked.stream)


def _prompt_tokens(asked: TranscriptionFields, model: ServedModel, settings: Transcribing) -> list[int]:
    """Tokens of the text before the speech: the prompt's and the keywords'. Models read the last 223 of them.

    Raises:
        BadRequest: the keywords alone are more.
    """
    most = settings.max_tokens // 2 - 1
    keywords = ", ".join(asked.keywords)
    encode = model.tokenizer.encode_text
    if keywords and (count := len(encode(f" {keywords}"))) > most:
        text = f"Invalid 'keywords': they have {count} tokens, and this model reads at most {most}. Send fewer."
        raise BadRequest.too_many_tokens("keywords", text)
    text = "\n".join(filter(None, (asked.prompt.strip(), keywords)))
    return encode(f" {text}")[-most:] if text else []

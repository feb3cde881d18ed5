"""Windows of sounds as rows, and mlx-audio alone as the oracle of what they say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.media import MediaSpan, ProcessedMedia, media_keys
from localai_shim.models.loading import load_model
from localai_shim.models.speech.whisper import WhisperModel
from localai_shim.speech import Transcribing
from localai_shim.types import Prompt, SamplingParams
from localai_shim.types.work import TranscriptionRequest
from tests.speech_models import mlx_config, sound, tensors

RATE = 16_000


def engine_for(path: Path, options: EngineOptions | None = None) -> Engine[WhisperModel]:
    def load() -> WhisperModel:
        model = load_model(str(path), {})
        assert isinstance(model, WhisperModel)
        return model

    return Engine(load, options)


def window(model: WhisperModel, number: int, seconds: float = 6.0) -> ProcessedMedia:
    return model.text.window(model.text.listen(sound(number, seconds), RATE), 0)


def prompt(media: ProcessedMedia, tokens: Sequence[int], **more: Any) -> Prompt:
    """A prompt for the decoder, behind the placeholder of its window."""
    ids = [tokens[0], *tokens]
    span = MediaSpan(media, np.zeros(1, np.int64))
    return Prompt(ids, keys=media_keys(ids, [span]), media=[span], **more)


def opening(settings: Transcribing, language: str = "en") -> list[int]:
    """The decoder's tokens in front of a text without timestamps."""
    if settings.transcribe is None:
        return [settings.begin, settings.no_timestamps]
    return [settings.begin, settings.languages[language], settings.transcribe, settings.no_timestamps]


def greedy(settings: Transcribing, **more: Any) -> SamplingParams:
    """The likeliest tokens, without those that are never written."""
    return SamplingParams(temperature=0.0, logit_bias=dict.fromkeys(settings.suppressed, -math.inf), **more)


def request(model: WhisperModel, number: int, max_tokens: int = 16, **more: Any) -> TranscriptionRequest:
    """A window of its own, whose text has no timestamps."""
    settings = model.text.settings
    made = prompt(window(model, number), opening(settings))
    return TranscriptionRequest(
        prompt=made, sampling=more.pop("sampling", greedy(settings)), max_tokens=max_tokens, **more
    )


def mlx_audio_model(tokenizer: Any, *, multilingual: bool = True) -> Any:
    """mlx-audio's model with the weights of `speech_models.whisper`, in float32."""
    from mlx_audio.stt.models.whisper.whisper import Model, ModelDimensions

    model = Model(ModelDimensions.from_dict(mlx_config(multilingual=multilingual)), mx.float32)
    weights = tensors(multilingual=multilingual)
    model.load_weights([(name, mx.array(array)) for name, array in weights.items()])
    model._processor = SimpleNamespace(tokenizer=tokenizer)
    return model


def mlx_audio_decode(model: Any, media: ProcessedMedia, max_tokens: int = 16) -> Any:
    """What mlx-audio's greedy decoding makes of a window."""
    from mlx_audio.stt.models.whisper.decoding import DecodingOptions

    how = DecodingOptions(
        language="en", without_timestamps=True, fp16=False, sample_len=max_tokens, suppress_blank=False
    )
    return model.decode(mx.array(media.inputs["mel"]), how)

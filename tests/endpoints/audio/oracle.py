"""mlx-audio's Whisper as an oracle, with OpenAI's rules of timestamps."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from localai_shim.speech import Transcribing
from tests.speech_models import mlx_config, tensors, whisper


def openai_allows(said: Sequence[int], settings: Transcribing, vocabulary: int) -> npt.NDArray[np.bool_]:
    """`ApplyTimestampRules` of openai-whisper 20240930 as it is written there, with what is suppressed besides.

    mlx-audio's copy lets timestamps descend, by an oversight: it compares their places instead of their times.

    Args:
        said: tokens of the row so far.
        vocabulary: number of tokens.
    """
    first, end = settings.first_timestamp, settings.end
    allowed = np.ones(vocabulary, bool)
    allowed[[settings.no_timestamps, *settings.suppressed]] = False
    last_was_timestamp = len(said) >= 1 and said[-1] >= first
    penultimate_was_timestamp = len(said) < 2 or said[-2] >= first
    if last_was_timestamp:
        if penultimate_was_timestamp:
            allowed[first:] = False
        else:
            allowed[:end] = False
    timestamps = [token for token in said if token >= first]
    if timestamps:
        closes = last_was_timestamp and not penultimate_was_timestamp
        allowed[first : timestamps[-1] if closes else timestamps[-1] + 1] = False
    if not said:
        allowed[:first] = False
        allowed[first + 50 + 1 :] = False
    return allowed


def transcribe(
    samples: npt.NDArray[np.float32], settings: Transcribing, monkeypatch: pytest.MonkeyPatch, *, words: bool = False
) -> Any:
    """Greedy output of mlx-audio for the tiny model: `text` and `segments`.

    Args:
        settings: of the model; as many tokens of prompt and output as these say.
        words: segments have words with times.
    """
    from mlx_audio.stt.models.whisper import decoding

    def apply(self: Any, logits: mx.array, tokens: mx.array) -> mx.array:
        values = np.array(logits)
        [said] = tokens[:, self.sample_begin :].tolist()
        masked = np.where(openai_allows(said, settings, values.shape[1]), values, -np.inf)
        first = settings.first_timestamp
        stamps, text = masked[0, first:].astype(np.float64), float(masked[0, :first].max())
        if np.isfinite(stamps).any() and np.logaddexp.reduce(stamps) > text:
            masked[0, :first] = -np.inf
        return mx.array(masked)

    monkeypatch.setattr(decoding.ApplyTimestampRules, "apply", apply)
    model = _model()
    model.dims = replace(model.dims, n_text_ctx=settings.max_tokens)
    return model.generate(
        samples, language="en", temperature=0.0, compression_ratio_threshold=None, logprob_threshold=None,
        no_speech_threshold=None, fp16=False, word_timestamps=words,
    )  # fmt: skip


@functools.cache
def _model() -> Any:
    from mlx_audio.stt.models.whisper.whisper import Model, ModelDimensions
    from transformers import PreTrainedTokenizerFast

    model = Model(ModelDimensions.from_dict(mlx_config()), mx.float32)
    model.load_weights([(name, mx.array(array)) for name, array in tensors().items()])
    file = str(whisper() / "tokenizer.json")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=file, eos_token="<|endoftext|>")
    model._processor = SimpleNamespace(tokenizer=tokenizer)
    return model

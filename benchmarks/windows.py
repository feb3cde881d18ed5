"""Windows of speech through a model of Whisper tiny's shape: sixteen together, and one, compared with mlx-audio."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from localai_shim.media import ProcessedMedia
from localai_shim.models.speech.whisper import WhisperModel
from localai_shim.types.work import TranscriptionRequest
from tests.engine.harness import generate
from tests.speech_models import AS_TINY, mlx_config, sound, tensors, whisper
from tests.transcribing import RATE, engine_for, greedy, opening, prompt

from .bench import Bench
from .figures import Figure, Section, print_figures

WINDOWS, TOKENS = 16, 60
"""Windows that come together, and tokens that each says: about those of 20 seconds of speech."""
TOGETHER_TARGET, ALONE_TARGET = 2.5, 1.0


def measure(bench: Bench) -> Section:
    """In turns, with new sounds each time. mlx-audio decodes the same windows without a fallback or timestamps."""
    windows, tokens = (4, 10) if bench.quick else (WINDOWS, TOKENS)
    engine = engine_for(whisper(multilingual=False, shape=AS_TINY))
    together, alone = list[float](), list[float]()
    try:
        theirs = _mlx_audio(engine.model.tokenizer._tokenizer)
        for turn in range(bench.repeats + 1):  # the first one warms up
            media = [_window(engine.model, turn * (windows + 1) + number) for number in range(windows + 1)]
            [one, *rest] = media
            ours = _seconds(lambda first=one: generate(engine, _request(engine.model, first, tokens)))
            single = _seconds(lambda first=one: _decode(theirs, first, tokens))
            rows = [_request(engine.model, each, tokens) for each in rest]
            batch = _seconds(lambda rows=rows: generate(engine, *rows))
            each = _seconds(lambda rest=rest: [_decode(theirs, its, tokens) for its in rest])
            if turn:
                alone.append(single / ours)
                together.append(each / batch)
    finally:
        engine.close()
    note = f"{tokens} tokens per window"
    figures = [
        Figure(f"{windows} windows together, times as fast as one by one in mlx-audio", together, TOGETHER_TARGET,
               note=note),
        Figure("one window, times as fast as mlx-audio", alone, ALONE_TARGET, note=note),
    ]  # fmt: skip
    print_figures(figures)
    return Section(figures, {"together": together, "alone": alone})


def _window(model: WhisperModel, number: int) -> ProcessedMedia:
    return model.text.window(model.text.listen(sound(number, 30.0), RATE), 0)


def _request(model: WhisperModel, media: ProcessedMedia, tokens: int) -> TranscriptionRequest:
    settings = model.text.settings
    made = prompt(media, opening(settings))
    return TranscriptionRequest(prompt=made, sampling=greedy(settings), max_tokens=tokens, ignore_eos=True)


def _mlx_audio(tokenizer: Any) -> Any:
    from mlx_audio.stt.models.whisper.whisper import Model, ModelDimensions

    model = Model(ModelDimensions.from_dict(mlx_config(multilingual=False, shape=AS_TINY)), mx.float32)
    weights = tensors(multilingual=False, shape=AS_TINY)
    model.load_weights([(name, mx.array(array)) for name, array in weights.items()])
    model._processor = SimpleNamespace(tokenizer=tokenizer)
    return model


def _decode(model: Any, media: ProcessedMedia, tokens: int) -> None:
    """Decode as many tokens as ours, without the one that ends a text."""
    from mlx_audio.stt.models.whisper.decoding import DecodingOptions, get_suppress_tokens

    tokenizer = model.get_tokenizer()
    never = [*get_suppress_tokens(tokenizer), tokenizer.eot]
    how = DecodingOptions(language="en", without_timestamps=True, fp16=False, sample_len=tokens, suppress_tokens=never)
    model.decode(mx.array(media.inputs["mel"]), how)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start

"""Models of mlx-audio that write down speech, through their own `generate`. Whisper is in `whisper.py`."""

from __future__ import annotations

import tempfile
import wave
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx import nn

from ...speech import SAMPLE_RATE, HeardSegment, Recognized, Recognizing
from ...types import RecognitionRequest
from ..checkpoint.files import Checkpoint
from .families import LANGUAGES, RECOGNIZING, Kind, RecognizingFamily
from .offline import offline
from .performing import SpeechModel, check_parts, family_of, named_arguments

PART_SECONDS = 30.0
"""Most seconds of a part, of families that read all of a file in one pass."""
LONG_PART_SECONDS = 300.0
"""The same, of families that divide long files themselves: longer parts keep more of the context."""
_DIVIDES = "chunk_duration"
"""Argument of a family's `generate` that divides files itself."""
_LOOK = 1 / 3
"""Share of a part, at its end, in which the quietest moment is looked for."""
_QUIET_SECONDS = 0.1
_PARTS = {
    "moonshine": {"tokenizer.json": ["_tokenizer"]},
    "mms": {"vocab.json": ["_processor", "_vocab"]},
    "qwen3_asr": {"tokenizer": ["_tokenizer"]},
    "sensevoice": {"chn_jpn_yue_eng_ko_spectok.bpe.model or tokens.json": ["_tokenizer", "_token_list"]},
}
_BY_PATH = frozenset({"voxtral"})
"""Families whose processor reads files, and no arrays."""
_CODES = {name.lower(): code for code, name in LANGUAGES.items()}

Samples = npt.NDArray[np.float32]


class RecognizerModel(SpeechModel):
    """A model that writes down speech, and is no Whisper."""

    kind: ClassVar[Kind] = "stt"

    def __init__(self, checkpoint: Checkpoint) -> None:
        model = checkpoint.model
        family = family_of(model)
        check_parts(model, checkpoint.name, _PARTS.get(family, {}))
        honors = RECOGNIZING.get(family, RecognizingFamily())
        recognizer = Recognizer(model, family, checkpoint.name)
        settings = Recognizing(honors.language is not None, honors.prompt is not None, recognizer.takes_temperature)
        super().__init__(checkpoint, "recognize", settings, recognizer)


class Recognizer:
    """Writes down speech by the `generate` of a model of mlx-audio, part by part.

    Args:
        model: mlx-audio's.
        family: see `family_of`.
        name: for errors.

    Attributes:
        takes_temperature: `generate` samples.
    """

    def __init__(self, model: nn.Module, family: str, name: str) -> None:
        self._model, self._family, self._name = model, family, name
        self._honors = RECOGNIZING.get(family, RecognizingFamily())
        self._takes = named_arguments(model.generate)
        self._rate = int(getattr(model, "sample_rate", SAMPLE_RATE) or SAMPLE_RATE)
        self._most = LONG_PART_SECONDS if _DIVIDES in self._takes else PART_SECONDS
        self.takes_temperature = "temperature" in self._takes

    def begin(self, request: RecognitionRequest) -> Iterator[Recognized]:
        """Text of the parts of a request, one after the other.

        Raises:
            ModelLoadError: a file or a package is missing; names it.
        """
        arguments = self.arguments(request)
        for start, end in divide(request.samples, SAMPLE_RATE, self._most):
            part = request.samples[start:end]
            with offline(self._name):
                yield read_result(self._generate(part, arguments), start / SAMPLE_RATE, len(part) / SAMPLE_RATE)

    def arguments(self, request: RecognitionRequest) -> dict[str, object]:
        """Arguments of `generate` for a request."""
        given: dict[str, object] = {}
        if request.language is not None and self._honors.language is not None:
            known = request.language.lower()
            given[self._honors.language] = (
                LANGUAGES.get(known, request.language) if self._honors.names else _CODES.get(known, known)
            )
        if request.prompt and self._honors.prompt is not None:
            given[self._honors.prompt] = request.prompt
        if request.temperature is not None and self.takes_temperature:
            given["temperature"] = request.temperature
        if "verbose" in self._takes:
            given["verbose"] = False
        return given

    def _generate(self, samples: Samples, arguments: dict[str, object]) -> object:
        from mlx_audio.utils import resample_audio

        if self._family in _BY_PATH:
            with tempfile.TemporaryDirectory() as folder:
                return self._model.generate(_write(Path(folder) / "part.wav", samples), **arguments)
        rates = {name: SAMPLE_RATE for name in ("sampling_rate", "sample_rate") if name in self._takes}
        if not rates and self._rate != SAMPLE_RATE:
            samples = resample_audio(samples, SAMPLE_RATE, self._rate)
        return self._model.generate(mx.array(samples), **rates, **arguments)


def divide(samples: Samples, rate: int, most_seconds: float) -> list[tuple[int, int]]:
    """Places of parts of some seconds at most: (first sample, end). They end where it is quietest, near their end."""
    most, frame = int(most_seconds * rate), int(_QUIET_SECONDS * rate)
    start, parts = 0, list[tuple[int, int]]()
    while len(samples) - start > most:
        first = start + int(most * (1 - _LOOK))
        count = (start + most - first) // frame
        frames = samples[first : first + count * frame].reshape(count, frame)
        quietest = int(np.square(frames).sum(axis=1).argmin())
        end = first + quietest * frame + frame // 2
        parts.append((start, end))
        start = end
    return [*parts, (start, len(samples))]


def read_result(made: Any, start: float, seconds: float) -> Recognized:
    """The result of `generate`.

    Args:
        made: an object with `text`, and perhaps `sentences` or `segments`.
        start: seconds of the file before the part.
        seconds: of the part.
    """
    text = str(made.text).strip()
    given = getattr(made, "sentences", None) or getattr(made, "segments", None) or ()
    segments = tuple(
        HeardSegment(start + first, start + end, said)
        for first, end, said in map(_segment, given)
        if said and 0 <= first < end
    )
    if not segments and text:
        segments = (HeardSegment(start, start + seconds, text),)
    language = getattr(made, "language", None)
    if isinstance(language, Sequence) and not isinstance(language, str):
        language = next(iter(language), None)
    return Recognized(
        text,
        segments,
        language if isinstance(language, str) and language not in ("", "unknown") else None,
        int(getattr(made, "prompt_tokens", 0) or 0),
        int(getattr(made, "generation_tokens", 0) or 0),
        seconds,
    )


def _segment(given: object) -> tuple[float, float, str]:
    """Start, end, and text of a segment; times that a model does not say are 0."""
    fields = given if isinstance(given, dict) else vars(given)
    return float(fields.get("start") or 0), float(fields.get("end") or 0), str(fields.get("text", "")).strip()


def _write(path: Path, samples: Samples) -> str:
    """Write a file of 16 bits; returns its path."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return str(path)

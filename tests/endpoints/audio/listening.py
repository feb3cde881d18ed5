"""A scripted engine that transcribes: it plays what a Whisper model would say of each window."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import openai
import pytest

from localai_shim.media import ProcessedMedia
from localai_shim.speech import Transcribing
from localai_shim.testing import Reply, ScriptedEngine, ScriptedTokenizer
from localai_shim.types import GenerationRequest, TokenScore
from tests.prompt.media.files import wav

LANGUAGES = ("en", "de", "fr")
SPECIAL = ("sot", *LANGUAGES, "translate", "transcribe", "previous", "nospeech", "notimestamps")
STAMPS = 1501
FRAMES = 3000

Said = Sequence[float | str]
"""Times and texts, as a window's row has them."""


def make_tokenizer() -> ScriptedTokenizer:
    markers = [*(f"<|{name}|>" for name in SPECIAL), *(f"<|{i * 0.02:.2f}|>" for i in range(STAMPS))]
    return ScriptedTokenizer(think=None, tool_format=None, markers=markers)


TOKENIZER = make_tokenizer()


def token(name: str) -> int:
    [found] = TOKENIZER.encode(f"<|{name}|>")
    return found


FIRST = token("0.00")
SETTINGS = Transcribing(
    begin=token("sot"),
    end=TOKENIZER.eos_token_id,
    previous=token("previous"),
    no_timestamps=token("notimestamps"),
    first_timestamp=FIRST,
    last_timestamp=token("30.00"),
    no_speech=token("nospeech"),
    transcribe=token("transcribe"),
    translate=token("translate"),
    languages={code: token(code) for code in LANGUAGES},
    suppressed=(*b"#*", token("sot"), token("previous"), token("nospeech")),
    blank=(32, TOKENIZER.eos_token_id),
)
ENGLISH = Transcribing(
    begin=SETTINGS.begin,
    end=SETTINGS.end,
    previous=SETTINGS.previous,
    no_timestamps=SETTINGS.no_timestamps,
    first_timestamp=FIRST,
    last_timestamp=SETTINGS.last_timestamp,
    no_speech=SETTINGS.no_speech,
)


def ids(*said: float | str) -> list[int]:
    """Token ids of times and texts: a text has one per byte."""
    return [i for each in said for i in ([FIRST + round(each * 50)] if isinstance(each, float) else each.encode())]


def says(*said: float | str, logprob: float = -0.1, **more: Any) -> Reply:
    """What a row says of its window."""
    tokens = ids(*said)
    return Reply(tokens, logprobs=[logprob] * len(tokens), **more)


def sound(seconds: float, rate: int = 16_000) -> bytes:
    """A WAV file of this length."""
    return wav(np.zeros(round(seconds * rate), np.int16), rate)


class Ears:
    """The part of the model that makes its input: the number of each frame."""

    n_mels = 1

    def listen(self, samples: npt.NDArray[np.float32], rate: float) -> npt.NDArray[np.float32]:
        frames = max(1, round(len(samples) / rate * 100))
        return np.arange(frames, dtype=np.float32)[:, None]

    def window(self, mel: npt.NDArray[np.float32], start: int, frames: int = FRAMES) -> ProcessedMedia:
        cut = mel[start : start + frames]
        return ProcessedMedia("audio", start + 1, {"mel": cut}, "", ())


class ListeningEngine(ScriptedEngine):
    """Plays `rows`, one per window that is decoded, or what a function says of (request, its window's first frame).

    Args:
        rows: the script.
        silence: probability that a window has no speech, or a function of its first frame.
        language: that is likeliest.
        settings: of the model.

    Attributes:
        rows: requests that were rows of windows.
        questions: requests for the likelihood of languages and of silence.
    """

    def __init__(
        self,
        *rows: Reply | Callable[[GenerationRequest, int], Reply],
        silence: float | Callable[[int], float] = 0.1,
        language: str = "en",
        settings: Transcribing = SETTINGS,
        **more: Any,
    ) -> None:
        super().__init__(self._play_next, tokenizer=make_tokenizer(), context_length=settings.max_tokens + 1, **more)
        self.rows: list[GenerationRequest] = []
        self.questions: list[GenerationRequest] = []
        self._replies, self._silence, self._language = [*rows], silence, language
        self.settings = settings
        model: Any = self._model
        model.tasks, model.settings = ("transcribe",), {"transcribe": settings}
        ears = Ears()
        model.listen, model.window = ears.listen, ears.window

    def _play_next(self, request: GenerationRequest, prompt: str, index: int) -> Reply:
        start = int(request.prompt.media[0].media.inputs["mel"][0, 0])
        if request.prompt.watched:
            self.questions.append(request)
            request.prompt.scores = [TokenScore(0.0, 1, (), self._answers(request, start))] * len(request.prompt.tokens)
            return Reply("")
        self.rows.append(request)
        reply = self._replies[0] if callable(self._replies[0]) else self._replies.pop(0)
        return reply(request, start) if callable(reply) else reply

    def _answers(self, request: GenerationRequest, start: int) -> list[float]:
        no_speech = self._silence(start) if callable(self._silence) else self._silence
        likely: Mapping[int, float] = {
            SETTINGS.no_speech or 0: math.log(no_speech), **{SETTINGS.languages[code]: -5.0 for code in LANGUAGES}
        }  # fmt: skip
        return [-1.0 if i == SETTINGS.languages[self._language] else likely[i] for i in request.prompt.watched]


def for_any_sdk(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `create`, of which older SDKs do not have some: those are fields of `extra_body`."""
    newer = {name: fields[name] for name in ("languages", "keywords") if name in fields}
    others = {name: value for name, value in fields.items() if name not in newer}
    return {**others, "extra_body": {**others.get("extra_body", {}), **newer}} if newer else others


def refused(call: Callable[..., Any], **fields: Any) -> openai.BadRequestError:
    """The error that a call raises."""
    with pytest.raises(openai.BadRequestError) as caught:
        call(**for_any_sdk({"model": "m", "file": ("a.wav", sound(1)), **fields}))
    return caught.value

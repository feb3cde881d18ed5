"""Transcriptions and speech of cassettes: asked for in the form that has most, and played in any."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING

import openai
from openai.types.audio import Transcription, TranscriptionVerbose, Translation, TranslationVerbose

from ...replacing.clients import unpatched
from ...speech import HeardSegment
from ...types import Json, RecognitionRequest, SpeechRequest
from ..model.replies import Place, Reply, Script, ScriptedModel
from ..model.sounds import SPEECH_RATE, Heard, PlayedSpeech, PlayedTranscript, Sound, speech_reply
from .tape import CassetteError, Interaction

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

TRANSCRIPTIONS = ("audio.transcriptions", "audio.translations")
MAX_SPEECH_SECONDS = 300
"""Of a recorded answer: in base64, five minutes have 19 MB."""
_SAMPLE_BYTES = 2
_VERBOSE = ("verbose_json", "srt", "vtt")
_HEARD = ("language", "segments", "words")
_MULTIPART: openai.RequestOptions = {"headers": {"Content-Type": "multipart/form-data"}}


def record_transcription(source: openai.OpenAI, api: str, request: Json, file: tuple[str, bytes]) -> Interaction:
    """The text of a file, and if the request wants times, segments and words.

    Raises:
        openai.APIError: the client's own.
    """
    made, began = Interaction(api, request), time.monotonic()
    verbose, translates = request.get("response_format") in _VERBOSE, api == "audio.translations"
    body = {name: value for name, value in request.items() if name != "file"}
    body["response_format"] = "verbose_json" if verbose else "json"
    kinds: dict[tuple[bool, bool], type[openai.BaseModel]] = {
        (False, False): Transcription,
        (False, True): Translation,
        (True, False): TranscriptionVerbose,
        (True, True): TranslationVerbose,
    }
    with unpatched():
        answer = source.post(
            f"/{api.replace('.', '/')}",
            cast_to=kinds[verbose, translates],
            body=body,
            files=[("file", file)],
            options=_MULTIPART,
        )
    fields: Json = answer.to_dict(mode="json")
    delta: Json = {"at": round(time.monotonic() - began, 3), "content": fields["text"]}
    if fields.get("logprobs"):
        delta["tokens"] = [_scored(each) for each in fields["logprobs"]]
    if verbose:
        delta["heard"] = {name: fields[name] for name in _HEARD if fields.get(name) is not None}
    made.deltas.append(delta)
    made.model, made.usage = str(request.get("model") or ""), fields.get("usage")
    return made


def _scored(token: Json) -> Json:
    spelling = token["token"]
    written = [*spelling.encode()] if token.get("bytes") is None else [int(each) for each in token["bytes"]]
    return {
        "token": spelling if bytes(written) == spelling.encode() else written,
        "logprob": token["logprob"],
        "top": [],
    }


def record_speech(source: openai.OpenAI, request: Json) -> Interaction:
    """The samples of a text's speech.

    Raises:
        openai.APIError: the client's own.
        CassetteError: it is empty or too long.
    """
    made, began = Interaction("audio.speech", request), time.monotonic()
    body = {**request, "response_format": "pcm"}
    with unpatched():
        answer = source.post("/audio/speech", cast_to=openai.HttpxBinaryResponseContent, body=body)
        content = answer.content
    if len(content) < _SAMPLE_BYTES:
        raise CassetteError("speech without samples cannot be recorded")
    seconds = len(content) / (SPEECH_RATE * _SAMPLE_BYTES)
    if seconds > MAX_SPEECH_SECONDS:
        raise CassetteError(f"speech of {seconds:.0f} s cannot be recorded: at most {MAX_SPEECH_SECONDS} s can")
    made.deltas.append({"at": round(time.monotonic() - began, 3), "speech": base64.b64encode(content).decode()})
    made.model = str(request.get("model") or "")
    return made


# -- played again ---------------------------------------------------------------------------------------------------


def play_transcription(
    played: Interaction, work: RecognitionRequest, place: Place, reply: Reply, model: ScriptedModel
) -> PlayedTranscript:
    """The row of a recorded transcription. A text without tokens is played word by word."""
    if reply.logprobs is None:
        text = "".join(delta.get("content", "") for delta in played.deltas)
        reply = Reply([piece.encode() for piece in model.tokenizer.split(text)])  # bytes are never a marker
    script = Script(reply, model.tokenizer)
    heard = played.heard
    segments = tuple(HeardSegment(each["start"], each["end"], each["text"]) for each in heard.get("segments", ()))
    return PlayedTranscript(work, place, script, model, Heard(segments, language=heard.get("language")))


def play_speech(played: Interaction, work: SpeechRequest, place: Place, model: ScriptedModel) -> PlayedSpeech:
    """The row of recorded speech."""
    pieces = Sound(_samples(played.speech()), SPEECH_RATE).pieces()
    return PlayedSpeech(work, place, Script(speech_reply(pieces), model.tokenizer), model, pieces)


def _samples(content: bytes) -> npt.NDArray[np.float32]:
    import numpy as np

    samples: npt.NDArray[np.float32] = np.divide(np.frombuffer(content, "<i2"), 32767, dtype=np.float32)
    return samples


def sign(answer: object, played: Interaction) -> None:
    """Give a transcription all that was recorded of its segments, words, language, and usage."""
    if not isinstance(answer, openai.BaseModel):
        return
    fields, recorded = answer.to_dict(), dict(played.heard) if hasattr(answer, "language") else {}
    usage = getattr(answer, "usage", None)
    if usage is not None and played.usage is not None and usage.type == played.usage.get("type"):
        recorded["usage"] = played.usage
    made = type(answer).construct(**{**fields, **recorded})
    for name in recorded:
        setattr(answer, name, getattr(made, name))

"""Models of mlx-audio that speak texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx import nn

from ...speech import Speaking, Spoken
from ...types import ModelLoadError, SpeechRequest
from ..checkpoint.files import Checkpoint
from .families import SPEAKING, Kind, SpeakingFamily
from .offline import offline
from .performing import SpeechModel, check_parts, family_of, named_arguments

_PARTS = {"qwen3_tts": {"tokenizer": ["tokenizer"], "folder speech_tokenizer": ["speech_tokenizer"]}}
_SOUND = frozenset({"ref_audio", "ref_mel"})
"""Arguments for a recording of a voice, which requests of OpenAI's API do not have."""
_SMALL = "0b6"  # size of Qwen3-TTS that knows no instructions


class VoiceModel(SpeechModel):
    """A model that speaks texts."""

    kind: ClassVar[Kind] = "tts"

    def __init__(self, checkpoint: Checkpoint) -> None:
        model, path = checkpoint.model, checkpoint.path
        family = family_of(model)
        check_parts(model, checkpoint.name, _PARTS.get(family, {}))
        if needed := sorted(_SOUND & _required(model)):
            raise ModelLoadError(
                f"the model '{checkpoint.name}' ({family}) speaks with the voice of a recording ({needed[0]}), which "
                "client.audio.speech does not take. Choose a model with its own voices, such as Qwen3-TTS CustomVoice"
            )
        settings = read_settings(model, family, path)
        speaker = Speaker(model, family, settings, checkpoint.name)
        super().__init__(checkpoint, "speak", settings, speaker)


class Speaker:
    """Speaks texts by the `generate` of a model of mlx-audio.

    Args:
        model: mlx-audio's.
        family: see `family_of`.
        settings: of the model.
        name: for errors.
    """

    def __init__(self, model: nn.Module, family: str, settings: Speaking, name: str) -> None:
        self._model, self._family, self._settings, self._name = model, family, settings, name
        self._honors = SPEAKING.get(family, SpeakingFamily())
        self._takes = named_arguments(model.generate)

    def begin(self, request: SpeechRequest) -> Iterator[Spoken]:
        """Pieces of the speech of a text.

        Raises:
            ModelLoadError: a file or a package is missing; names it.
            ValueError: the model computed no sound, or none that can be played.
        """
        with offline(self._name):
            made = self._model.generate(request.text, **self.arguments(request))
            pieces = iter([made] if hasattr(made, "audio") else made)
        spoken = False
        while True:
            with offline(self._name):
                piece = next(pieces, None)
                if piece is None:
                    break
                samples = _mono(piece.audio)
            if samples.size:
                spoken = True
                yield Spoken(samples, int(piece.sample_rate), int(piece.token_count or 0))
        if not spoken:
            raise ValueError("the model made no sound of this text")

    def arguments(self, request: SpeechRequest) -> dict[str, object]:
        """Arguments of `generate` for a request."""
        given: dict[str, object] = {}
        if request.voice is not None and (self._settings.voices or self._settings.takes_any_voice):
            given["voice"] = request.voice
            if self._family == "kokoro":
                given["lang_code"] = request.voice[:1]  # which its names begin with
        if request.instructions is not None:
            given["instruct"] = request.instructions
        if request.speed != 1.0:
            given["speed"] = request.speed
        if self._honors.stream:
            given["stream"] = True
        if "verbose" in self._takes:
            given["verbose"] = False
        return given


def read_settings(model: nn.Module, family: str, folder: Path) -> Speaking:
    """Abilities of a model, by its family, its config, and its files."""
    honors, config = SPEAKING.get(family, SpeakingFamily()), getattr(model, "config", None)
    instruct, needs = honors.instruct, False
    if family == "qwen3_tts":
        form = getattr(config, "tts_model_type", "base")
        needs = form == "voice_design"
        instruct = needs or (form == "custom_voice" and getattr(config, "tts_model_size", "") != _SMALL)
    return Speaking(_voices(model, family, folder), honors.voice, instruct, needs, honors.speed)


def _voices(model: nn.Module, family: str, folder: Path) -> tuple[str, ...]:
    """Names of a model's voices; empty: it has no list."""
    listing, voices = getattr(model, "get_supported_speakers", None), getattr(model, "voices", None)
    if listing is not None:
        return tuple(listing())
    if isinstance(voices, Mapping) and voices:
        return tuple(sorted({*voices, *(getattr(model, "voice_aliases", None) or {})}))
    if family == "pocket_tts":
        from mlx_audio.tts.models.pocket_tts.utils import PREDEFINED_VOICES

        return tuple(PREDEFINED_VOICES)
    return tuple(sorted({path.stem for path in (folder / "voices").glob("*") if path.is_file()}))


def _required(model: nn.Module) -> set[str]:
    """Names of the arguments that `generate` cannot do without."""
    import inspect

    parameters = inspect.signature(model.generate).parameters.values()
    return {each.name for each in parameters if each.default is each.empty}


def _mono(audio: object) -> npt.NDArray[np.float32]:
    """Samples of one channel, of what a model made.

    Raises:
        ValueError: they are no numbers.
    """
    sound = audio.astype(mx.float32) if isinstance(audio, mx.array) else audio
    samples = np.array(sound, np.float32).squeeze()
    if samples.ndim > 1:
        samples = samples.mean(axis=int(np.argmin(samples.shape)))
    if not np.isfinite(samples).all():
        raise ValueError("the model computed sound that is not finite numbers")
    return np.atleast_1d(samples)

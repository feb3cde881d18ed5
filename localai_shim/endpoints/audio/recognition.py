"""Speech -> text by models that are no Whisper: the work of a request, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from ...errors import BadRequest
from ...speech import Recognized
from ...types import RecognitionRequest
from ..served import ServedModel

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def recognition_work(
    samples: npt.NDArray[np.float32],
    model: ServedModel,
    *,
    language: str | None = None,
    prompt: str | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    priority: int = 0,
) -> RecognitionRequest:
    """Make the work of a file.

    Args:
        samples: of all of it, mono, `speech.SAMPLE_RATE` per second.
        model: writes it down.
        language: its code in ISO 639-1, or its English name.
        prompt: words that may occur, or text that came before.
        temperature: of sampling.
        seed: of sampling.
        priority: lower ones are served first.

    Raises:
        BadRequest: there is no sound, or the model is for something else.
    """
    if "recognize" not in model.tasks:
        raise BadRequest(f"The model '{model.name}' cannot write down speech.", param="model", code="unsupported_model")
    if not len(samples):
        raise BadRequest.refused("file", "it has no sound")
    return RecognitionRequest(
        samples, language=language, prompt=prompt, temperature=temperature, seed=seed, priority=priority
    )


def take_part(request: RecognitionRequest) -> Recognized | None:
    """Take what an event of the work brought: the next part, or None with the last event."""
    return request.pieces.popleft() if request.pieces else None


def join_parts(parts: Sequence[Recognized]) -> Recognized:
    """All parts of a file in one."""
    return Recognized(
        " ".join(part.text for part in parts if part.text),
        tuple(chain.from_iterable(part.segments for part in parts)),
        next((part.language for part in parts if part.language is not None), None),
        sum(part.prompt_tokens for part in parts),
        sum(part.output_tokens for part in parts),
        sum(part.seconds for part in parts),
    )

"""Prompts with pictures, for models that have no processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from localai_shim.media import MediaSpan, ProcessedMedia, media_keys
from localai_shim.types import Prompt

PLACEHOLDER = 5
PATCHES = 6
"""Placeholders of a picture, unless it says otherwise."""
TEXT = [100, 101, 102]
QUESTION = [110, 111]


def spread(digest: int, *runs: int, between: Sequence[int] = (9, 8)) -> ProcessedMedia:
    """One whose placeholders stand in runs, with other tokens of its own between them, as the frames of a video."""
    made = picture(digest, sum(runs))
    tokens = [token for run in runs for token in (*[PLACEHOLDER] * run, *between)][: -len(between)]
    return replace(made, tokens=tokens)


def picture(digest: int, patches: int = PATCHES) -> ProcessedMedia:
    """What a processor would make of a picture that is known by its digest."""
    values = np.random.default_rng(digest).standard_normal((patches, 8)).astype(np.float32)
    return ProcessedMedia("image", digest, {"patches": values}, "", [PLACEHOLDER] * patches)


def prompt_of(*parts: Sequence[int] | ProcessedMedia, **more: Any) -> Prompt:
    """A prompt of tokens and pictures in this order."""
    tokens: list[int] = []
    spans = []
    for part in parts:
        if isinstance(part, ProcessedMedia):
            places = len(tokens) + np.flatnonzero(np.array(part.tokens) == PLACEHOLDER)
            spans.append(MediaSpan(part, places))
            part = part.tokens
        tokens += part
    return Prompt(tokens, keys=media_keys(tokens, spans) if spans else None, media=spans, **more)


def going_on(prompt: Prompt, *parts: Sequence[int] | ProcessedMedia, **more: Any) -> Prompt:
    """The prompt and what follows it."""
    new = prompt_of(*parts)
    tokens = [*prompt.tokens, *new.tokens]
    spans = [*prompt.media, *(MediaSpan(s.media, s.places + len(prompt.tokens)) for s in new.media)]
    return Prompt(tokens, keys=media_keys(tokens, spans), media=spans, **more)


def asking(digest: int, *more: int) -> Prompt:
    """A text, a picture and a question about it."""
    return prompt_of(TEXT, picture(digest), [*QUESTION, *more])

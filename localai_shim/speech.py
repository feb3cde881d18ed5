"""Settings of models that write down speech, or that speak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SAMPLE_RATE = 16_000
"""Samples per second of what models listen to."""


@dataclass(frozen=True, slots=True)
class Transcribing:
    """Settings of a Whisper model, which writes down windows of thirty seconds. Numbers are token ids, except seconds
    and `max_tokens`.
    """

    begin: int
    """`<|startoftranscript|>`."""
    end: int
    """`<|endoftext|>`; ids above it are special tokens."""
    previous: int
    """`<|startofprev|>`: the text before the window follows, in front of `begin`."""
    no_timestamps: int
    """`<|notimestamps|>`."""
    first_timestamp: int
    """`<|0.00|>`: this id and those above are timestamps, `timestamp_seconds` apart."""
    last_timestamp: int
    """`<|30.00|>`."""
    no_speech: int | None = None
    """`<|nospeech|>` or `<|nocaptions|>`; None: the vocabulary has none."""
    transcribe: int | None = None
    """`<|transcribe|>`; None: the model writes English only, and its prompts have neither language nor task."""
    translate: int | None = None
    """`<|translate|>`, into English."""
    languages: Mapping[str, int] = field(default_factory=dict[str, int])
    """Codes of the languages, such as `en`, and their tokens; empty: the model hears English only."""
    suppressed: tuple[int, ...] = ()
    """Tokens that are never sampled: music notes, brackets, and special tokens that belong into prompts."""
    blank: tuple[int, ...] = ()
    """Tokens that are not sampled first: a space, and the end."""
    max_tokens: int = 448
    """Tokens of prompt and output together."""
    window_seconds: float = 30.0
    timestamp_seconds: float = 0.02

"""Settings of models that write down speech, or that speak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

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


class Attended(NamedTuple):
    """Attention of a Whisper model's decoder to a window, while it reads what was said in it."""

    weights: npt.NDArray[np.float32]
    """`[heads, tokens, places]`, of the heads that follow the speech; they sum to 1 over the places, of which a second
    has 50."""
    probabilities: npt.NDArray[np.float32]
    """Of the text's tokens, each after those before it."""


# -- models that speak ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Speaking:
    """Settings of a model that speaks texts."""

    voices: tuple[str, ...] = ()
    """Names of its voices; empty: it has no list."""
    takes_any_voice: bool = False
    """Without a list, it takes any name. False: it has one voice, or draws one."""
    takes_instructions: bool = False
    needs_instructions: bool = False
    """It makes a voice from them."""
    takes_speed: bool = False


class Spoken(NamedTuple):
    """A piece of speech."""

    samples: npt.NDArray[np.float32]
    """Mono, -1 to 1."""
    rate: int
    """Samples per second; the same in all pieces of a text."""
    tokens: int = 0
    """Tokens that the model generated for it; 0 if it does not say."""


# -- models that write down speech, and are no Whisper -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recognizing:
    """Settings of a model that writes down speech, and is no Whisper. What it does not take has no effect."""

    takes_language: bool = False
    takes_prompt: bool = False
    takes_temperature: bool = False
    checks_language: bool = False
    """It takes the codes and names of Whisper's languages, and no others."""
    translates: bool = False
    """Into English."""
    times_words: bool = False
    gives_logprobs: bool = False


class HeardToken(NamedTuple):
    """A token of a text, and its log probability."""

    spelling: bytes
    logprob: float

    @property
    def text(self) -> str:
        r"""The token as OpenAI writes it: its text, or `\xe2\x80` if it is a part of a character only."""
        try:
            return self.spelling.decode()
        except UnicodeDecodeError:
            return "".join(f"\\x{byte:02x}" for byte in self.spelling)


class HeardSegment(NamedTuple):
    """Words that were spoken together, or one word. Times are seconds from the beginning of the file."""

    start: float
    end: float
    text: str


class Recognized(NamedTuple):
    """Text of a part of a file, or of a whole file."""

    text: str
    """Without space at its ends."""
    segments: tuple[HeardSegment, ...] = ()
    """With the model's own times, if it says any; else one for each part."""
    language: str | None = None
    """Name or code of the language that the model found; None: it does not say."""
    prompt_tokens: int = 0
    output_tokens: int = 0
    """0 if the model does not count them."""
    seconds: float = 0.0
    """Length of the sound."""
    words: tuple[HeardSegment, ...] = ()
    """Words, if the model times them."""
    tokens: tuple[HeardToken, ...] = ()
    """Tokens of the text, if the model gives log probabilities."""
    space: str = " "
    """Text between the part before this one and its own text."""

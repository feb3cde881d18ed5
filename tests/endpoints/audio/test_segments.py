"""Segments of a window by hand, compression ratios, and subtitles next to mlx-audio's."""

from __future__ import annotations

import io
import random
import re

import pytest

from localai_shim.endpoints.audio.transcriptions.segments import Decoded, Segment, compression_ratio, split
from localai_shim.endpoints.audio.transcriptions.subtitles import make_srt, make_vtt
from localai_shim.types import Token
from tests.endpoints.audio.listening import FIRST, SETTINGS, Said, ids


def cut(*said: float | str, frames: int = 3000) -> tuple[list[tuple[Said, float, float]], int]:
    tokens = ids(*said)
    found, ahead = split(tokens, SETTINGS, frames)
    return [(tokens[place], start, end) for place, start, end in found], ahead


@pytest.mark.parametrize(
    ("said", "segments", "ahead"),
    [
        ((0.0, "a", 2.0, 2.0, "b", 3.0, 3.0), [((0.0, "a", 2.0), 0.0, 2.0), ((2.0, "b", 3.0), 2.0, 3.0)], 300),
        ((0.0, "a", 2.0, 2.5, "b", 3.0), [((0.0, "a", 2.0), 0.0, 2.0), ((2.5, "b", 3.0), 2.5, 3.0)], 3000),
        ((0.0, "a", 2.0, 2.0, "b"), [((0.0, "a", 2.0), 0.0, 2.0)], 200),
        ((0.0, "a", 2.0), [((0.0, "a", 2.0), 0.0, 2.0)], 3000),
        ((0.5, "a"), [((0.5, "a"), 0.0, 0.5)], 3000),
        ((0.0, "a"), [((0.0, "a"), 0.0, 30.0)], 3000),
        (("a",), [(("a",), 0.0, 30.0)], 3000),
        ((), [((), 0.0, 30.0)], 3000),
    ],
)
def test_a_window_is_cut_between_two_timestamps(
    said: Said, segments: list[tuple[Said, float, float]], ahead: int
) -> None:
    assert cut(*said) == ([(ids(*each), start, end) for each, start, end in segments], ahead)


def test_the_last_window_ends_with_the_file() -> None:
    assert cut(0.0, "a", frames=120) == ([(ids(0.0, "a"), 0.0, 1.2)], 120)


@pytest.mark.parametrize("seed", range(200))
def test_every_window_moves_on_whatever_it_says(seed: int) -> None:
    numbers = random.Random(seed)
    tokens = [numbers.choice([97, FIRST + numbers.randrange(4), FIRST]) for _ in range(numbers.randrange(12))]
    _, ahead = split(tokens, SETTINGS, 3000)
    assert ahead > 0


@pytest.mark.parametrize("text", ["", "a", "Hello there.", "no " * 100, "Grüße"])
def test_the_compression_ratio_is_that_of_mlx_audio(text: str) -> None:
    from mlx_audio.stt.models.whisper import decoding

    assert compression_ratio(text) == decoding.compression_ratio(text)


def test_the_mean_logprob_counts_the_end() -> None:
    said = [Token(FIRST, -1.0), Token(97, -2.0), Token(SETTINGS.end, -3.0, finish_reason="stop", is_eos=True)]
    made = Decoded.of(said, 0.2, " a", SETTINGS.end)
    assert (made.tokens, made.average_logprob, made.temperature) == (said[:2], -2.0, 0.2)
    assert Decoded.of(said[:2], 0.2, " a", SETTINGS.end).average_logprob == -1.0  # as OpenAI has it


def segment(start: float, end: float, text: str) -> Segment:
    return Segment(start, end, (), text, 0, Decoded((), 0.0, 0.0, 0.0), 0.0)


SEGMENTS = [segment(0.0, 1.5, " Hello there."), segment(1.5, 59.9996, " It rains."), segment(3600, 7325.25, " Ah.")]


def test_subtitles_are_those_that_mlx_audio_writes() -> None:
    from mlx_audio.stt.models.whisper.writers import WriteSRT, WriteVTT

    words = [{"word": s.text, "start": s.start, "end": s.end} for s in SEGMENTS]
    result = {"segments": [{**word, "text": word["word"], "words": [word]} for word in words]}
    srt, vtt = io.StringIO(), io.StringIO()
    WriteSRT(".").write_result(result, srt)
    WriteVTT(".").write_result(result, vtt)
    assert make_srt(SEGMENTS) == srt.getvalue()
    with_hours = re.sub(r"(?<![\d:])(\d\d:\d\d\.)", r"00:\1", vtt.getvalue())  # which OpenAI's service always writes
    assert make_vtt(SEGMENTS) == with_hours


def test_a_text_has_no_arrow_that_a_reader_of_subtitles_takes_for_times() -> None:
    made = make_srt([segment(0.0, 1.5, " Hello --> there.")])
    assert made == "1\n00:00:00,000 --> 00:00:01,500\nHello -> there.\n\n"


def test_a_file_without_speech_has_no_subtitles() -> None:
    assert (make_srt([]), make_vtt([])) == ("", "WEBVTT\n\n")

"""Subtitles of a file's segments: SubRip (SRT) and WebVTT, as OpenAI's service writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Spoken(Protocol):
    """A piece of speech; times are seconds from the beginning of the file."""

    @property
    def start(self) -> float: ...

    @property
    def end(self) -> float: ...

    @property
    def text(self) -> str: ...


def make_srt(segments: Iterable[Spoken]) -> str:
    """Numbered subtitles."""
    return "".join(
        f"{i}\n{_time(each.start, ',')} --> {_time(each.end, ',')}\n{_shown(each)}\n\n"
        for i, each in enumerate(segments, 1)
    )


def make_vtt(segments: Iterable[Spoken]) -> str:
    """Subtitles for web pages."""
    cues = (f"{_time(each.start, '.')} --> {_time(each.end, '.')}\n{_shown(each)}\n\n" for each in segments)
    return "WEBVTT\n\n" + "".join(cues)


def _shown(segment: Spoken) -> str:
    """A segment's text, without what would end the line of times."""
    return segment.text.strip().replace("-->", "->")


def _time(seconds: float, point: str) -> str:
    minutes, milliseconds = divmod(round(seconds * 1000), 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{milliseconds // 1000:02d}{point}{milliseconds % 1000:03d}"

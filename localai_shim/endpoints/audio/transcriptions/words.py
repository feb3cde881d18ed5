"""Times of words, from the attention that a Whisper model's decoder pays to the sound.

The method is that of OpenAI's whisper (`whisper/timing.py`): some heads follow the speech, so the path of highest
attention through tokens and time says when each token was spoken.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

PLACES_PER_SECOND = 50
"""Positions of the encoder's output."""
MEDIAN_WIDTH = 7  # places over which the weights of a head are smoothed
MAX_MEDIAN_SECONDS = 0.7  # that a word is taken to last where the median of all is longer
LONG_WORD = 2.0  # times the median, beyond which a word next to a pause is cut
PAUSE = 4.0  # times the median, beyond which a word begins after a pause
SLACK_SECONDS = 0.5  # by which a segment's own time must differ from its words' to be preferred
UNSPACED = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
"""Languages that put no spaces between words: each character is one."""
_SENTENCE_ENDS = ".。!！?？"
_BEFORE_WORDS = "\"'“¿([{-"
_BEHIND_WORDS = "\"'.。,，!！?？:：”)]}、"


class Word(NamedTuple):
    """A word as tokens spell it."""

    text: str
    """Begins with its space, if there is one."""
    tokens: int
    """Number of its tokens."""


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word and the seconds in which it is spoken."""

    text: str
    tokens: int
    start: float
    end: float
    probability: float


@dataclass(frozen=True, slots=True)
class TimedSegment:
    """A segment of a window, with its words. All times are seconds since the beginning of the file."""

    start: float
    end: float
    words: Sequence[TimedWord] = ()


def split_words(tokens: Sequence[int], decode: Callable[[Sequence[int]], str], *, spaced: bool) -> list[Word]:
    """Words that tokens spell; together these have all tokens and all of the text.

    Args:
        tokens: of text only.
        decode: makes text of tokens, with U+FFFD for bytes that are no character yet.
        spaced: the language puts spaces between words; otherwise each character is a word.
    """
    whole, pieces = decode(tokens), list[Word]()
    start = begun = 0
    for stop in range(1, len(tokens) + 1):
        text = decode(tokens[start:stop])
        broken = text.find("\ufffd")
        if broken < 0 or whole[begun + broken : begun + broken + 1] == "\ufffd" or stop == len(tokens):
            pieces.append(Word(text, stop - start))
            start, begun = stop, begun + len(text)
    if not spaced:
        return pieces
    words: list[Word] = []
    for piece in pieces:
        alone = piece.text.startswith(" ") or piece.text.strip() in string.punctuation
        if alone or not words:
            words.append(piece)
        else:
            words[-1] = Word(words[-1].text + piece.text, words[-1].tokens + piece.tokens)
    return words


def align(weights: Floats, before: int, probabilities: Sequence[float], words: Sequence[Word]) -> list[TimedWord]:
    """Find when words are spoken, in seconds since the beginning of the window.

    Args:
        weights: `[heads, tokens of the pass, places]`: attention of some heads over the places of the sound, by
            `<|startoftranscript|>` and what follows it, `<|notimestamps|>`, the text, and the end.
        before: tokens before `<|notimestamps|>`.
        probabilities: of the tokens.
        words: that the tokens spell.
    """
    if not words or weights.shape[-1] == 0:
        return []
    deviation = weights.std(axis=-2, keepdims=True)
    normal = (weights - weights.mean(axis=-2, keepdims=True)) / np.maximum(deviation, np.finfo(np.float32).tiny)
    tokens, places = warped(-_smoothed(normal).mean(axis=0)[before:-1])  # each looks where the next one is spoken
    begins = places[np.concatenate([[True], np.diff(tokens) > 0])] / PLACES_PER_SECOND
    bounds = np.concatenate([[0], np.cumsum([word.tokens for word in words])])
    return [
        TimedWord(
            word.text,
            word.tokens,
            float(begins[start]),
            float(begins[stop]),
            float(np.mean(probabilities[start:stop])),
        )
        for word, start, stop in zip(words, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ]


def _smoothed(weights: Floats) -> Floats:
    """The median of `MEDIAN_WIDTH` places around each."""
    reach = MEDIAN_WIDTH // 2
    if weights.shape[-1] <= reach:
        return weights
    padded = np.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(reach, reach)], mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, MEDIAN_WIDTH, axis=-1)
    return np.median(windows, axis=-1).astype(np.float32)


def warped(costs: Floats) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The cheapest way from the first row and column of a matrix to the last ones (dynamic time warping).

    A step goes to the next row, the next column, or both. The total of a cell depends on three cells of the two
    diagonals before its own, so that each diagonal is computed at once.

    Args:
        costs: `[rows, columns]`.

    Returns:
        The row and the column of each cell on the way.
    """
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    steps = np.full((rows + 1, columns + 1), 2, np.int8)  # 0: from the row and column before, 1: row, 2: column
    total[0, 0] = 0
    steps[1:, 0] = 1
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        both, down, right = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        step = np.where((both < down) & (both < right), 0, np.where((down < both) & (down < right), 1, 2))
        steps[i, j] = step
        total[i, j] = costs[i - 1, j - 1] + np.choose(step, (both, down, right))
    row, column, cells = rows, columns, list[tuple[int, int]]()
    while row or column:
        cells.append((row - 1, column - 1))
        step = steps[row, column]
        row, column = row - (step != 2), column - (step != 1)
    way = np.array(cells[::-1])
    return way[:, 0], way[:, 1]


def time_words(
    segments: Sequence[tuple[float, float, int]], words: Sequence[TimedWord], start: float, spoken: float
) -> list[TimedSegment]:
    """Give each segment of a window its words, and the times of these.

    Words next to a pause seem long, as attention has nowhere else to go: these are cut.

    Args:
        segments: start and end in seconds since the beginning of the file, and the number of the text's tokens.
        words: of all segments, as `align` makes them.
        start: of the window, in seconds.
        spoken: end of the last word before the window.
    """
    lasting = [word.end - word.start for word in words if word.end > word.start]
    median = min(MAX_MEDIAN_SECONDS, float(np.median(lasting))) if lasting else 0.0
    left = _punctuated(_cut_sentences(words, LONG_WORD * median) if lasting else words)
    timed: list[TimedSegment] = []
    for begins, ends, tokens in segments:
        mine: list[TimedWord] = []
        while left and tokens > 0:
            word = left.pop(0)
            tokens -= word.tokens
            if word.text:
                at, end = (float(round(start + time, 2)) for time in (word.start, word.end))
                mine.append(replace(word, start=at, end=end))
        made = _bounded(TimedSegment(begins, ends, mine), median, spoken) if mine else TimedSegment(begins, ends)
        spoken = made.end if mine else spoken
        timed.append(made)
    return timed


def _cut_sentences(words: Sequence[TimedWord], longest: float) -> list[TimedWord]:
    """Cut long words on both sides of a sentence's end."""
    cut = list(words)
    for i in range(1, len(cut)):
        word = cut[i]
        if word.end - word.start <= longest:
            continue
        if word.text in _SENTENCE_ENDS:
            cut[i] = replace(word, end=word.start + longest)
        elif cut[i - 1].text in _SENTENCE_ENDS:
            cut[i] = replace(word, start=word.end - longest)
    return cut


def _punctuated(words: Sequence[TimedWord]) -> list[TimedWord]:
    """Join punctuation to the words before and behind it; words that were joined are empty and have no tokens."""
    joined = list(words)
    behind = len(joined) - 1
    for i in range(len(joined) - 2, -1, -1):
        mark, word = joined[i], joined[behind]
        if mark.text.startswith(" ") and mark.text.strip() in _BEFORE_WORDS:
            joined[behind] = replace(word, text=mark.text + word.text, tokens=mark.tokens + word.tokens)
            joined[i] = replace(mark, text="", tokens=0)
        else:
            behind = i
    before = 0
    for i in range(1, len(joined)):
        word, mark = joined[before], joined[i]
        if not word.text.endswith(" ") and mark.text in _BEHIND_WORDS:
            joined[before] = replace(word, text=word.text + mark.text, tokens=word.tokens + mark.tokens)
            joined[i] = replace(mark, text="", tokens=0)
        else:
            before = i
    return joined


def _bounded(segment: TimedSegment, median: float, spoken: float) -> TimedSegment:
    """Cut the first words after a pause, and agree on where the segment begins and ends."""
    words, longest = list(segment.words), LONG_WORD * median
    first, start, end = words[0], segment.start, segment.end
    two = len(words) > 1 and words[1].end - first.start > 2 * longest
    if first.end - spoken > PAUSE * median and (first.end - first.start > longest or two):
        if len(words) > 1 and words[1].end - words[1].start > longest:
            bound = max(words[1].end / 2, words[1].end - longest)
            words[1] = replace(words[1], start=bound)
            first = replace(first, end=bound)
        first = replace(first, start=max(0.0, first.end - longest))
    if start < first.end and start - SLACK_SECONDS > first.start:
        first = replace(first, start=max(0.0, min(first.end - median, start)))
    else:
        start = first.start
    words[0] = first
    last = words[-1]
    if end > last.start and end + SLACK_SECONDS < last.end:
        words[-1] = replace(last, end=max(last.start + median, end))
    else:
        end = last.end
    return TimedSegment(start, end, words)

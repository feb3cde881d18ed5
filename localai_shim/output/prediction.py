"""A caller's prediction of an answer, followed by a pointer: what comes next, and how much of it came. Pure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

MOST_TOKENS, FEWEST_TOKENS = 4, 2  # of the answer's end by which the place in the prediction is found again
ALIGNED_TOKENS = 12  # of the prediction that those of the answer may stand for, until the place is found
NEAR_TOKENS = 8  # of the answer since the place was lost, whose text is compared with the prediction's
UNEVEN_COST = 0.5  # per character that an edit makes a text longer or shorter, in characters of a common end
SURE_MATCH = 1.0  # texts that match so well tell the place, whatever tokens stand elsewhere


class Prediction:
    """The tokens of a prediction. Made once for all choices of a request, each of which has a `Pointer`.

    Args:
        tokens: ids.
        spell: a token's text, of one character per byte; None: each token is one character.
    """

    def __init__(self, tokens: Iterable[int], spell: Callable[[int], str] | None = None) -> None:
        self.tokens = tuple(tokens)
        self.spell = spell or _as_character
        self.searched = "".join(map(_as_character, self.tokens))
        """A character for each token: strings are searched within microseconds."""

    def follow(self) -> Callable[[Sequence[int], int], Sequence[int]]:
        """Begin to follow an output. See `GenerationRequest.prediction`."""
        return Pointer(self).after


class Pointer:
    """The place in a prediction that an answer has got to.

    Tokens around an edit are others, too. So the place is found again by the text that came instead, where it ends as
    some of the prediction's does that is about as long; else by the answer's last tokens. Else as much text is taken to
    have been replaced.

    Attributes:
        fed: tokens of the answer so far.
        accepted: tokens of the prediction that the answer had where they were expected.
    """

    def __init__(self, prediction: Prediction) -> None:
        self._prediction = prediction
        self._at: int | None = 0
        self._lost_at = 0
        """The place at which the answer had something else."""
        self._since = 0
        """Tokens of the answer since then; 0: it continues as expected."""
        self._instead = self._recent = ""
        """The text that came since then, and the last tokens, a character each."""
        self._came = bytearray(len(prediction.tokens))
        self.fed = self.accepted = 0

    def after(self, output: Sequence[int], most: int) -> Sequence[int]:
        """The tokens that continue an output, at most `most`; none if the place is lost."""
        self.feed(islice(output, self.fed, None))
        return () if self._at is None else self._prediction.tokens[self._at : self._at + most]

    def feed(self, answer: Iterable[int]) -> None:
        """Take the next tokens of the answer."""
        tokens = self._prediction.tokens
        for token in answer:
            self.fed += 1
            self._recent = self._recent[1 - MOST_TOKENS :] + _as_character(token)
            at = self._at
            if at is not None and at < len(tokens) and tokens[at] == token:
                self.accepted += not self._came[at]
                self._came[at] = 1
                self._at, self._since = at + 1, 0
                continue
            if at is not None and not self._since:
                self._lost_at, self._instead = at, ""
            self._since += 1
            self._at = self._find(token)

    def _find(self, token: int) -> int | None:
        """The place behind the answer's last token, which was not expected."""
        near, match = None, 0.0
        if self._since <= NEAR_TOKENS:
            self._instead += self._prediction.spell(token)
            near, match = self._align()
        if match < SURE_MATCH:
            text, recent = self._prediction.searched, self._recent
            for size in range(len(recent), FEWEST_TOKENS - 1, -1):
                found = text.find(recent[-size:], max(0, self._lost_at + 1 - size))
                if found < 0:
                    found = text.rfind(recent[-size:])
                if found >= 0:
                    return found + size
        return near

    def _align(self) -> tuple[int, float]:
        """The place behind what the text probably came instead of, and how well they match.

        Both end alike, or are as long: characters of the common end, less a cost where one is longer.
        """
        spell, tokens, came = self._prediction.spell, self._prediction.tokens, self._instead
        best, found, text = -UNEVEN_COST * len(came), self._lost_at, ""
        for end in range(self._lost_at + 1, min(self._lost_at + ALIGNED_TOKENS, len(tokens)) + 1):
            text += spell(tokens[end - 1])
            score = _common_end(came, text) - UNEVEN_COST * abs(len(text) - len(came))
            if score >= best:
                best, found = score, end
        return found, best


def _common_end(one: str, other: str) -> int:
    """Characters."""
    most, count = min(len(one), len(other)), 0
    while count < most and one[-1 - count] == other[-1 - count]:
        count += 1
    return count


def _as_character(token: int) -> str:
    return chr(token % sys.maxunicode)

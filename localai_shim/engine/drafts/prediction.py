"""A caller's prediction of an answer, and how much of it came. Pure."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import overload

FEWEST_TOKENS, MOST_TOKENS = 2, 4  # of the answer's end by which the place in the prediction is found again
MOST_ALIGNED = 12  # tokens of the prediction that those of the answer may stand for, until the place is found
UNEVEN_COST = 0.5  # per character that an edit makes a text longer or shorter, in characters of a common end
SURE_MATCH = 1.0  # so well matching texts tell the place before tokens that stand anywhere do
NEAR_TOKENS = 8  # behind an edit, and since it, within which one token or its text tells the place: most are short


class Prediction(Sequence[int]):
    """The tokens of a prediction with an index of its pairs: a place is found in some microseconds, however long it is.

    Made where the request is read: 16,000 tokens take some milliseconds, in which running rows would wait.

    Args:
        tokens: ids.
        spell: a token's text, of one character per byte; None: each token is a character of its own.
    """

    def __init__(self, tokens: Iterable[int], spell: Callable[[int], str] | None = None) -> None:
        import numpy as np  # scripts without a prediction do without

        self._tokens = tuple(tokens)
        self.spell = spell or _as_character
        self._ids = np.array(self._tokens, dtype=np.int64)
        pairs = (self._ids[:-1] << 32) | self._ids[1:]
        order = np.argsort(pairs, kind="stable")  # places of equal pairs stay in their order
        self._pairs: list[int] = pairs[order].tolist()
        self._ends = order + FEWEST_TOKENS
        """The place behind each pair."""

    def __len__(self) -> int:
        return len(self._tokens)

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[int, ...]: ...
    def __getitem__(self, at: int | slice) -> int | tuple[int, ...]:
        return self._tokens[at]

    def behind(self, recent: Sequence[int], start: int) -> int | None:
        """The place behind an answer's last tokens, behind as many of these as stand there somewhere.

        Args:
            recent: the last `MOST_TOKENS`, or fewer.
            start: of several places the first from here on is taken, else the last.
        """
        if len(recent) < FEWEST_TOKENS:
            return None
        pair = (recent[-2] << 32) | recent[-1]
        first = bisect_left(self._pairs, pair)
        ends = self._ends[first : bisect_right(self._pairs, pair, first)]
        if not len(ends):
            return None
        for size in range(FEWEST_TOKENS + 1, len(recent) + 1):
            longer = ends[ends >= size]
            longer = longer[self._ids[longer - size] == recent[-size]]
            if not len(longer):
                break
            ends = longer
        return int(ends[min(int(ends.searchsorted(start)), len(ends) - 1)])

    def instead(self, came: str, start: int) -> tuple[int, float]:
        """The place behind what a text most probably came instead of, and how well they match.

        Both end alike, or are as long: characters of the common end, less a cost where one is longer.

        Args:
            came: of an answer.
            start: the place from which on it is not what was predicted.
        """
        best, found, text = -math.inf, start, ""
        for end in range(start, min(start + MOST_ALIGNED, len(self)) + 1):
            if end > start:
                text += self.spell(self[end - 1])
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


class Follower:
    """Walks through the tokens of a prediction as far as the answer has them.

    Where the answer has something else, the place is found again by the text that came instead, if it ends as some of
    the prediction's does that is about as long; else by the answer's last tokens: behind the place where it was lost if
    they are there, anywhere else if not; shortly behind it by one. Else as much text is taken to have been replaced.

    Args:
        prediction: token ids; what is no `Prediction` is made one.

    Attributes:
        fed: tokens of the answer so far.
        accepted: tokens of the prediction that the answer had where they were expected.
    """

    def __init__(self, prediction: Sequence[int]) -> None:
        self._tokens = prediction if isinstance(prediction, Prediction) else Prediction(prediction)
        self._at: int | None = 0
        self._lost_at = self._first_lost = 0
        self._since = 0
        """Tokens of the answer since the place was lost; 0: it is not."""
        self._instead = ""
        """Their text."""
        self._recent: list[int] = []
        self._came = bytearray(len(self._tokens))
        self.fed = self.accepted = 0

    def feed(self, answer: Iterable[int]) -> None:
        """Take the next tokens of the answer."""
        tokens, length = self._tokens[:], len(self._came)
        for token in answer:
            self.fed += 1
            self._recent = [*self._recent[1 - MOST_TOKENS :], token]
            at = self._at
            if at is not None and at < length and tokens[at] == token:
                self.accepted += not self._came[at]
                self._came[at] = 1
                self._at, self._since = at + 1, 0
                continue
            if at is not None:
                if not self._since:
                    self._first_lost, self._instead = at, ""
                self._lost_at = at + 1
            self._since += 1
            self._at = self._find(token)

    def _find(self, token: int) -> int | None:
        """The place behind the answer's last token, which was not expected."""
        prediction, near, match = self._tokens, None, 0.0
        if self._since <= NEAR_TOKENS:
            self._instead += prediction.spell(token)
            near, match = prediction.instead(self._instead, self._first_lost)
        if match >= SURE_MATCH:
            return near
        found = prediction.behind(self._recent, self._lost_at)
        if found is None and near is not None:
            ahead = prediction[self._first_lost : self._first_lost + NEAR_TOKENS]
            found = self._first_lost + ahead.index(token) + 1 if token in ahead else near
        return found

    def next(self, most: int) -> Sequence[int]:
        """The tokens that the answer is expected to go on with; none where the place is lost."""
        return () if self._at is None else self._tokens[self._at : self._at + most]


def accepted_tokens(prediction: Sequence[int], answer: Iterable[int]) -> int:
    """How many tokens of a prediction an answer has where they were expected."""
    follower = Follower(prediction)
    follower.feed(answer)
    return follower.accepted

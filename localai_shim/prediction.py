"""A caller's prediction of an answer, and how much of it came. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SYNC_TOKENS = (4, 3, 2)  # of the answer's end by which the place in the prediction is found again, longest first
MAX_REPLACED_TOKENS = 4  # in a row that are taken to stand for as many of the prediction, until the place is found


class Follower:
    """Walks through the tokens of a prediction as far as the answer has them.

    Where the answer has something else, the place is found again by the answer's last tokens: behind the place where
    it was lost if they are there, anywhere else if not. Until then a few tokens are taken to have been replaced.

    Args:
        prediction: token ids.

    Attributes:
        fed: tokens of the answer so far.
        accepted: tokens of the prediction that the answer had where they were expected.
    """

    def __init__(self, prediction: Sequence[int]) -> None:
        self._tokens = tuple(prediction)
        self._at: int | None = 0
        self._lost_at = self._replaced = 0
        self._recent: list[int] = []
        self._came = bytearray(len(self._tokens))
        self._places: dict[tuple[int, ...], list[int]] | None = None
        self.fed = self.accepted = 0

    def feed(self, answer: Iterable[int]) -> None:
        """Take the next tokens of the answer."""
        for token in answer:
            self.fed += 1
            self._recent = [*self._recent[1 - SYNC_TOKENS[0] :], token]
            at = self._at
            if at is not None and at < len(self._tokens) and self._tokens[at] == token:
                self.accepted += not self._came[at]
                self._came[at] = 1
                self._at, self._replaced = at + 1, 0
                continue
            if at is not None:
                self._lost_at = at + 1
                self._replaced += 1
            found = self._find()
            self._at = self._lost_at if found is None and 0 < self._replaced <= MAX_REPLACED_TOKENS else found

    def next(self, most: int) -> Sequence[int]:
        """The tokens that the answer is expected to go on with; none where the place is lost."""
        return () if self._at is None else self._tokens[self._at : self._at + most]

    def _find(self) -> int | None:
        """The place behind the answer's last tokens."""
        if self._places is None:
            self._places = {}
            for size in SYNC_TOKENS:
                for end in range(size, len(self._tokens) + 1):
                    self._places.setdefault(self._tokens[end - size : end], []).append(end)
        for size in SYNC_TOKENS:
            ends = self._places.get(tuple(self._recent[-size:])) if len(self._recent) >= size else None
            if ends:
                return next((end for end in ends if end >= self._lost_at - 1), ends[-1])
        return None


def accepted_tokens(prediction: Sequence[int], answer: Iterable[int]) -> int:
    """How many tokens of a prediction an answer has where they were expected."""
    follower = Follower(prediction)
    follower.feed(answer)
    return follower.accepted

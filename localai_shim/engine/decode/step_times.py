"""Times of a batch's steps, for the choice of drafts."""

from __future__ import annotations

import time

from ..drafts.controller import Speculation
from ..row import Row


class StepTimes:
    """Measures the steps of rows that stay: ordinary ones from one's beginning to the next, which is when the loop
    comes round again; those of several tokens from the choice of their drafts until they are verified.
    """

    def __init__(self, speculation: Speculation | None) -> None:
        self._speculation = speculation
        self._began = self._chose = 0.0
        self._ordinary: tuple[list[Row], int] | None = None
        self._drafted: list[Row] = []

    def begin(self, rows: list[Row]) -> None:
        """A step begins, and the one before it has ended."""
        if self._speculation is None:
            return
        now, ordinary = time.perf_counter(), self._ordinary
        if ordinary is not None and ordinary[0] is rows:  # nobody has joined or left
            self._speculation.note(len(rows), ordinary[1], now - self._began)
        self._began, self._ordinary = now, None

    def ordinary(self, rows: list[Row], noted_as: int | None) -> None:
        """The step that began was one of one token for each of these rows.

        Args:
            noted_as: tokens of each; 0: one, behind which nothing was built, as drafts were expected; None: it is not
                to be noted.
        """
        self._ordinary = None if noted_as is None else (rows, noted_as)

    def choose(self, rows: list[Row]) -> None:
        """Drafts of these rows are chosen."""
        self._chose, self._drafted = time.perf_counter(), rows

    def verified(self, rows: list[Row], tokens: int | None) -> None:
        """The step that was launched with these drafts, of so many tokens, has ended; these rows go on."""
        if self._speculation is not None and tokens is not None and rows is self._drafted:
            self._speculation.note(len(rows), tokens, time.perf_counter() - self._chose - self._speculation.spent)

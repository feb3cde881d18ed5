"""Calls of hosted tools that run concurrently, each on its own thread."""

from __future__ import annotations

import queue
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar

from ...threads.deadline import Deadline, check, computing, current
from ...threads.system import SimpleQueue
from ...threads.workers import Workers
from ...types import Json
from .kind import Outcome

LOOK_SECONDS = 0.05  # after which a thread that waits for calls sees that their caller has left
Show = Callable[[Json], None]
"""Takes the fields of the event for an unfinished result."""
Call = Callable[[Show], Outcome]
"""Makes a call, on a thread that may wait."""
Key = TypeVar("Key", bound=Hashable)
_hooks = Workers("hooks")


class Running(Generic[Key]):
    """Calls that run on threads: lanes concurrently, and the calls of one lane one after the other.

    Args:
        lanes: the calls, each with a key that tells it from the others.
    """

    def __init__(self, lanes: Sequence[Sequence[tuple[Key, Call]]]) -> None:
        self._found: SimpleQueue[tuple[Key, Outcome | Json | BaseException]] = SimpleQueue()
        self._open = sum(map(len, lanes))
        for lane in lanes:
            _hooks.submit(partial(_run, lane, self._found, current() or Deadline()))

    def results(self) -> Iterator[tuple[Key, Outcome | Json]]:
        """Keys of calls with their outcomes, and with what they show before, as it comes. Waits.

        Raises:
            Overdue: the caller of the request has left. Calls that are async are canceled, and the results of others
                are dropped.
            BaseException: what a call raised.
        """
        while self._open:
            try:
                key, found = self._found.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                check()
                continue
            check()
            if isinstance(found, BaseException):
                raise found
            self._open -= isinstance(found, Outcome)
            yield key, found


def _run(
    lane: Sequence[tuple[Key, Call]],
    found: SimpleQueue[tuple[Key, Outcome | Json | BaseException]],
    deadline: Deadline,
) -> None:
    for key, call in lane:
        try:
            with computing(deadline):
                found.put((key, call(partial(_show, found, key))))
        except BaseException as error:  # for the thread that waits
            found.put((key, error))
            return


def _show(found: SimpleQueue[tuple[Key, Outcome | Json | BaseException]], key: Key, fields: Json) -> None:
    found.put((key, fields))


def run_all(calls: Sequence[Callable[[], Outcome]]) -> list[Outcome]:
    """Outcomes of calls, which run concurrently. Waits, and raises as `Running.results` does."""
    running = Running([[(index, partial(_without_partial, call))] for index, call in enumerate(calls)])
    found = {index: outcome for index, outcome in running.results() if isinstance(outcome, Outcome)}
    return [found[index] for index in range(len(calls))]


def _without_partial(call: Callable[[], Outcome], show: Show) -> Outcome:
    return call()

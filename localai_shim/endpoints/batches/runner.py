"""Batches that run without their caller, on a few threads."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any

from ...state.errors import StoreError
from ...state.store import Json, Store
from ...threads.system import SimpleQueue, main_has_ended
from ...threads.workers import Crew
from ...types import EngineClosedError, log
from ..request_fields import now
from .job import KIND, LOCAL, Job, Progress, Stopped
from .lines import Answered, Line

MAX_RUNNING_BATCHES = 4  # batches of one client; more wait


Inbox = SimpleQueue[Any]
"""Queue at which the code that answers lines waits; None makes it check the batch."""
Running = Callable[[Iterable[Line], Inbox], Generator[Answered | None]]
"""Answers lines: requests -> answers, in whatever order they end; see `run_lines`."""


class Batches:
    """All batches that run for one client and its copies.

    Args:
        store: what has them.
        answer: runs lines.
        served: names the models that lines reach here: a batch is continued only if they are the same.
        owner: of what this client works on.
        is_alive: whether anybody works on what an owner has.
        make_progress: name of a batch -> what shows how far it is.
    """

    def __init__(
        self,
        store: Store,
        answer: Running,
        *,
        served: Sequence[str],
        owner: str,
        is_alive: Callable[[str], bool],
        make_progress: Callable[[str], Progress],
    ) -> None:
        self._store, self._answer = store, answer
        self._served, self._owner, self._is_alive = list(served), owner, is_alive
        self._make_progress = make_progress
        self._crew = Crew[str]("batches", MAX_RUNNING_BATCHES)
        self._inboxes: dict[str, Inbox] = {}
        """Of those that run or wait here."""
        self._shown: set[str] = set()
        self._unstored: dict[str, list[Json]] = {}
        """Errors of those that have failed, where the store could not be told."""

    def start(self, body: Json, file_id: str, part: str, *, progress: bool) -> None:
        """Store a batch of a file's requests and let it run.

        Raises:
            EngineClosedError: the client was closed, or forked.
            MissingError: the file is gone.
        """
        if self._crew.is_forked:
            raise EngineClosedError("this process was forked from the one that made the client")
        if self._crew.is_closed:
            raise EngineClosedError("client is closed")
        body[LOCAL]["served"] = self._served
        self._store.save(KIND, body["id"], body, copies={"input": ("file", file_id, part)}, owner=self._owner)
        if progress:
            self._shown.add(body["id"])
        try:
            self._run(body["id"])
        except RuntimeError:  # there are too many threads
            self._store.delete(KIND, body["id"])
            raise

    def resume(self, id: str | None = None) -> None:
        """Go on with batches whose process has ended, if they are for this client's models or have just to be ended.

        Args:
            id: of the only one; None: all of them.
        """
        if self._crew.is_forked:
            return
        try:
            claimed = self._store.claim(KIND, self._owner, partial(self._is_left, id))
        except StoreError:
            if self._crew.is_closed:  # while it waited for the store
                return
            raise
        for each in claimed:
            self._run(each)

    def unstored(self, id: str) -> list[Json] | None:
        """Errors of a batch that has failed, where the store could not be told and still cannot be."""
        errors = self._unstored.get(id)
        if errors is None:
            return None
        self._fail(self._job(id), id, errors)
        return self._unstored.get(id)

    def wake(self, id: str) -> None:
        """Have a batch that runs here check whether it was cancelled."""
        inbox = self._inboxes.get(id)
        if inbox is not None:
            inbox.put(None)

    def close(self) -> None:
        """Stop all batches where they are, and wait for their threads. Another client may continue them."""
        self.stop()
        self._crew.close()

    def stop(self) -> None:
        """Begin to close without waiting or taking a lock: the garbage collector may call this, on any thread."""
        self._crew.is_closed = True
        for inbox in list(self._inboxes.values()):
            inbox.put(None)

    # -----------------------------------------------------------------------------------------------------------

    def _is_left(self, id: str | None, owner: str, body: Json) -> bool:
        if id not in (None, body["id"]) or self._is_alive(owner):
            return False
        ends = body["status"] not in ("validating", "in_progress") or body["expires_at"] <= now()
        return ends or body[LOCAL]["served"] == self._served

    def _run(self, id: str) -> None:
        self._inboxes[id] = SimpleQueue()
        try:
            self._crew.add([id], self._work)
        except RuntimeError:
            del self._inboxes[id]
            raise

    def _work(self, id: str) -> None:
        try:
            self._work_on(id)
        finally:
            self._inboxes.pop(id, None)

    def _work_on(self, id: str) -> None:
        job = self._job(id)
        try:
            job.progress = self._make_progress(id) if id in self._shown else None
            job.run()
        except Stopped:
            return
        except Exception as error:
            # Engines end with the interpreter, too; then the batch is left for the next process.
            if self._crew.is_closed or main_has_ended():
                return
            if not isinstance(error, EngineClosedError):
                log.exception("a batch failed")
            message = f"The batch failed: {error}"
            self._fail(job, id, [{"code": "server_error", "line": None, "message": message, "param": None}])

    def _job(self, id: str) -> Job:
        inbox = self._inboxes.get(id) or SimpleQueue()
        return Job(self._store, id, lambda lines: self._answer(lines, inbox), lambda: self._crew.is_closed)

    def _fail(self, job: Job, id: str, errors: list[Json]) -> None:
        try:
            job.fail(errors)
            self._unstored.pop(id, None)
        except Exception:  # the store itself may be what fails
            log.exception("a batch could not be marked as failed")
            self._unstored[id] = errors

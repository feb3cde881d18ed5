"""Batches that run without their caller, on a few threads."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Literal

from ...state.errors import StoreError
from ...state.store import Json, Store
from ...threads.system import SimpleQueue, main_has_ended
from ...threads.workers import Crew
from ...types import EngineClosedError, log
from .. import files
from ..request_fields import now
from .lines import NO_USAGE, Answered, InvalidLine, Line, error_text, read_lines, split_lines

KIND: Final = "batch"
INPUT: Final = "input"
"""The part of a stored batch that has the pieces of its file, which may be deleted."""
UNFINISHED = ("validating", "in_progress", "finalizing", "cancelling")
LOCAL = "localai_shim"
"""The field of a stored batch that is not shown."""

MAX_LISTED_ERRORS = 100  # of a file, that a batch lists
CHECK_SECONDS = 0.2  # between two looks at whether a batch was cancelled or has expired

End = Literal["completed", "cancelled", "expired"]
_LEFT = {
    "cancelled": ("batch_cancelled", "This request was not executed before the batch was cancelled."),
    "expired": ("batch_expired", "This request could not be executed before the completion window expired."),
}
Answer = Callable[[Iterable[Line]], Generator[Answered | None]]
"""Answers lines side by side; None: nothing has ended for a while."""
Progress = Callable[[int, int], object]
"""Shows how many lines are done, of how many."""


class Stopped(Exception):
    """The client was closed; another one may continue the batch."""


class Job:
    """Works on one batch, on its own thread.

    Args:
        store: what has it.
        id: of the batch.
        answer: runs its lines.
        stopping: the client is being closed.

    Attributes:
        progress: is told of each answer.
    """

    def __init__(self, store: Store, id: str, answer: Answer, stopping: Callable[[], bool]) -> None:
        self._store, self._id, self._answer, self._stopping = store, id, answer, stopping
        self.progress: Progress | None = None
        self._looked = 0.0

    def run(self) -> None:
        """Work until the batch has ended.

        Raises:
            Stopped: the client is being closed.
        """
        body = self._store.get(KIND, self._id)
        if body is None:
            return
        if not body["request_counts"]["total"] and not self._validate():
            return
        body = self._store.get(KIND, self._id) or body
        end: End = body[LOCAL].get("end") or self._run_lines(body)
        self._finalize(end)

    def fail(self, errors: list[Json]) -> None:
        """End the batch without any answers."""
        self._end(partial(failed, errors=errors))

    # -----------------------------------------------------------------------------------------------------------

    def _requests(self) -> Iterator[Line | InvalidLine]:
        body = self._store.get(KIND, self._id)
        endpoint = None if body is None else body["endpoint"]
        return read_lines(split_lines(files.read_pieces(self._store, KIND, self._id, INPUT)), endpoint)

    def _validate(self) -> bool:
        """Check all lines; False where there is an error, and the batch has failed."""
        errors: list[Json] = []
        total = 0
        for each in self._requests():
            self._check_stopping()
            total += 1
            if isinstance(each, InvalidLine) and len(errors) < MAX_LISTED_ERRORS:
                errors.append(each.to_json())
        if not total:
            errors.append(InvalidLine(None, "empty_file", "The input file has no requests.").to_json())
        if errors:
            self.fail(errors)
            return False

        def begin(body: Json) -> Json:
            counts = {**body["request_counts"], "total": total}
            if body["status"] != "validating":  # it was cancelled meanwhile
                return {**body, "request_counts": counts}
            return {**body, "status": "in_progress", "in_progress_at": now(), "request_counts": counts}

        self._store.update(KIND, self._id, begin)
        return True

    def _run_lines(self, body: Json) -> End:
        """Answer the lines that are not answered yet."""
        done = self._done()
        total = body["request_counts"]["total"]
        requests = (each for each in self._requests() if isinstance(each, Line) and each.number not in done)
        end = self._look()
        if end is not None:
            return end
        with contextlib.closing(self._answer(requests)) as answers:
            for answered in answers:
                if answered is not None:
                    self._keep(answered)
                    if self.progress is not None:
                        done.add(answered.line.number)
                        self.progress(len(done), total)
                self._check_stopping()
                if answered is None or time.monotonic() >= self._looked + CHECK_SECONDS:
                    end = self._look()
                    if end is not None:
                        return end
        return "completed"

    def _done(self) -> set[int]:
        """The numbers of the lines that have an answer or an error."""
        return self._store.numbers(KIND, self._id, "output") | self._store.numbers(KIND, self._id, "error")

    def _check_stopping(self) -> None:
        if self._stopping():
            raise Stopped

    def _look(self) -> End | None:
        """Reason for the batch to end now, if there is one."""
        self._looked = time.monotonic()
        body = self._store.get(KIND, self._id)
        if body is None or body["status"] == "cancelling":
            return "cancelled"
        return "expired" if body["expires_at"] <= now() else None

    def _keep(self, answered: Answered) -> None:
        """Store an answer, and count it with the same transaction: a process may be killed between two."""
        part, counted = ("output", "completed") if answered.ok else ("error", "failed")

        def count(body: Json) -> Json:
            counts = {**body["request_counts"], counted: body["request_counts"][counted] + 1}
            usage = _added(answered.usage, body.get("usage") or NO_USAGE)
            return {**body, "request_counts": counts, "usage": usage, "model": body["model"] or answered.model}

        item = answered.line.number, {"text": f"{answered.text}\n"}
        self._store.update(KIND, self._id, count, numbered={part: [item]})

    def _finalize(self, end: End) -> None:
        """Make files of the answers. A file that was begun and not ended is made once more."""

        def begin(body: Json) -> Json:
            status = "cancelling" if end == "cancelled" else "finalizing"
            return {**body, "status": status, "finalizing_at": now(), LOCAL: {**body[LOCAL], "end": end}}

        body = self._store.update(KIND, self._id, begin)
        if body is None:
            return
        if end != "completed":
            self._add_left(*_LEFT[end])
        made = {f"{part}_file_id": self._make_file(part, body) for part in ("output", "error")}
        self._end(lambda body: {**body, **made, "status": end, f"{end}_at": now()})

    def _add_left(self, code: str, message: str) -> None:
        """Say of each line without an answer that it was not executed."""
        done = self._done()
        for each in self._requests():
            self._check_stopping()
            if isinstance(each, Line) and each.number not in done:
                text = error_text(each.custom_id, code, message)
                self._store.add_numbered(KIND, self._id, "error", [(each.number, {"text": f"{text}\n"})])

    def _make_file(self, part: Literal["output", "error"], batch: Json) -> str | None:
        """A file of a part of the batch, under an id that does not change; None where there is nothing to write."""
        size = sum(map(len, files.read_pieces(self._store, KIND, self._id, part)))
        if not size:
            return None
        seconds = batch[LOCAL]["expires_after"]
        body = files.describe(
            f"{self._id}_{part}.jsonl", size, "batch_output", None if seconds is None else now() + seconds
        )
        body["id"] = batch[LOCAL][part]
        self._store.save(files.KIND, body["id"], body, copies={files.CONTENT: (KIND, self._id, part)})
        return str(body["id"])

    def _end(self, change: Callable[[Json], Json]) -> None:
        """Store the batch as it is in the end, and let go of what it was made of."""
        self._store.update(KIND, self._id, change, drop=(INPUT, "output", "error"), release=True)


def failed(body: Json, errors: list[Json]) -> Json:
    """A batch without any answers."""
    return {**body, "status": "failed", "failed_at": now(), "errors": {"object": "list", "data": errors}}


def _added(usage: Json, more: Json) -> Json:
    """The numbers of both, with those of the objects in them."""
    return {k: _added(n, more[k]) if isinstance(n, dict) else n + more[k] for k, n in usage.items()}


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
        finally:
            self._inboxes.pop(id, None)

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

"""Runs one batch: checks its file, answers its lines, and writes the answers and errors to files."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Final, Literal

from ...state.store import Json, Store
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

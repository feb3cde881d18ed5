"""Files that are embedded without their caller, on a few threads."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Literal

from ...documents import DocumentError, read_document
from ...documents.document import MAX_DOCUMENT_BYTES
from ...state.errors import FullError, StoreError
from ...state.vectors import Chunk, Task, Vectors
from ...threads.deadline import Deadline, Overdue, check, computing
from ...threads.system import main_has_ended
from ...threads.workers import Crew
from ...types import EngineClosedError, Json, log
from .. import files
from .embedder import Open

MAX_THREADS = 4  # files of one client that are embedded concurrently; more wait
CHUNKS = 32
"""Chunks that are embedded, and stored, together."""
MODEL = "embedding_model"
"""Field of a stored file that is not shown: the name of the model that is to embed it."""


Code = Literal["unsupported_file", "invalid_file"]


class _BadFileError(Exception):
    """A file has no text that can be read. The message says why."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class _GoneError(Exception):
    """The file was removed, canceled, or is embedded by another process."""


class Ingestion:
    """All files that are embedded for one client and its copies.

    Args:
        vectors: keeps them.
        open: waits for the model that embeds them.
        model: its name.
        owner: name of this client in `vectors`.
        is_alive: says whether an owner still works.
    """

    def __init__(
        self,
        vectors: Vectors,
        open: Open,
        *,
        model: str,
        owner: str,
        is_alive: Callable[[str], bool],
    ) -> None:
        self._vectors, self._open, self.model = vectors, open, model
        self.owner, self._is_alive = owner, is_alive
        self._crew = Crew[int]("vector_stores", MAX_THREADS)
        self._deadlines: set[Deadline] = set()
        """Of the files that are embedded now: over when the client is closed."""

    def check(self) -> None:
        """Raise EngineClosedError if no files can be embedded any more."""
        if self._crew.is_forked:
            raise EngineClosedError("this process was forked from the one that made the client")
        if self._crew.is_closed:
            raise EngineClosedError("client is closed")

    def start(self, numbers: list[int]) -> None:
        """Embed files that were attached for this owner.

        Raises:
            RuntimeError: no thread can be started, and none runs; the files have failed.
        """
        try:
            self._crew.add(numbers, self._work_on)
        except RuntimeError as error:
            for number in numbers:
                self._fail(number, "server_error", f"no thread could be started: {error}")
            raise

    def resume(self) -> None:
        """Embed files whose process has ended. Those that are for another model have failed."""
        if self._crew.is_forked or self._crew.is_closed:
            return
        tasks = self._vectors.claim(self.owner, lambda owner: not self._is_alive(owner))
        mine = [task.seq for task in tasks if task.body.get(MODEL) == self.model]
        for task in tasks:
            if task.seq not in mine:
                message = (
                    f"The process that embedded this file with {task.body.get(MODEL)!r} has ended, and this client "
                    f"embeds with {self.model!r}. Add the file again."
                )
                self._fail(task.seq, "server_error", message)
        if mine:
            self._crew.add(mine, self._work_on)

    def close(self) -> None:
        """Stop where it is, and wait for the threads. Another client may continue."""
        self.stop()
        self._crew.close()

    def stop(self) -> None:
        """Begin to close without waiting or taking a lock: the garbage collector may call this, on any thread."""
        self._crew.is_closed = True
        for deadline in list(self._deadlines):
            deadline.abandon()

    # -----------------------------------------------------------------------------------------------------------

    def _work_on(self, number: int) -> None:
        deadline = Deadline()
        self._deadlines.add(deadline)
        if self._crew.is_closed:
            deadline.abandon()
        try:
            with computing(deadline):
                self._embed_or_fail(number)
        except (Overdue, EngineClosedError):  # the client is closed, or the interpreter ends: another process continues
            return
        finally:
            self._deadlines.discard(deadline)

    def _embed_or_fail(self, number: int) -> None:
        try:
            task = self._vectors.begin(number, self.owner)
            if task is not None:
                self._embed(task)
        except _GoneError:
            return
        except _BadFileError as error:
            self._fail(number, error.code, str(error))
        except FullError as error:
            message = f"{error}. Pass `store=PATH` to the client, which keeps vector stores in a file."
            self._fail(number, "server_error", message)
        except Exception as error:
            if self._crew.is_closed or main_has_ended():  # engines end with the interpreter, too
                raise Overdue from error
            log.warning("a file of a vector store could not be embedded", exc_info=True)
            self._fail(number, "server_error", f"The file could not be embedded: {error}")

    def _embed(self, task: Task) -> None:
        text = self._read_text(task)
        opened = self._open(check)
        size = task.body["chunking_strategy"]["static"]
        spans = opened.spans(text, size["max_chunk_size_tokens"], size["chunk_overlap_tokens"], check)
        while some := list(islice(spans, CHUNKS)):
            texts = [text[span.start : span.stop] for span in some]
            vectors = opened.chunks(texts, check).astype("<f4")
            made = [
                Chunk(span.start, each, vector.tobytes())
                for span, each, vector in zip(some, texts, vectors, strict=True)
            ]
            if not self._vectors.add_chunks(task.seq, self.owner, made):
                raise _GoneError
        self._vectors.end(task.seq, self.owner, model=opened.name)

    def _read_text(self, task: Task) -> str:
        file = self._vectors.store.get(files.KIND, task.file_id)
        if file is None:
            raise _BadFileError("invalid_file", "The file is no longer there. Upload it again.")
        name = task.body["filename"]
        if file["bytes"] > MAX_DOCUMENT_BYTES:
            raise _BadFileError("invalid_file", f"'{name}' has more than {MAX_DOCUMENT_BYTES >> 20} MiB. Split it.")
        data = b"".join(files.read_pieces(self._vectors.store, files.KIND, task.file_id, files.CONTENT))
        try:
            document = read_document(data, name, None)
        except DocumentError as error:
            raise _BadFileError(
                "unsupported_file" if data else "invalid_file", f"'{name}' cannot be read: {error}."
            ) from error
        if not document.has_text:
            raise _BadFileError("invalid_file", f"'{name}' has no text.")
        return document.text

    def _fail(self, number: int, code: str, message: str) -> None:
        error: Json = {"code": code, "message": message}
        try:
            self._vectors.end(number, self.owner, error=error)
        except StoreError:  # the store itself may be what fails
            if not self._crew.is_closed:
                log.exception("a file of a vector store could not be marked as failed")

"""Files that are embedded without their caller, on a few threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from itertools import islice

from ...state.errors import StoreError
from ...state.vectors import Chunk, FullError, Task, Vectors
from ...threads.system import Lock, Thread, current_thread, main_has_ended, make_thread
from ...types import EngineClosedError, Json, log
from .. import files
from .documents import UnreadableError, read_text
from .embedder import Open

MAX_THREADS = 4  # files of one client that are embedded concurrently; more wait
CHUNKS = 32
"""Chunks that are embedded, and stored, together."""
MODEL = "embedding_model"
"""Field of a stored file that is not shown: the name of the model that is to embed it."""


class StoppedError(Exception):
    """The client is being closed; another one may continue."""


class GoneError(Exception):
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
        self._lock = Lock()
        self._pid = os.getpid()
        self._closed = False
        self._waiting: deque[int] = deque()
        self._threads: set[Thread] = set()

    def check(self) -> None:
        """Raise EngineClosedError if no files can be embedded any more."""
        if self._pid != os.getpid():
            raise EngineClosedError("this process was forked from the one that made the client")
        if self._closed:
            raise EngineClosedError("client is closed")

    def start(self, numbers: list[int]) -> None:
        """Embed files that were attached for this owner.

        Raises:
            RuntimeError: no thread can be started, and none runs; the files have failed.
        """
        try:
            self._run(numbers)
        except RuntimeError as error:
            for number in numbers:
                self._fail(number, "server_error", f"no thread could be started: {error}")
            raise

    def resume(self) -> None:
        """Embed files whose process has ended. Those that are for another model have failed."""
        if self._pid != os.getpid() or self._closed:
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
            self._run(mine)

    def close(self) -> None:
        """Stop where it is, and wait for the threads. Another client may continue."""
        self.stop()
        if self._pid == os.getpid():
            for thread in list(self._threads):
                thread.join()

    def stop(self) -> None:
        """Begin to close without waiting or taking a lock: the garbage collector may call this, on any thread."""
        self._closed = True

    # -----------------------------------------------------------------------------------------------------------

    def _run(self, numbers: list[int]) -> None:
        with self._lock:
            self._waiting.extend(numbers)
            for _ in range(min(len(numbers), MAX_THREADS - len(self._threads))):
                thread = make_thread(self._work, name="localai_shim:vector_stores")
                try:
                    thread.start()
                except RuntimeError:
                    if not self._threads:
                        for number in numbers:
                            self._waiting.remove(number)
                        raise
                    return
                self._threads.add(thread)

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._closed or not self._waiting:
                    self._threads.discard(current_thread())
                    return
                number = self._waiting.popleft()
            self._work_on(number)

    def _work_on(self, number: int) -> None:
        try:
            task = self._vectors.begin(number, self.owner)
            if task is not None:
                self._embed(task)
        except (StoppedError, GoneError):
            return
        except UnreadableError as error:
            self._fail(number, error.code, str(error))
        except FullError as error:
            message = f"{error}. Pass `store=PATH` to the client, which keeps vector stores in a file."
            self._fail(number, "server_error", message)
        except Exception as error:
            # Engines end with the interpreter, too; then the file is left for the next process.
            if self._closed or main_has_ended():
                return
            if not isinstance(error, EngineClosedError):
                log.warning("a file of a vector store could not be embedded", exc_info=True)
            self._fail(number, "server_error", f"The file could not be embedded: {error}")

    def _embed(self, task: Task) -> None:
        data = b"".join(files.read_pieces(self._vectors.store, files.KIND, task.file_id, files.CONTENT))
        if not data and self._vectors.store.get(files.KIND, task.file_id) is None:
            raise UnreadableError("invalid_file", "The file is no longer there. Upload it again.")
        text = read_text(data, task.body["filename"])
        del data
        if not text.strip():
            raise UnreadableError("invalid_file", "The file has no text.")
        opened = self._open(self._check)
        size = task.body["chunking_strategy"]["static"]
        spans = opened.spans(text, size["max_chunk_size_tokens"], size["chunk_overlap_tokens"], self._check)
        while some := list(islice(spans, CHUNKS)):
            texts = [text[span.start : span.stop] for span in some]
            vectors = opened.chunks(texts, self._check).astype("<f4")
            made = [
                Chunk(span.start, each, vector.tobytes())
                for span, each, vector in zip(some, texts, vectors, strict=True)
            ]
            if not self._vectors.add_chunks(task.seq, self.owner, made):
                raise GoneError
        self._vectors.end(task.seq, self.owner, model=opened.name)

    def _check(self) -> None:
        if self._closed:
            raise StoppedError

    def _fail(self, number: int, code: str, message: str) -> None:
        error: Json = {"code": code, "message": message}
        try:
            self._vectors.end(number, self.owner, error=error)
        except StoreError:  # the store itself may be what fails
            if not self._closed:
                log.exception("a file of a vector store could not be marked as failed")

"""One connection to SQLite, shared by the threads of a process; its transactions; what happens at a fork."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator

from .errors import StoreError
from .schema import connect


class Database:
    """A connection and its lock.

    Args:
        path: an absolute path, or None: in memory.

    Raises:
        StoreError: it cannot be opened.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        with _forking:  # from here on a fork waits until the connection is open
            _databases.add(self)
        with self._lock:
            self._connection = self._connect()

    @contextlib.contextmanager
    def transaction(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it happens, or nothing if it raises; no other thread or process comes between.

        Raises:
            StoreError: it is closed, or SQLite failed.
            RuntimeError: this thread is in a transaction already, for example in a callback.
        """
        with self._lock:
            if self._closed:
                raise self._error("it is closed")
            if self._connection is None:
                self._connection = self._connect()
            connection = self._connection
            if connection.in_transaction:
                raise RuntimeError("The store cannot be used inside its own callbacks.")
            try:
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield connection
                connection.execute("COMMIT")
            except BaseException as error:
                with contextlib.suppress(sqlite3.Error):  # what matters is the error that led here
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise self._error(str(error)) from error
                raise

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __del__(self) -> None:
        try:  # noqa: SIM105 - contextlib may be gone where the interpreter ends
            self.close()
        except Exception:
            pass

    def _connect(self) -> sqlite3.Connection:
        try:
            return connect(self.path)
        except (OSError, StoreError, sqlite3.Error) as error:
            raise self._error(getattr(error, "strerror", None) or str(error)) from error

    def _error(self, why: str) -> StoreError:
        name = "The store in memory" if self.path is None else f"The store {self.path}"
        return StoreError(f"{name} cannot be used: {why}")

    # A connection to a file must not be open when the process forks: the locks that SQLite believes to hold are not
    # the child's, and the parent would remove the log that the child writes to. https://www.sqlite.org/howtocorrupt.html
    # Both open a connection of their own when they next need one. What is in memory is copied with the process.

    def _before_fork(self) -> None:
        if self.path is not None and self._connection is not None and not self._connection.in_transaction:
            connection, self._connection = self._connection, None
            connection.close()

    def _after_fork_in_child(self) -> None:
        if self.path is not None and self._connection is not None:  # this thread forked inside of a transaction
            _abandoned.append(self._connection)
            self._connection = None
            self._closed = True
        self._lock.release()


_forking = threading.RLock()
_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_held: list[Database] = []
_abandoned: list[sqlite3.Connection] = []  # never closed: that, too, would take the parent's locks


def _before_fork() -> None:
    _forking.acquire()
    for database in list(_databases):
        database._lock.acquire()
        _held.append(database)
        with contextlib.suppress(sqlite3.Error):
            database._before_fork()


def _after_fork_in_parent() -> None:
    for database in _held:
        database._lock.release()
    _held.clear()
    _forking.release()


def _after_fork_in_child() -> None:
    for database in _held:
        database._after_fork_in_child()
    _held.clear()
    _forking.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)

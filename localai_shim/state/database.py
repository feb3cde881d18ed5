"""One connection to SQLite, shared by the threads of a process; its transactions; what happens at a fork."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import weakref
from collections.abc import Iterator

from ..threads.deadline import Deadline, Overdue
from ..threads.deadline import left as left_here
from ..threads.system import RLock, sleep
from .errors import StoreError
from .schema import connect, is_busy

BUSY_SECONDS = 30.0  # that a transaction waits for those of other processes at most
_PAUSE_SECONDS = 0.01  # between two attempts to begin one


class Database:
    """A connection and its lock. What waits for them waits no longer than the deadline of the request that it is for.

    Args:
        path: an absolute path, or None: in memory.

    Raises:
        StoreError: it cannot be opened.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None
        self._waits = 0.0
        """Seconds that a statement waits for locks of other processes."""
        self._closed = False
        with _forking:  # from here on a fork waits until the connection is open
            _databases.add(self)
        try:
            with self._lock:
                self._connect(_Patience().seconds)
        except sqlite3.Error as error:
            raise self._error(str(error)) from error

    @contextlib.contextmanager
    def transaction(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it happens, or nothing if it raises; no other thread or process comes between.

        Raises:
            Overdue: the deadline of the request is over, and nothing has happened.
            StoreError: it is closed, or SQLite failed.
            RuntimeError: this thread is in a transaction already, for example in a callback.
        """
        patience = _Patience()
        try:
            done = False
            while not done:  # other threads get the lock while another process writes
                with contextlib.ExitStack() as stack:
                    left = left_here()
                    seconds = -1 if left is None else left
                    # On one line with what releases it: an interrupt comes between lines.
                    if left == 0.0 or not (self._lock.acquire(timeout=seconds) and stack.push(self._lock)):
                        raise Overdue
                    connection = self._opened(patience)
                    try:
                        if done := self._begin(connection, write, patience):
                            yield connection
                            if write and left_here() == 0.0:  # its caller has been told so, or will be
                                raise Overdue
                            connection.execute("COMMIT")
                    except BaseException:
                        with contextlib.suppress(sqlite3.Error):  # what matters is the error that led here
                            if connection.in_transaction:
                                connection.execute("ROLLBACK")
                        raise
                if not done:
                    sleep(min(_PAUSE_SECONDS, patience.left))
        except sqlite3.Error as error:
            if is_busy(error):
                patience.check()
            raise self._error(str(error)) from error

    def _opened(self, patience: _Patience) -> sqlite3.Connection:
        """The connection, which is in no transaction."""
        if self._closed:
            raise self._error("it is closed")
        connection = self._connection or self._connect(patience.seconds)
        if connection.in_transaction:
            raise RuntimeError("The store cannot be used inside its own callbacks.")
        return connection

    def _begin(self, connection: sqlite3.Connection, write: bool, patience: _Patience) -> bool:
        """Begin a transaction; False if another process writes, and there is time to wait for it."""
        tries = write and self.path is not None
        self._wait_for_locks(connection, 0.0 if tries else patience.seconds)
        try:
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        except sqlite3.Error as error:
            if not is_busy(error) or not patience.left:
                raise
            return False
        self._wait_for_locks(connection, patience.seconds)
        return True

    def _wait_for_locks(self, connection: sqlite3.Connection, seconds: float) -> None:
        """Set the time that a connection's statements wait for the locks of other processes."""
        if self.path is not None and seconds != self._waits:
            connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")
            self._waits = seconds

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

    def _connect(self, seconds: float) -> sqlite3.Connection:
        """Open the connection, with the lock; a process that locks the file is waited for."""
        try:
            self._connection, self._waits = connect(self.path, seconds), seconds
        except (OSError, StoreError) as error:
            raise self._error(getattr(error, "strerror", None) or str(error)) from error
        return self._connection

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


class _Patience:
    """Limit of a transaction's wait for other processes: the deadline of what is done here.

    Attributes:
        seconds: from its beginning on.
    """

    def __init__(self) -> None:
        left = left_here()
        self.seconds = BUSY_SECONDS if left is None else min(BUSY_SECONDS, left)
        self._deadline = Deadline(self.seconds)

    @property
    def left(self) -> float:
        """Seconds, 0 or more."""
        return self._deadline.left() or 0.0

    def check(self) -> None:
        """Raise Overdue if the wait ended because of the current deadline."""
        if self.seconds < BUSY_SECONDS:
            raise Overdue


_forking = RLock()
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

"""Messages between the leader and a follower: frames over a plain socket, and records of mirrored calls in them.

Records are small pickles in which objects that all processes have are numbers. Both sides number objects in the same
order: those that are new when they are written, and those that calls return. A record holds only the shape of an array;
a collective operation of the call transfers its values.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar
from weakref import ref

import mlx.core as mx

from ...engine.cache_contents import UPSTREAMS
from ...engine.mirror.journal import Mirrored

Kind = Literal[b"r", b"p", b"c", b"j", b"k", b"n", b"e", b"v"]
"""From the leader: a record, a ping, close, join the group. From a follower: what it has done, that it has joined, an
error, a port to visit."""
KINDS: dict[bytes, Kind] = {kind: kind for kind in (b"r", b"p", b"c", b"j", b"k", b"n", b"e", b"v")}

SEND_SECONDS = 10  # that a peer which reads nothing may keep a sender
_HEADER = struct.Struct("<cQ")


class Channel:
    """One end. Frames may be sent from several threads, and read from one."""

    def __init__(self, end: socket.socket) -> None:
        self._socket, self._lock = end, threading.Lock()
        end.setblocking(True)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))

    def send(self, kind: Kind, content: bytes = b"") -> None:
        """Send a frame.

        Raises:
            OSError: the other end is gone, or reads nothing.
        """
        with self._lock:
            self._socket.sendall(_HEADER.pack(kind, len(content)) + content)

    def receive(self) -> tuple[Kind, bytes]:
        """The next frame.

        Raises:
            OSError, EOFError: the other end is gone.
        """
        kind, size = _HEADER.unpack(self._read(_HEADER.size))
        return KINDS[kind], self._read(size)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, size: int) -> bytes:
        content = bytearray(size)
        view = memoryview(content)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise EOFError("the other end was closed")
            view = view[count:]
        return bytes(content)


ObjectT = TypeVar("ObjectT")


_shared: dict[type, bool] = {}


def is_shared(kind: type) -> bool:
    """True for objects of which all processes have their own: `Mirrored` ones, and layers of caches."""
    found = _shared.get(kind)
    if found is None:
        found = issubclass(kind, Mirrored) or any(base.__module__ in UPSTREAMS for base in kind.__mro__)
        _shared[kind] = found
    return found


def found_in(value: object) -> Iterator[object]:
    """Shared objects in what a call returned, in an order that is the same everywhere."""
    if is_shared(type(value)):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from found_in(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from found_in(each)
    elif is_dataclass(value):
        for field in fields(value):
            yield from found_in(getattr(value, field.name))


def arrays_in(value: object) -> list[mx.array]:
    """Arrays that a call returned."""
    if isinstance(value, mx.array):
        return [value]
    return [array for each in value for array in arrays_in(each)] if isinstance(value, list | tuple) else []


def checksum(result: object, *about: object) -> int:
    """Number that is equal in all processes where a call did the same.

    Args:
        result: what it returned: numbers and sizes in it count.
        about: the objects that it was a method of, or had as arguments: their shapes count.
    """
    shapes = [each.shape() for each in about if isinstance(each, Mirrored)]
    return zlib.crc32(repr((_plain(result), shapes)).encode())


def _plain(value: object) -> object:
    if isinstance(value, mx.array):
        return value.shape
    if is_shared(type(value)):
        return type(value).__name__
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return [(key, _plain(each)) for key, each in value.items()]
    if is_dataclass(value):
        return [_plain(getattr(value, field.name)) for field in fields(value)]
    return value


Record = tuple[int, int, list[int], Callable[..., object], tuple[object, ...], dict[str, object]]
"""A call's number, the checksum of the one before, objects that are no more, what is called, and its arguments."""


class Written:
    """The leader's numbers of shared objects. It holds none of them."""

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[int, ref[object]]] = {}
        self._count = 0
        self._gone: list[int] = []

    def number(self, value: object) -> int | None:
        """Number of an object that has one."""
        found = self._numbers.get(id(value))
        return None if found is None else found[0]

    def add(self, value: object) -> int:
        """Number an object that has none yet."""
        self._count += 1
        key, number = id(value), self._count

        def forget(_: object) -> None:  # runs wherever the last reference goes
            self._numbers.pop(key, None)
            self._gone.append(number)

        self._numbers[key] = number, ref(value, forget)
        return number

    def returned(self, result: object) -> None:
        """Number what a call has returned."""
        for each in found_in(result):
            if self.number(each) is None:
                self.add(each)

    def take_gone(self) -> list[int]:
        """Numbers of objects that are no more, once each."""
        gone, self._gone = self._gone, []
        return gone

    def write(self, record: Record) -> bytes:
        file = io.BytesIO()
        _Pickler(file, self).dump(record)
        return file.getvalue()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, written: Written) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._written = written

    def persistent_id(self, obj: object) -> int | None:
        return self._written.number(obj) if is_shared(type(obj)) else None

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, mx.array):
            return _zeros, (obj.shape, str(obj.dtype).rpartition(".")[2])
        if is_shared(type(obj)):
            return _Made, (self._written.add(obj), type(obj), vars(obj))
        return NotImplemented


def _zeros(shape: tuple[int, ...], dtype: str) -> mx.array:
    return mx.zeros(shape, getattr(mx, dtype))


class _Made:
    """A new object in a record, until it is read."""


class Read:
    """A follower's shared objects, by number."""

    def __init__(self) -> None:
        self.objects: dict[int, object] = {}
        self._numbers: dict[int, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self.objects)

    def drop(self, numbers: list[int]) -> None:
        """Forget objects that the leader has no more."""
        for number in numbers:
            gone = self.objects.pop(number, None)
            self._numbers.pop(id(gone), None)

    def add(self, value: object, number: int) -> None:
        self.objects[number], self._numbers[id(value)] = value, number
        self._count = max(self._count, number)

    def returned(self, result: object) -> None:
        """Number what a call has returned."""
        for each in found_in(result):
            if id(each) not in self._numbers:
                self.add(each, self._count + 1)

    def read(self, content: bytes) -> Record:
        record: Record = _Unpickler(io.BytesIO(content), self).load()
        return record

    def made(self, number: int, kind: type[ObjectT], state: Mapping[str, object]) -> ObjectT:
        """A new object of the leader's."""
        value = kind.__new__(kind)
        vars(value).update(state)
        self.add(value, number)
        return value


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, read: Read) -> None:
        super().__init__(file)
        self._read = read

    def persistent_load(self, pid: int) -> object:
        return self._read.objects[pid]

    def find_class(self, module: str, name: str) -> Callable[..., object]:
        if (module, name) == (_Made.__module__, _Made.__name__):
            return self._read.made
        found: Callable[..., object] = super().find_class(module, name)
        return found

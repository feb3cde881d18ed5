"""Errors of the store."""

from __future__ import annotations


class StoreError(Exception):
    """The store cannot be used: no database, a newer schema, a full disk, closed. The message says which, and why."""


class MissingError(StoreError):
    """A required object does not exist."""

    def __init__(self, kind: str, id: str) -> None:
        super().__init__(f"there is no {kind} with the id {id!r}")
        self.kind = kind
        """A kind of object, or "item"."""
        self.id = id


class DuplicateError(StoreError):
    """The conversation has an item with this id already."""

    def __init__(self, id: str) -> None:
        super().__init__(f"there is an item with the id {id!r} already")
        self.id = id


class FullError(StoreError):
    """A store in memory has no room for more chunks."""

"""Text of files."""

from __future__ import annotations

from typing import Literal


class UnreadableError(Exception):
    """A file has no text that can be read. The message says why."""

    def __init__(self, code: Literal["unsupported_file", "invalid_file"], message: str) -> None:
        super().__init__(message)
        self.code = code


def read_text(data: bytes, filename: str) -> str:
    """Text of a file.

    Raises:
        UnreadableError: it has none.
    """
    if b"\0" in data[:4096]:
        raise UnreadableError("unsupported_file", f"'{filename}' is not a text file.")
    return data.decode("utf-8-sig", "replace")

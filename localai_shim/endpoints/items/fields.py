"""Reading objects inside a request body: as `Fields`, with errors that name the whole path."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from ...errors import BadRequest
from ..fields import Fields, as_array

_ID = re.compile(r"[A-Za-z0-9_-]+")
MAX_ID_LENGTH = 64


class ItemFields(Fields):
    """An object of which every field has to be read.

    Args:
        value: the object, untrusted; null means absent.
        path: where it is, such as `items[2].content[0]`.

    Raises:
        BadRequest: it is not an object.
    """

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise BadRequest.wrong_type(path, "an object", value)
        self.path = path
        super().__init__({self.at(key): given for key, given in value.items()})

    def at(self, name: object) -> str:
        """The path of a field, by which the inherited methods know it."""
        return f"{self.path}.{name}"

    def has_only(self, name: str) -> bool:
        """True if no other field is given."""
        return list(self._body) == [self.at(name)]

    def optional(self, name: str) -> str | None:
        """A string that is Unicode text."""
        return self.string(self.at(name))

    def text(self, name: str) -> str:
        """A required string."""
        self.require(self.at(name))
        return self.optional(name) or ""

    def word(self, name: str, max_length: int | None = None) -> str:
        """A required string that is not empty."""
        value = self.text(name)
        if not value:
            raise BadRequest.empty_string(self.at(name))
        if max_length is not None and len(value) > max_length:
            raise BadRequest.long_string(self.at(name), max_length, len(value))
        return value

    def call_id(self) -> str:
        """The id that a call and its output share."""
        return self.word("call_id", MAX_ID_LENGTH)

    def id(self) -> str | None:
        """The id, where the caller gives one."""
        value = self.optional("id")
        if value is None:
            return None
        if not _ID.fullmatch(value):
            raise BadRequest.invalid(
                self.at("id"),
                f"Invalid '{self.at('id')}': '{value[:MAX_ID_LENGTH]}'. Expected an ID that contains letters, numbers, "
                "underscores, or dashes, but this value contained additional characters.",
            )
        if len(value) > MAX_ID_LENGTH:
            raise BadRequest.long_string(self.at("id"), MAX_ID_LENGTH, len(value))
        return value

    def option(self, name: str, options: Collection[str]) -> str:
        """A required string out of a few."""
        self.require(self.at(name))
        return self.choice(self.at(name), options) or ""

    def array(self, name: str) -> list[object]:
        """A required array."""
        return list(as_array(self.at(name), self.require(self.at(name))))

    def given(self, **values: object) -> dict[str, object]:
        """The values that are not null."""
        return {name: value for name, value in values.items() if value is not None}

    def finish(self) -> None:
        for name in self._body:
            if name not in self._read:
                raise BadRequest(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")

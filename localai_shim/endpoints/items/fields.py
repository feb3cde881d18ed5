"""Reading objects inside a request body: as `Fields`, with errors that name the whole path."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from ...errors import BadRequest
from ..fields import Fields

_ID = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST_ID = 64


class ItemFields(Fields):
    """An object of which every field has to be read.

    Args:
        value: the object, untrusted; null means absent.
        path: where it is, such as `items[2].content[0]`.

    Raises:
        BadRequest: it is no object.
    """

    def __init__(self, value: Any, path: str) -> None:
        if not isinstance(value, Mapping):
            raise BadRequest.wrong_type(path, "an object", value)
        self.path = path
        super().__init__({self.at(key): given for key, given in value.items()})

    def at(self, name: object) -> str:
        """The path of a field, which is what the inherited methods take."""
        return f"{self.path}.{name}"

    def has_only(self, name: str) -> bool:
        """Whether this is the only field that is not null."""
        return list(self._body) == [self.at(name)]

    def optional(self, name: str) -> str | None:
        """A string that is Unicode text."""
        return self.string(self.at(name))

    def text(self, name: str) -> str:
        """The same, which has to be there."""
        self.require(self.at(name))
        return self.optional(name) or ""

    def word(self, name: str, longest: int | None = None) -> str:
        """The same, which must not be empty."""
        value = self.text(name)
        if not value:
            raise BadRequest(
                f"Invalid '{self.at(name)}': empty string. Expected a string with minimum length 1, but got an empty "
                "string instead.",
                param=self.at(name),
                code="string_below_min_length",
            )
        if longest is not None and len(value) > longest:
            raise _too_long(self.at(name), value, longest)
        return value

    def call_id(self) -> str:
        """What holds a call and its output together."""
        return self.word("call_id", _LONGEST_ID)

    def id(self) -> str | None:
        """The id, if the caller gives one."""
        value = self.optional("id")
        if value is None:
            return None
        if not _ID.fullmatch(value):
            raise BadRequest(
                f"Invalid '{self.at('id')}': '{value[:_LONGEST_ID]}'. Expected an ID that contains letters, numbers, "
                "underscores, or dashes, but this value contained additional characters.",
                param=self.at("id"),
                code="invalid_value",
            )
        if len(value) > _LONGEST_ID:
            raise _too_long(self.at("id"), value, _LONGEST_ID)
        return value

    def option(self, name: str, options: Collection[str]) -> str:
        """A string out of a few, which has to be there."""
        self.require(self.at(name))
        return self.choice(self.at(name), options) or ""

    def array(self, name: str) -> list[Any]:
        """An array, which has to be there."""
        value = self.require(self.at(name))
        if not isinstance(value, list | tuple):
            raise BadRequest.wrong_type(self.at(name), "an array of objects", value)
        return list(value)

    def given(self, **values: Any) -> dict[str, Any]:
        """Those that are not null."""
        return {name: value for name, value in values.items() if value is not None}

    def finish(self) -> None:
        for name in self._body:
            if name not in self._read:
                raise BadRequest(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")


def _too_long(path: str, value: str, longest: int) -> BadRequest:
    return BadRequest(
        f"Invalid '{path}': string too long. Expected a string with maximum length {longest}, but got a string with "
        f"length {len(value)} instead.",
        param=path,
        code="string_above_max_length",
    )

"""Content parts that hold a file, of both APIs: where its content comes from, its text, and images of its pages."""

from __future__ import annotations

import hashlib
import os
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from ...documents import Document, DocumentError, read_document
from ...errors import BadRequest
from ...media import Detail, MediaRules
from ...threads.cache import LRUCache
from .sources import read_data, read_source

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_DRAWN_PAGES = 20
"""Pages of a PDF that models that read images see; the text of all others is read, too."""
_SOURCES = ("file_data", "file_id", "file_url")
_DETAILS: dict[str, Detail] = {"auto": "auto", "low": "low", "high": "high"}
_PIXELS: dict[Detail, int] = {"low": 512, "auto": 768, "high": 1536}
_MAX_NAME_CHARACTERS = 200
_CACHE_CHARACTERS = 16_000_000
_documents: LRUCache[Document] = LRUCache(_CACHE_CHARACTERS, lambda document: sum(map(len, document.pages)) + 100)
"""Files that were read last, by their content: each turn of a conversation sends them again."""


@dataclass(frozen=True, slots=True, eq=False)
class FileSource:
    """A part's content before its text is read."""

    path: str
    """The field that the content came from, for errors."""
    name: str | None
    media_type: str | None
    data: bytes
    digest: str
    """Hash of the data."""
    detail: Detail

    @property
    def shown_name(self) -> str:
        """Name in prompts and errors: one line."""
        name = " ".join((self.name or "file").split())[:_MAX_NAME_CHARACTERS]
        return name.encode(errors="replace").decode()

    def read(self) -> Document:
        """Read the text, or find it in the cache. May take a while.

        Raises:
            BadRequest: the file has no text that can be read; names the field and the file.
        """
        suffix = None if self.name is None else os.path.splitext(self.name)[1].lower()
        key = self.digest, suffix, self.media_type
        try:
            return _documents.get_or_make(key, lambda: read_document(self.data, self.name, self.media_type))
        except DocumentError as error:
            raise self.refused(error) from error

    def image_sizes(self) -> list[tuple[int, int]]:
        """Height and width of the images of a PDF's first pages.

        Raises:
            BadRequest: the pages cannot be drawn.
        """
        from ...documents.pdf_pictures import page_sizes

        try:
            return page_sizes(self.data, _PIXELS[self.detail], MAX_DRAWN_PAGES)
        except DocumentError as error:
            raise self.refused(error) from error

    def image_key(self, index: int) -> str:
        """Key of a page's image: equal for the same page of the same file at the same detail."""
        return f"page {index} {self.detail} {self.digest}"

    def draw(self, index: int) -> npt.NDArray[np.uint8]:
        """Draw a page: `[height, width, 3]`, RGB.

        Raises:
            BadRequest: the page cannot be drawn.
        """
        from ...documents.pdf_pictures import draw_page

        try:
            return draw_page(self.data, index, _PIXELS[self.detail])
        except DocumentError as error:
            raise self.refused(error) from error

    def refused(self, why: object) -> BadRequest:
        """The error for a file that cannot be in a prompt."""
        return BadRequest.refused(self.path, f"'{self.shown_name}' cannot be read: {why}", "invalid_file")


def open_file(part: Mapping[str, object], path: str, rules: MediaRules) -> FileSource | None:
    """Find the content of a part, from wherever `rules` allow; None if it is still to be read, see `Contents`.

    Args:
        part: as it was sent; one of the types in `FILES`.
        path: its place in the request: `messages[0].content[1]`.

    Raises:
        BadRequest: a field is wrong, or the content cannot or may not be read.
        NotFound: there is no uploaded file of this id.
    """
    holder: object = part
    if part["type"] == "file":
        holder, path = part.get("file"), f"{path}.file"
    if holder is None:
        raise BadRequest.missing(path)
    if not isinstance(holder, Mapping):
        raise BadRequest.wrong_type(path, "an object", holder)
    found = [name for name in _SOURCES if holder.get(name) is not None]
    if not found:
        raise BadRequest.missing(f"{path}.file_data")
    if len(found) > 1:
        raise BadRequest.mutually_exclusive([f"{path}.{name}" for name in found])
    name, detail = _string(holder, "filename", path), _string(holder, "detail", path) or "auto"
    if detail not in _DETAILS:
        raise BadRequest.unknown_value(f"{path}.detail", detail, tuple(_DETAILS))
    own_name, media_type, data = _content(holder[found[0]], found[0], f"{path}.{found[0]}", rules)
    if not data and rules.contents is not None and rules.contents.unread:
        return None
    return FileSource(
        f"{path}.{found[0]}", name or own_name, media_type, data, hashlib.sha256(data).hexdigest(), _DETAILS[detail]
    )


def _content(value: object, field: str, at: str, rules: MediaRules) -> tuple[str | None, str | None, bytes]:
    """Name, media type, and bytes of a file, as far as its source says."""
    if field == "file_id":
        if not isinstance(value, str):
            raise BadRequest.wrong_type(at, "a string", value)
        if rules.stored is None:
            raise BadRequest.unsupported(at, "There are no uploaded files here: send the file itself.")
        name, data = rules.stored(value, at)
        return name, None, data
    if isinstance(value, PurePath):
        return value.name, None, read_source(value, at, "file", rules)
    if field == "file_url" and isinstance(value, str) and value.lstrip()[:5].lower() != "data:":
        return _url_name(value), None, read_source(value, at, "file", rules)
    media_type, data = read_data(value, at)
    return None, media_type, data


def _url_name(url: str) -> str | None:
    """The last part of a URL's path, if it looks like the name of a file."""
    try:
        name = urllib.parse.unquote(urllib.parse.urlsplit(url).path).rpartition("/")[2]
    except ValueError:
        return None
    return name if "." in name else None


def _string(holder: Mapping[str, object], name: str, path: str) -> str | None:
    value = holder.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequest.wrong_type(f"{path}.{name}", "a string", value)
    return value

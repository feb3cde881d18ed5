"""Text of DOCX, PPTX, and XLSX: archives of XML."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Callable
from xml.etree import ElementTree

from .document import MAX_DOCUMENT_BYTES, MAX_PAGES, Characters, DocumentError
from .time_limit import TimeLimit

_SLIDE = re.compile(r"ppt/slides/slide(\d{1,9})\.xml")
_SHEET = re.compile(r"xl/worksheets/sheet(\d{1,9})\.xml")
_CELL = re.compile(r"([A-Z]{1,3})\d+")
_PIECE_BYTES = 1 << 16
_ENDS = {"p": "\n", "tc": "\t", "tr": "\n"}
_MARKS = {"tab": "\t", "br": "\n", "cr": "\n"}
_SKIPPED = ("Fallback", "rPh", "tabs")  # a second form of a drawing; how a string is pronounced; settings


def office_pages(data: bytes, limit: TimeLimit) -> tuple[str, ...] | None:
    """The text of a document, of each slide, or of each sheet; None if an archive is something else.

    Raises:
        DocumentError: the file is broken, unpacks to too much, or takes too long.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _pages(_Archive(archive, limit))
    except DocumentError:
        raise
    except (zipfile.BadZipFile, zlib.error, ElementTree.ParseError, EOFError) as error:
        raise DocumentError(f"the office file is broken: {error}") from error
    except (NotImplementedError, RuntimeError, LookupError, OSError, ValueError) as error:
        raise DocumentError(f"the office file cannot be read: {error}") from error


class _Archive:
    """Members of an archive, which together unpack to a limited number of bytes and characters."""

    def __init__(self, archive: zipfile.ZipFile, limit: TimeLimit) -> None:
        self._archive, self._limit = archive, limit
        self.names = set(archive.namelist())
        self._left = MAX_DOCUMENT_BYTES
        self.characters = Characters()

    def parse(self, name: str, target: _Text | _Sheet) -> None:
        """Call `target` for all tags of a member, as the archive is unpacked."""
        parser = ElementTree.XMLParser(target=target)
        with self._archive.open(name) as member:
            while piece := member.read(_PIECE_BYTES):
                self._limit.check()
                self._left -= len(piece)
                if self._left < 0:
                    raise DocumentError(f"the office file unpacks to more than {MAX_DOCUMENT_BYTES >> 20} MiB")
                parser.feed(piece)
        parser.close()

    def numbered(self, pattern: re.Pattern[str]) -> list[str]:
        """Names of slides or sheets, in the order of their numbers."""
        found = {name: int(match[1]) for name in self.names if (match := pattern.fullmatch(name))}
        if len(found) > MAX_PAGES:
            raise DocumentError(f"it has {len(found)} pages, and at most {MAX_PAGES} are read; split the file")
        return sorted(found, key=found.__getitem__)


def _pages(archive: _Archive) -> tuple[str, ...] | None:
    if "word/document.xml" in archive.names:
        return (_text(archive, "word/document.xml"),)
    if slides := archive.numbered(_SLIDE):
        return tuple(_text(archive, name) for name in slides)
    if sheets := archive.numbered(_SHEET):
        strings = _Text(archive.characters.add)
        if "xl/sharedStrings.xml" in archive.names:
            archive.parse("xl/sharedStrings.xml", strings)
        return tuple(_sheet(archive, name, strings.items) for name in sheets)
    return None


def _text(archive: _Archive, name: str) -> str:
    target = _Text(archive.characters.add)
    archive.parse(name, target)
    return target.text()


def _sheet(archive: _Archive, name: str, strings: list[str]) -> str:
    target = _Sheet(strings, archive.characters.add)
    archive.parse(name, target)
    return "\n".join(target.rows).strip("\n")


def _no_types() -> None:
    raise DocumentError("the office file is broken: its XML declares a document type")


class _Text:
    """Text of a document or slide, or a workbook's shared strings.

    Args:
        count: is called with the number of new characters.
    """

    def __init__(self, count: Callable[[int], None]) -> None:
        self._count = count
        self._parts: list[str] = []
        self._reads = self._skipped = 0
        self.items: list[str] = []
        """Shared strings."""

    def text(self) -> str:
        """All text, a line for each paragraph, a tab between the cells of a table."""
        text = "".join(self._parts).replace("\n\t", "\t").replace("\t\n", "\n")
        return text.strip("\n")

    def doctype(self, *_: object) -> None:
        """Refuse declarations, which can define entities."""
        _no_types()

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Enter an element."""
        tag = _local(tag)
        self._skipped += tag in _SKIPPED
        if not self._skipped:
            self._reads += tag == "t"
            self._add(_MARKS.get(tag, ""))

    def data(self, text: str) -> None:
        """Take text."""
        if self._reads and not self._skipped:
            self._add(text)

    def end(self, tag: str) -> None:
        """Leave an element."""
        tag = _local(tag)
        if not self._skipped:
            self._reads -= tag == "t"
            self._add(_ENDS.get(tag, ""))
            if tag == "si":
                self.items.append("".join(self._parts))
                self._parts = []
        self._skipped -= tag in _SKIPPED

    def close(self) -> None:
        """End the document."""

    def _add(self, text: str) -> None:
        if text:
            self._count(len(text))
            self._parts.append(text)


class _Sheet:
    """Rows of a sheet: cells with tabs between them.

    Args:
        strings: the workbook's.
        count: is called with the number of new characters.
    """

    def __init__(self, strings: list[str], count: Callable[[int], None]) -> None:
        self._strings, self._count = strings, count
        self._row: list[str] = []
        self._value: list[str] | None = None
        self._kind = ""
        self.rows: list[str] = []

    def doctype(self, *_: object) -> None:
        """Refuse declarations, which can define entities."""
        _no_types()

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Enter an element."""
        tag = _local(tag)
        if tag == "row":
            self._row = []
        elif tag == "c":
            self._kind = attributes.get("t", "n")
            missing = _column(attributes.get("r", "")) - len(self._row)
            if missing > 0:
                self._count(missing)
                self._row += [""] * missing
            self._row.append("")
        elif tag in ("v", "t"):
            self._value = []

    def data(self, text: str) -> None:
        """Take text."""
        if self._value is not None:
            self._value.append(text)

    def end(self, tag: str) -> None:
        """Leave an element."""
        tag = _local(tag)
        if tag in ("v", "t") and self._value is not None:
            text, self._value = "".join(self._value), None
            if self._kind == "s" and tag == "v":
                text = self._strings[int(text)]
            self._count(len(text) + 1)
            if self._row:
                self._row[-1] += text
        elif tag == "row":
            self.rows.append("\t".join(self._row).rstrip("\t"))

    def close(self) -> None:
        """End the sheet."""


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _column(reference: str) -> int:
    """Number of the column of a cell such as "B7", from 0; 0 if there is no reference."""
    match = _CELL.fullmatch(reference)
    number = 0
    for letter in "" if match is None else match[1]:
        number = number * 26 + ord(letter) - ord("A") + 1
    return max(0, number - 1)

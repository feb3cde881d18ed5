"""The kind of a file, by its content, and its text."""

from __future__ import annotations

import codecs
import re

from ..threads.panics import is_shortage
from .document import MAX_DOCUMENT_BYTES, Characters, Document, DocumentError
from .html_text import visible_text
from .office import office_pages
from .pdf import pdf_pages
from .time_limit import TimeLimit

_PDF_HEAD_BYTES = 1024  # before which readers of PDF look for its mark
_PDF_MARK = b"%PDF-"
_ZIP_MARK = b"PK\x03\x04"
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_HTML_HEAD = re.compile(r"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)
_HTML_NAMES = (".html", ".htm", ".xhtml")
_HTML_TYPES = ("text/html", "application/xhtml+xml")
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # which begins with the mark of UTF-16
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BINARY = (
    (
        re.compile(rb"\x89PNG|\xff\xd8\xff|GIF8|RIFF....WEBP|BM....\x00\x00|II\x2a\x00|MM\x00\x2a", re.DOTALL),
        "an image",
    ),
    (re.compile(rb"\xd0\xcf\x11\xe0"), "an encrypted file or one of an old office program"),
    (re.compile(rb"PK[\x03\x05]|\x1f\x8b|7z\xbc\xaf|Rar!|BZh|\xfd7zXZ"), "an archive"),
    (re.compile(rb"ID3|OggS|fLaC|RIFF....WAVE|....ftyp|\x1aE\xdf\xa3", re.DOTALL), "a sound or video"),
)
_READ = "text, HTML, PDF, DOCX, PPTX, and XLSX are read"


def read_document(data: bytes, filename: str | None, media_type: str | None) -> Document:
    """Read the text of a file.

    The content says what a file is. Its name and media type only tell HTML from other text.

    Args:
        data: the file's bytes.
        filename: its name.
        media_type: its media type, which may have parameters such as `charset`.

    Raises:
        DocumentError: the file is empty, too large, encrypted, broken, takes too long, or is of a kind that is not
            read; or a library is missing.
        Overdue: the request that it is for is over, see `threads.deadline`.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise DocumentError(f"it has more than {MAX_DOCUMENT_BYTES >> 20} MiB; split the file")
    if not data:
        raise DocumentError("the file is empty")
    limit = TimeLimit()
    if _PDF_MARK in data[:_PDF_HEAD_BYTES]:
        return Document(_guarded_pdf(data, limit), is_pdf=True)
    if data.startswith(_ZIP_MARK) and (pages := office_pages(data, limit)) is not None:
        return Document(pages)
    text = _decoded(data)
    if _is_html(text, filename, media_type):
        text = visible_text(text, limit)
    Characters().add(len(text))
    return Document((text,))


def _guarded_pdf(data: bytes, limit: TimeLimit) -> tuple[str, ...]:
    try:
        with limit.at_each_call():
            return pdf_pages(data)
    except DocumentError:
        raise
    except Exception as error:  # whatever broken files lead to
        if is_shortage(error):
            raise
        raise DocumentError(f"the PDF is broken: {str(error)[:200] or type(error).__name__}") from error


def _decoded(data: bytes) -> str:
    encoding, start = next(((name, len(bom)) for bom, name in _BOMS if data.startswith(bom)), ("utf-8", 0))
    try:
        text = data[start:].decode(encoding)
    except UnicodeDecodeError:
        raise _unsupported(data) from None
    if _CONTROLS.search(text) is not None:
        raise _unsupported(data)
    return text


def _unsupported(data: bytes) -> DocumentError:
    what = next((name for pattern, name in _BINARY if pattern.match(data)), None)
    if what == "an image":
        return DocumentError("it is an image: send it as a content part for images")
    if what is None:
        return DocumentError(f"it is not text in UTF-8, and of no kind that is known ({_READ}); convert it")
    return DocumentError(f"it is {what}, which is not supported ({_READ}); convert it")


def _is_html(text: str, filename: str | None, media_type: str | None) -> bool:
    if media_type is not None and media_type.partition(";")[0].strip().lower() in _HTML_TYPES:
        return True
    if filename is not None and filename.lower().endswith(_HTML_NAMES):
        return True
    return filename is None and media_type is None and _HTML_HEAD.match(text[:_PDF_HEAD_BYTES]) is not None

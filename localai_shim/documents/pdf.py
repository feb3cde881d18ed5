"""Text of a PDF's pages, by pypdf."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from .document import MAX_PAGES, Characters, DocumentError

if TYPE_CHECKING:
    from pypdf import PageObject, PdfReader
    from pypdf.generic import DictionaryObject

EXTRA = 'pip install "localai-shim[files]"'
"""Command that installs the libraries for PDF."""
_MAX_STREAM_BYTES = 8 << 20
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def pdf_pages(data: bytes) -> tuple[str, ...]:
    """The text of each page; empty for pages that are pictures.

    Args:
        data: a PDF.

    Raises:
        DocumentError: pypdf is missing, the file needs a password, or it has too many pages or characters.
        Exception: whatever pypdf raises for broken files.
    """
    try:
        from pypdf import PdfReader
    except ModuleNotFoundError as error:
        raise DocumentError(f"reading PDF needs pypdf: {EXTRA}") from error
    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted:
        _decrypt(reader)
    count = len(reader.pages)
    if count > MAX_PAGES:
        raise DocumentError(f"the PDF has {count} pages, and at most {MAX_PAGES} are read; split the file")
    characters = Characters()
    return tuple(_text(page, characters) for page in reader.pages)


def _decrypt(reader: PdfReader) -> None:
    """Open a PDF that anyone may read: its password is empty, and only restricts what programs offer."""
    from pypdf.errors import DependencyError, FileNotDecryptedError

    try:
        is_open = bool(reader.decrypt(""))
    except (DependencyError, FileNotDecryptedError):
        is_open = False
    if not is_open:
        raise DocumentError("the PDF is encrypted; save a copy without encryption")


def _text(page: PageObject, characters: Characters) -> str:
    _check_streams(page)

    def count(text: str, *_: object) -> None:
        characters.add(len(text))

    text = page.extract_text(visitor_text=count)
    # Fonts map glyphs to halves of characters, and to controls.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _CONTROLS.sub("", text).strip()


def _check_streams(page: PageObject) -> None:
    """Refuse drawing commands that unpack to far more than any page has: pypdf makes objects of all of them."""
    contents = page.get_contents()
    if contents is not None:
        _check_size(len(contents.get_data()))
    forms: list[DictionaryObject] = [page]
    seen: set[int] = set()
    while forms:
        resources = forms.pop().get("/Resources")
        found = None if resources is None else resources.get_object().get("/XObject")
        for form in () if found is None else found.get_object().values():
            form = form.get_object()
            if id(form) in seen or form.get("/Subtype") != "/Form":
                continue
            seen.add(id(form))
            _check_size(len(form.get_data()))
            forms.append(form)


def _check_size(size: int) -> None:
    if size > _MAX_STREAM_BYTES:
        raise DocumentError(f"a page of the PDF has more than {_MAX_STREAM_BYTES >> 20} MiB of drawing commands")

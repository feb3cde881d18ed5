"""Text of PDFs. Broken, encrypted, and malicious ones end with an error of their own."""

from __future__ import annotations

import contextlib
import io
import sys
import zlib
from pathlib import Path

import pypdf
import pytest

from localai_shim.documents import DocumentError, read_document, reading
from localai_shim.documents import pdf as pdf_module
from localai_shim.documents.time_limit import TimeLimit
from localai_shim.threads.deadline import Deadline, Overdue, until

from .files import pdf, pdf_of, stream


def refused(data: bytes) -> str:
    with pytest.raises(DocumentError) as caught:
        read_document(data, "file.pdf", None)
    return str(caught.value)


def test_each_page_is_read() -> None:
    found = read_document(pdf("First page", "Second\npage", ""), "a.pdf", None)
    assert found.pages == ("First page", "Second\npage", "")
    assert found.is_pdf and found.has_text


def test_scans_have_no_text() -> None:
    found = read_document(pdf("", ""), None, None)
    assert found.is_pdf and not found.has_text


def test_files_that_pypdf_writes_are_read() -> None:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf("Some text")))
    writer.compress_identical_objects()
    for page in writer.pages:
        page.compress_content_streams()
    out = io.BytesIO()
    writer.write(out)
    assert read_document(b"\n" + out.getvalue(), None, None).text == "Some text"


def encrypted(user: str) -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf("Some text")))
    writer.encrypt(user, "owner", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def test_a_password_is_an_error_and_an_empty_one_is_none() -> None:
    assert "encrypted" in refused(encrypted("secret"))
    assert read_document(encrypted(""), None, None).text == "Some text"


@pytest.mark.parametrize("end", [20, 200, 400])
def test_truncated_files_are_errors(end: int) -> None:
    assert "broken" in refused(pdf("Some text")[:end])


def test_pages_that_contain_themselves_are_an_error_or_are_read_once() -> None:
    looped = pdf_of([b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[2 0 R]/Count 1>>"])
    assert "broken" in refused(looped)


def drawing(content: bytes, forms: list[bytes]) -> bytes:
    """A page with forms F0, F1, and so on, which may draw each other."""
    names = b" ".join(b"/F%d %d 0 R" % (i, 5 + i) for i in range(len(forms)))
    resources = b"/Resources<</XObject<<%b>>>>" % names
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]%b/Contents 4 0 R>>" % resources
    catalog, pages = b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>"
    entries = b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]" + resources
    return pdf_of([catalog, pages, page, stream(content), *(stream(form, entries) for form in forms)])


def test_forms_that_draw_each_other_many_times_end_at_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = [b" ".join([b"/F%d Do" % (i + 1)] * 10) for i in range(12)] + [b"q Q"]
    monkeypatch.setattr(reading, "TimeLimit", lambda: TimeLimit(0.3))
    assert "takes longer than 0.3 seconds" in refused(drawing(b"/F0 Do", forms))
    assert sys.getprofile() is None


def test_a_request_that_is_over_ends_the_reading() -> None:
    forms = [b" ".join([b"/F%d Do" % (i + 1)] * 10) for i in range(12)] + [b"q Q"]
    over = Deadline(60)
    over.abandon()
    with until(over), pytest.raises(Overdue):
        read_document(drawing(b"/F0 Do", forms), None, None)
    assert sys.getprofile() is None


def test_drawing_commands_that_unpack_to_much_are_an_error() -> None:
    packed = zlib.compress(b"q Q " * (3 << 20), 9)
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R>>"
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>", page]
    data = pdf_of([*objects, stream(packed, b"/Filter/FlateDecode")])
    assert len(data) < 100_000
    assert "8 MiB of drawing commands" in refused(data)


def test_pages_have_a_maximum_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_module, "MAX_PAGES", 2)
    assert "3 pages, and at most 2" in refused(pdf("a", "b", "c"))


def test_a_missing_library_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    assert refused(pdf("a")) == 'reading PDF needs pypdf: pip install "localai-shim[files]"'
    assert read_document(b"text", None, None).text == "text"


def test_damaged_files_are_read_or_are_an_error() -> None:
    data = pdf("Some text", "More text")
    for place in range(9, len(data), 7):
        for byte in (b"\x00", b"9", b"<"):
            with contextlib.suppress(DocumentError):  # anything else fails
                read_document(data[:place] + byte + data[place + 1 :], None, None)


def test_the_library_is_imported_only_for_pdf() -> None:
    source = Path(reading.__file__).with_name("pdf.py").read_text()
    assert "\nfrom pypdf" not in source and "\nimport pypdf" not in source

"""Text of PDFs. Broken, encrypted, and malicious ones raise `DocumentError`."""

from __future__ import annotations

import contextlib
import io
import sys
import time
import zlib
from pathlib import Path

import pypdf
import pytest

from localai_shim.documents import DocumentError, read_document, reading, time_limit
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


def test_a_request_that_is_over_ends_the_reading() -> None:
    forms = [b" ".join([b"/F%d Do" % (i + 1)] * 10) for i in range(12)] + [b"q Q"]
    over = Deadline(60)
    over.abandon()
    with until(over), pytest.raises(Overdue):
        read_document(drawing(b"/F0 Do", forms), None, None)


def endless(caught: list[str]) -> None:
    """A loop that no function is called in, in a parser that takes each error for a broken object."""
    while True:
        try:
            while True:
                pass
        except Exception as error:
            caught.append(str(error))


def test_any_loop_ends_at_the_time_limit() -> None:
    caught = list[str]()
    for _ in range(3):
        with pytest.raises(DocumentError, match=r"takes longer than 0\.2 seconds"):
            TimeLimit(0.2).run(lambda: endless(caught))
    assert caught == []


def test_what_ends_at_the_time_limit_raises_nothing_afterwards() -> None:
    def late() -> str:
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            pass
        return "read"

    ends = list[str]()
    for _ in range(10):
        try:
            ends.append(TimeLimit(0.1).run(late))
        except DocumentError:
            ends.append("ended")
        assert sum(range(100_000)) > 0, "an error that comes later would be raised here"
    assert set(ends) <= {"read", "ended"}


@pytest.mark.parametrize("late", [False, True])
def test_a_profiler_runs_after_a_file_was_read(late: bool) -> None:
    """CPython 3.11 hangs in one if an error that was to be raised in a thread was taken back."""
    if late:
        with pytest.raises(DocumentError):
            TimeLimit(0.1).run(lambda: endless([]))
    else:
        TimeLimit(60).run(lambda: 1)
    calls: list[str] = []
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    try:
        sorted([2, 1], key=lambda each: each)
    finally:
        sys.setprofile(None)
    assert "call" in calls


def test_errors_and_results_come_before_the_time_limit() -> None:
    with pytest.raises(ZeroDivisionError):
        TimeLimit(60).run(lambda: 1 / 0)
    assert TimeLimit(60).run(lambda: 1) == 1


def test_a_process_without_threads_reads_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system has no more threads, or the interpreter ends."""
    monkeypatch.setattr(time_limit._watchers, "_start", lambda: False)
    assert read_document(pdf("text"), None, None).text == "text"


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

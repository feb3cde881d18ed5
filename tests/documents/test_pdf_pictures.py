"""Images of a PDF's pages."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from localai_shim.documents import DocumentError, pdf_pictures
from localai_shim.documents.pdf_pictures import draw_page, page_sizes
from localai_shim.threads.deadline import Deadline, Overdue, until

from .files import pdf


def test_pages_are_drawn_on_white() -> None:
    pixels = draw_page(pdf("", size=(100, 200)), 0, 400)
    assert pixels.shape == (400, 200, 3)
    assert pixels[0, 0].tolist() == [255, 255, 255] and pixels[-40, 40].tolist() == [128, 128, 128]


def test_text_is_drawn() -> None:
    assert draw_page(pdf("Text"), 0, 768).min() < 100 <= draw_page(pdf(" "), 0, 768).min()


def test_sizes_are_known_before_pages_are_drawn() -> None:
    data = pdf("", "", "", size=(612, 792))
    assert page_sizes(data, 768, 2) == [(768, 593)] * 2
    assert all(draw_page(data, i, 768).shape == (768, 593, 3) for i in range(3))


@pytest.mark.parametrize("size", [(1, 101), (0, 0), (5, 1000)])
def test_pages_of_extreme_sizes_are_errors(size: tuple[int, int]) -> None:
    data = pdf("", size=size)
    if size == (0, 0):  # pdfium draws US letter then
        assert page_sizes(data, 100, 1) == [(100, 77)]
        return
    with pytest.raises(DocumentError, match="which cannot be drawn"):
        page_sizes(data, 100, 1)


def test_broken_files_are_errors() -> None:
    with pytest.raises(DocumentError, match="cannot be opened"):
        draw_page(b"%PDF-1.4 broken", 0, 100)


def test_drawing_ends_at_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_pictures, "PAGE_SECONDS", -1.0)
    with pytest.raises(DocumentError, match="page 1 of the PDF takes longer"):
        draw_page(pdf("Text"), 0, 768)


def test_a_request_that_is_over_draws_nothing() -> None:
    over = Deadline(60)
    over.abandon()
    with until(over), pytest.raises(Overdue):
        draw_page(pdf("Text"), 0, 768)
    assert draw_page(pdf("Text"), 0, 768).shape == (768, 593, 3)


def test_threads_draw_the_same_pages() -> None:
    data, together = pdf(*(f"Page {i}" for i in range(8))), threading.Barrier(8)

    def drawn(i: int) -> bytes:
        together.wait(30)
        return draw_page(data, i, 300).tobytes()

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(drawn, range(8)))
    assert found == [draw_page(data, i, 300).tobytes() for i in range(8)]


def test_a_missing_library_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(DocumentError, match=r'needs pypdfium2: pip install "localai-shim\[files\]"'):
        page_sizes(pdf("a"), 100, 1)

"""Pages of a PDF as images, by pdfium."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..threads import deadline
from ..threads.system import Lock
from .document import DocumentError
from .pdf import EXTRA

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from pypdfium2 import PdfDocument

PAGE_SECONDS = 20.0
"""Of a processor, for drawing one page."""
_MAX_RATIO = 100  # of a page's sides
_lock = Lock()
"""Held by the thread that uses pdfium, which is not thread-safe."""


def page_sizes(data: bytes, longest: int, most: int) -> list[tuple[int, int]]:
    """Height and width of the images of a PDF's first pages.

    Args:
        data: a PDF.
        longest: pixels of each image's longer side.
        most: maximum number of pages.

    Raises:
        DocumentError: pypdfium2 is missing, or pdfium cannot open the file.
    """
    with _opened(data) as document:
        return [_scaled(document.get_page_size(i), longest) for i in range(min(len(document), most))]


def draw_page(data: bytes, index: int, longest: int) -> npt.NDArray[np.uint8]:
    """Draw a page on white: `[height, width, 3]`, RGB.

    Args:
        data: a PDF.
        index: of the page, from 0.
        longest: pixels of the image's longer side.

    Raises:
        DocumentError: pypdfium2 is missing, the page is broken, or it takes too long.
        Overdue: the request that it is for is over.
    """
    import numpy as np

    with _opened(data) as document:
        height, width = _scaled(document.get_page_size(index), longest)
        pixels = np.frombuffer(_drawn(document, index, height, width), np.uint8).reshape(height, width, 4)
    return np.ascontiguousarray(pixels[:, :, 2::-1])


def _drawn(document: PdfDocument, index: int, height: int, width: int) -> bytes:
    """The pixels of a page: blue, green, red, and nothing."""
    import pypdfium2
    from pypdfium2 import internal
    from pypdfium2 import raw as pdfium

    page = document[index]
    bitmap = pypdfium2.PdfBitmap.new_native(width, height, pdfium.FPDFBitmap_BGRx)
    bitmap.fill_rect((255, 255, 255, 255), 0, 0, width, height)
    end = time.thread_time() + PAGE_SECONDS

    def is_over(_: object) -> int:
        try:
            deadline.check()
        except BaseException:  # no exception passes through a library in C
            return 1
        return time.thread_time() > end

    pause = pdfium.IFSDK_PAUSE(version=1)
    internal.set_callback(pause, "NeedToPauseNow", is_over)
    flags = pdfium.FPDF_ANNOT
    try:
        status = pdfium.FPDF_RenderPageBitmap_Start(bitmap, page, 0, 0, width, height, 0, flags, pause)
        deadline.check()
        if status == pdfium.FPDF_RENDER_TOBECONTINUED:
            raise DocumentError(f"page {index + 1} of the PDF takes longer than {PAGE_SECONDS:g} seconds to draw")
        if status != pdfium.FPDF_RENDER_DONE:
            raise DocumentError(f"page {index + 1} of the PDF cannot be drawn")
        return bytes(bitmap.buffer)
    finally:
        pdfium.FPDF_RenderPage_Close(page)
        page.close()


@contextlib.contextmanager
def _opened(data: bytes) -> Iterator[PdfDocument]:
    try:
        import pypdfium2
    except ModuleNotFoundError as error:
        raise DocumentError(f"drawing the pages of PDF needs pypdfium2: {EXTRA}") from error
    with _lock:
        deadline.check()
        try:
            document = pypdfium2.PdfDocument(data)
        except pypdfium2.PdfiumError as error:
            raise DocumentError(f"the PDF cannot be opened: {error}") from error
        try:
            yield document
        except pypdfium2.PdfiumError as error:
            raise DocumentError(f"the PDF cannot be drawn: {error}") from error
        finally:
            document.close()


def _scaled(size: tuple[float, float], longest: int) -> tuple[int, int]:
    """Height and width in pixels of a page, whose width and height in points are `size`."""
    width, height = size
    if not 0 < width < _MAX_RATIO * height < _MAX_RATIO**2 * width:
        raise DocumentError(f"the PDF has a page of {width:g} x {height:g} points, which cannot be drawn")
    scale = longest / max(width, height)
    return max(1, round(height * scale)), max(1, round(width * scale))

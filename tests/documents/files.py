"""Files that tests read: PDF written by hand, and office files."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def pdf_of(objects: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """A PDF of these objects, numbered from 1, of which the first is the catalog."""
    out, starts = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        starts.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % start for start in starts)
    size = len(objects) + 1
    end = b"trailer<</Size %d/Root 1 0 R%b>>\nstartxref\n%d\n%%%%EOF" % (size, trailer, len(out))
    return out + b"xref\n0 %d\n0000000000 65535 f \n%b" % (size, table) + end


def stream(data: bytes, entries: bytes = b"") -> bytes:
    """A stream object."""
    return b"<<%b/Length %d>>stream\n%b\nendstream" % (entries, len(data), data)


def pdf(*texts: str, size: tuple[int, int] = (612, 792)) -> bytes:
    """A PDF with a page for each text; pages of empty texts have a gray box alone, as scans do."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * i) for i in range(len(texts)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[%b]/Count %d>>" % (kids, len(texts)),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for i, text in enumerate(texts):
        page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 %d %d]/Resources<</Font<</F1 3 0 R>>>>/Contents %d 0 R>>"
        objects.append(page % (*size, 5 + 2 * i))
        lines = b" 0 -14 Td ".join(b"(%b) Tj" % line.encode("latin-1") for line in text.split("\n"))
        drawn = b"BT /F1 12 Tf 40 %d Td %b ET" % (size[1] - 40, lines) if text else b"0.5 g 10 10 50 50 re f"
        objects.append(stream(drawn))
    return pdf_of(objects)


def archive(members: Mapping[str, str | bytes]) -> bytes:
    """A compressed archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return out.getvalue()


def docx(body: str) -> bytes:
    """A DOCX file with this XML as its body."""
    return archive({"word/document.xml": f'<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>'})

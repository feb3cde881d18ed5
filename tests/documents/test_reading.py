"""Text of files of all kinds, and errors that say what to do for all others."""

from __future__ import annotations

import io

import pytest

from localai_shim.documents import Document, DocumentError, document, read_document, reading

from .files import archive, docx, pdf

TEXTS = {
    "notes.txt": "Grüße, 世界\n",
    "README.md": "# Title\n\n* one",
    "table.csv": "a,b\r\n1,2\r\n",
    "data.json": '{"a": [1, 2]}',
    "main.py": "def f() -> int:\n\treturn 1\n",
    "page.xml": "<?xml version='1.0'?><a>b</a>",
    "colors.log": "\x1b[31mred\x1b[0m",
}


def refused(data: bytes, filename: str | None = None, media_type: str | None = None) -> str:
    with pytest.raises(DocumentError) as caught:
        read_document(data, filename, media_type)
    assert not str(caught.value).endswith(".")
    return str(caught.value)


@pytest.mark.parametrize("name", TEXTS)
def test_text_is_read_as_it_is(name: str) -> None:
    assert read_document(TEXTS[name].encode(), name, None) == Document((TEXTS[name],))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks_say_the_encoding_and_are_no_text(encoding: str) -> None:
    assert read_document("Grüße".encode(encoding), None, None).text == "Grüße"


def test_utf16_of_the_other_byte_order_is_read() -> None:
    assert read_document(b"\xfe\xff" + "Grüße".encode("utf-16-be"), None, None).text == "Grüße"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"a\x00b", "UTF-8"),
        ("Grüße".encode("latin-1"), "UTF-8"),
        (b"\xff\xfea", "UTF-8"),  # half a character of UTF-16
        (b"\x89PNG\r\n\x1a\n" + b"\x00" * 20, "image"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 20, "old office program"),
        (archive({"a.txt": "text"}), "an archive"),
        (b"PK\x03\x04 nothing", "broken"),
        (b"ID3\x04\x00" + b"\xff" * 20, "sound"),
    ],
)
def test_files_of_unsupported_kinds_are_refused_with_a_reason(data: bytes, says: str) -> None:
    assert says in refused(data, "file.bin")


def test_files_and_texts_have_a_maximum_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_DOCUMENT_BYTES", 2 << 20)
    assert "2 MiB" in refused(b"a" * (2 << 20) + b"a")
    with pytest.raises(DocumentError, match="more than 10 characters"):
        document.Characters(10).add(11)


def test_text_over_the_limit_of_characters_is_refused() -> None:
    assert "10000000 characters" in refused(b"a" * 10_000_001)


HTML = """<!DOCTYPE html><html><head><title>The title</title><style>p { color: red }</style>
<script>if (a < b) { alert("no") }</script></head><body><!-- not shown -->
<h1>A  heading</h1><p>One &amp; <b>two</b>
three<br>four</p><ul><li>first</li><li>second</li></ul>
<table><tr><td>1</td><td>2</td></tr><tr><td>3</td><td>4</td></tr></table>
<pre>  kept
    as it is</pre><template>hidden <p>too</p></template><noscript>off</noscript></body></html>"""
VISIBLE = "The title\n\nA heading\n\nOne & two three\nfour\n\nfirst\nsecond\n\n1\t2\n3\t4\n\n  kept\n    as it is"


@pytest.mark.parametrize(
    ("filename", "media_type"), [("a.HTML", None), (None, "text/html; charset=utf-8"), (None, None)]
)
def test_web_pages_are_their_visible_text(filename: str | None, media_type: str | None) -> None:
    assert read_document(HTML.encode(), filename, media_type).text == VISIBLE


def test_source_code_that_contains_tags_stays_source_code() -> None:
    assert read_document(HTML.encode(), "page.j2", None).text == HTML
    assert read_document(HTML.encode(), None, "text/x-jinja").text == HTML


def test_unclosed_tags_hide_no_text() -> None:
    assert read_document(b"<p>one<div>two<b>three</i></div></div>four", "a.html", None).text == "one\ntwothree\nfour"


def test_paragraphs_tables_and_breaks_of_docx_are_read() -> None:
    body = (
        "<w:p><w:r><w:t>One</w:t><w:tab/><w:t>two</w:t></w:r></w:p><w:p><w:r><w:t>A &amp; B</w:t><w:br/>"
        "<w:t>C</w:t></w:r></w:p><w:tbl><w:tr><w:tc><w:p><w:r><w:t>x</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r>"
        "<w:t>y</w:t></w:r></w:p></w:tc></w:tr></w:tbl><w:p><w:r><w:delText>gone</w:delText></w:r></w:p>"
    )
    assert read_document(docx(body), "a.docx", None) == Document(("One\ttwo\nA & B\nC\nx\ty",))


def test_slides_of_pptx_are_pages_in_their_order() -> None:
    def slide(text: str) -> str:
        return f'<p:sld xmlns:p="p" xmlns:a="a"><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:sld>'

    members = {f"ppt/slides/slide{i}.xml": slide(f"Slide {i}") for i in (10, 2, 1)}
    assert read_document(archive(members), None, None).pages == ("Slide 1", "Slide 2", "Slide 10")


def test_sheets_of_xlsx_are_pages_with_tabs_between_cells() -> None:
    strings = '<sst xmlns="s"><si><t>name</t></si><si><r><t>to</t></r><r><t>tal</t></r></si></sst>'
    rows = (
        '<row><c r="A1" t="s"><v>0</v></c><c r="C1" t="s"><v>1</v></c></row>'
        '<row><c r="A2" t="inlineStr"><is><t>x</t></is></c><c r="B2"><f>1+1</f><v>2</v></c></row>'
    )
    sheet = f'<worksheet xmlns="s"><sheetData>{rows}</sheetData></worksheet>'
    found = read_document(archive({"xl/worksheets/sheet1.xml": sheet, "xl/sharedStrings.xml": strings}), None, None)
    assert found.pages == ("name\t\ttotal\nx\t2",)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (docx("<w:p>"), "broken"),
        (archive({"word/document.xml": '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'}), "document type"),
        (archive({"xl/worksheets/sheet1.xml": '<a><row><c t="s"><v>7</v></c></row></a>'}), "cannot be read"),
        (archive({"word/document.xml": b" " * (70 << 20)}), "unpacks to more than 64 MiB"),
        (docx("<w:p><w:t>" + "a" * 10_000_001 + "</w:t></w:p>"), "characters"),
    ],
    ids=["broken", "entities", "index", "bomb", "long"],
)
def test_broken_and_huge_office_files_are_refused(data: bytes, says: str) -> None:
    assert len(data) < 1 << 20
    assert says in refused(data, "a.docx")


def test_names_of_files_do_not_decide_their_kind() -> None:
    assert read_document(pdf("text"), "a.txt", "text/plain").text == "text"
    assert read_document(b"text", "a.pdf", "application/pdf").text == "text"


def test_pages_are_joined_by_empty_lines_and_blank_ones_are_no_text() -> None:
    assert Document(("one", "two")).text == "one\n\ntwo"
    assert [Document(pages).has_text for pages in ((), ("", " \n"), ("", "a"))] == [False, False, True]


def test_reading_needs_no_open_file() -> None:
    assert read_document(io.BytesIO(b"text").getvalue(), None, None).pages == ("text",)

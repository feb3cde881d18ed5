"""Visible text of a web page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from .time_limit import TimeLimit

_HIDDEN = {"script", "style", "template", "noscript", "svg", "iframe", "canvas"}
_BLOCKS = {
    *("address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details", "dialog", "div", "dl"),
    *("dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header"),
    *("hr", "html", "li", "main", "nav", "ol", "p", "pre", "section", "summary", "table", "title", "tr", "ul"),
}
_PARAGRAPHS = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "table", "pre", "blockquote", "title"}
_CELLS = {"td", "th"}
_SPACE = re.compile(r"[ \t\n\r\f\v]+")
# Characters that no text contains, until the end of the page is known.
_LINE, _PARAGRAPH, _KEPT = "\x01", "\x02", "\x03"
_BREAKS = re.compile(rf"[ \t]*[{_LINE}{_PARAGRAPH}][ \t{_LINE}{_PARAGRAPH}]*")
_PIECE_CHARACTERS = 1 << 15


def visible_text(html: str, limit: TimeLimit) -> str:
    """Text that a browser shows: no scripts, styles, comments, or tags; a line for each block, a tab between cells.

    Raises:
        DocumentError: it takes longer than the limit.
    """
    reader = _Reader()
    for start in range(0, len(html), _PIECE_CHARACTERS):
        limit.check()
        reader.feed(html[start : start + _PIECE_CHARACTERS])
    reader.close()
    return reader.text()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._hidden: list[str] = []  # open elements whose text is not shown
        self._preformatted = 0

    def text(self) -> str:
        text = _BREAKS.sub(lambda found: "\n\n" if _PARAGRAPH in found[0] else "\n", "".join(self._parts))
        return text.strip().replace(_KEPT, "")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden.append(tag)
        elif tag in _CELLS:
            self._parts.append("\t")
        elif tag in _BLOCKS:
            self._parts.append(_PARAGRAPH if tag in _PARAGRAPHS else _LINE)
        if tag == "pre":
            self._preformatted += 1
            self._parts.append(_KEPT)  # before the spaces of its first line

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCKS:
            self._parts.append(_LINE)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            while self._hidden.pop() != tag:
                pass
        elif tag in _BLOCKS:
            self._parts.append(_PARAGRAPH if tag in _PARAGRAPHS else _LINE)
        if tag == "pre":
            self._preformatted = max(0, self._preformatted - 1)

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._parts.append(data if self._preformatted else _SPACE.sub(" ", data))

"""Text of a file, its limits, and the error for files that have none."""

from __future__ import annotations

from dataclasses import dataclass

MAX_DOCUMENT_BYTES = 64 << 20
"""Maximum size of a file. OpenAI takes 50 MB."""
MAX_CHARACTERS = 10_000_000
"""Maximum number of characters of a file's text: several times the context of any model."""
MAX_PAGES = 2000
"""Maximum number of pages, slides, or sheets."""


class DocumentError(ValueError):
    """A file whose text cannot be read. The message is a clause without a full stop, and says what to do."""


@dataclass(frozen=True, slots=True)
class Document:
    """Text of a file."""

    pages: tuple[str, ...]
    """The text of each page, slide, or sheet; a single one for files without pages."""
    is_pdf: bool = False
    """True if the file is a PDF, whose pages can be drawn, too."""

    @property
    def text(self) -> str:
        """All pages, with an empty line between two of them."""
        return "\n\n".join(self.pages)

    @property
    def has_text(self) -> bool:
        """False for scans and empty files."""
        return any(page and not page.isspace() for page in self.pages)


class Characters:
    """Counter of the characters that were read so far.

    Args:
        limit: maximum number of characters.
    """

    def __init__(self, limit: int = MAX_CHARACTERS) -> None:
        self._limit, self._count = limit, 0

    def add(self, count: int) -> None:
        """Count more characters.

        Raises:
            DocumentError: there are too many.
        """
        self._count += count
        if self._count > self._limit:
            raise DocumentError(f"its text has more than {self._limit} characters; split the file")

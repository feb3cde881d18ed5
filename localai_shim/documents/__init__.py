"""Text and pages of files: plain text of all sorts, HTML, PDF, and the XML formats of office programs.

`read_document` is the way in. It knows nothing of prompts, requests, or models.
"""

from .document import Document, DocumentError
from .reading import read_document

__all__ = ["Document", "DocumentError", "read_document"]

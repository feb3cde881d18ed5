"""The endpoints of vector stores."""

from __future__ import annotations

from collections.abc import Callable

from . import file_batches, store_files, stores

_STORE, _ID = "/vector_stores/([^/]+)", "/([^/]+)"
_FILES, _BATCHES = f"{_STORE}/files", f"{_STORE}/file_batches"

ROUTES: tuple[tuple[str, str, Callable[..., object]], ...] = (
    ("post", "/vector_stores", stores.create),
    ("get", "/vector_stores", stores.list_stores),
    ("get", _STORE, stores.retrieve),
    ("post", _STORE, stores.update),
    ("delete", _STORE, stores.delete),
    ("post", f"{_STORE}/search", stores.search),
    ("post", _FILES, store_files.create),
    ("get", _FILES, store_files.list_files),
    ("get", _FILES + _ID, store_files.retrieve),
    ("post", _FILES + _ID, store_files.update),
    ("delete", _FILES + _ID, store_files.delete),
    ("get", f"{_FILES}{_ID}/content", store_files.content),
    ("post", _BATCHES, file_batches.create),
    ("get", _BATCHES + _ID, file_batches.retrieve),
    ("post", f"{_BATCHES}{_ID}/cancel", file_batches.cancel),
    ("get", f"{_BATCHES}{_ID}/files", file_batches.list_files),
)
"""(method, pattern of paths, handler), where handlers take the client's `Library` first."""

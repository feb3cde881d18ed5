"""The hook that serves the tool `file_search` from the client's own vector stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..served import ServedModel
    from .library import Library, Result

CONTEXT_SHARE = 0.5
"""Share of the model's context that the results of one search may take."""
_RESULT_TOKENS = 16  # around a text


class FileSearchHook:
    """Searches vector stores for a model.

    Args:
        library: returns the client's vector stores.
        reader: the model that reads what is found; None: there is none yet.
    """

    def __init__(self, library: Callable[[], Library], reader: ServedModel | None = None) -> None:
        self._library, self._reader = library, reader

    def for_model(self, reader: ServedModel) -> FileSearchHook:
        """The same hook, whose results fit into a model's context."""
        return FileSearchHook(self._library, reader)

    def check(self, options: Mapping[str, object], path: str) -> None:
        """Refuse vector stores that are not there, or that have expired.

        Args:
            options: of the tool.
            path: of the tool in the request.

        Raises:
            BadRequest: one has expired.
            NotFound: there is no such vector store.
        """
        self._check(self._library(), options, path)

    def __call__(self, query: str, **options: object) -> list[dict[str, object]]:
        """Results of a query, the best first. May wait for the model that embeds the query."""
        from .fields import MAX_QUERY, read_wanted

        library = self._library()
        ids = self._check(library, options, "tools")
        return [
            {
                "file_id": each.file_id,
                "filename": each.filename,
                "text": each.text,
                "score": each.score,
                "attributes": each.attributes,
            }
            for each in self._fitting(library.search(ids, [query[:MAX_QUERY]], read_wanted(options)))
            if query.strip()
        ]

    @staticmethod
    def _check(library: Library, options: Mapping[str, object], path: str) -> list[str]:
        from ...errors import NotFound

        ids = options["vector_store_ids"]
        assert isinstance(ids, list)
        for i, id in enumerate(ids):
            at = f"{path}.vector_store_ids[{i}]"
            try:
                library.use(id, library.find_usable(id, at))
            except NotFound as error:
                raise NotFound(error.message, param=at, code=error.code) from None
        return ids

    def _fitting(self, found: Sequence[Result]) -> list[Result]:
        """The best results that leave half of the context free; at least one."""
        reader = self._reader
        if reader is None or reader.context_length is None:
            return list(found)
        left = reader.context_length * CONTEXT_SHARE
        kept: list[Result] = []
        for each in found:
            left -= len(reader.tokenizer.encode_bare(each.text)) + _RESULT_TOKENS
            if kept and left < 0:
                break
            kept.append(each)
        return kept

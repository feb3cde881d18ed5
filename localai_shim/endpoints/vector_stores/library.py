"""The vector stores of a client: what is stored, what embeds files, and searches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...errors import BadRequest, NotFound
from ...state.store import Json, Store
from ...state.vector_search import Searched, read_chunks, searched_files, with_words
from ...state.vectors import Held, Vectors
from ...threads.deadline import check
from .. import files as uploaded
from ..request_fields import now
from .embedder import Open
from .fields import Wanted, expires_at
from .ingestion import MODEL, Ingestion
from .matrices import Matrices
from .ranking import MOST_CANDIDATES, Ranking, by_similarity, fused

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

NewFile = tuple[str, Json]
"""Id and stored form of a file that is to be embedded."""
OWNER = "owner"
"""Field of a stored batch that is not shown: name of the client that has made it."""
ACTIVE_SECONDS = 60
"""After which a search notes again that a vector store is used."""


class Result(NamedTuple):
    """A chunk that was found."""

    file_id: str
    filename: str
    attributes: Json | None
    score: float
    text: str


class Library:
    """The vector stores of a client and its copies.

    Args:
        store: keeps files and vector stores.
        open: waits for the model that embeds.
        model: its name.
        owner: name of this client in the store.
        is_alive: says whether an owner still works.
    """

    def __init__(self, store: Store, open: Open, *, model: str, owner: str, is_alive: Callable[[str], bool]) -> None:
        self.store, self._open = store, open
        self.vectors = Vectors(store)
        self._matrices = Matrices(self.vectors)
        self.ingestion = Ingestion(self.vectors, open, model=model, owner=owner, is_alive=is_alive)

    def find(self, id: str) -> Held:
        """A vector store. The files of one that has expired are removed.

        Raises:
            NotFound: there is none.
        """
        held = self.vectors.get(id)
        if held is None:
            raise unknown_store(id)
        if has_expired(held.body) and any(held.counts.values()):
            self.vectors.empty(id)
            held = self.vectors.get(id)
            if held is None:
                raise unknown_store(id)
        return held

    def find_usable(self, id: str, path: str = "vector_store_id") -> Held:
        """A vector store that has not expired.

        Raises:
            BadRequest: it has expired.
            NotFound: there is none.
        """
        held = self.find(id)
        if has_expired(held.body):
            raise BadRequest(f"The vector store '{id}' has expired.", param=path, code="vector_store_expired")
        return held

    def new_file(self, file_id: str, path: str, strategy: Json, attributes: Json | None) -> NewFile:
        """A file that is to be embedded.

        Args:
            path: of its id in the request.

        Raises:
            NotFound: it was not uploaded.
        """
        try:
            file = uploaded.find(self.store, file_id)
        except NotFound as error:
            raise NotFound(error.message, param=path, code=error.code) from None
        body: Json = {
            "id": file_id,
            "created_at": now(),
            "filename": file["filename"],
            "last_error": None,
            "attributes": attributes,
            "chunking_strategy": strategy,
            MODEL: self.ingestion.model,
        }
        return file_id, body

    def file(self, id: str, file_id: str) -> Json | None:
        """A file of a vector store. One whose process has ended is embedded here, or has failed."""
        body = self.vectors.file(id, file_id)
        if body is not None and body["owner"] not in (None, self.ingestion.owner):
            self.ingestion.resume()
            body = self.vectors.file(id, file_id)
        return body

    def batch(self, id: str, batch_id: str) -> Held | None:
        """A batch of files. Those whose process has ended are embedded here, or have failed."""
        held = self.vectors.batch(id, batch_id)
        if held is not None and held.counts["in_progress"] and held.body.get(OWNER) != self.ingestion.owner:
            self.ingestion.resume()
            held = self.vectors.batch(id, batch_id)
        return held

    def use(self, id: str, held: Held) -> None:
        """Note that a vector store is used now."""
        if held.body["last_active_at"] + ACTIVE_SECONDS <= now():
            self.vectors.update(id, lambda body: {**body, "last_active_at": now()})

    def search(self, ids: Sequence[str], queries: Sequence[str], wanted: Wanted) -> list[Result]:
        """Chunks of the files of vector stores, the best first.

        Args:
            ids: of vector stores that are there.

        Raises:
            BadRequest: another model has embedded some of the files.
            EngineError: the model that embeds failed.
        """
        files = searched_files(self.vectors, ids)
        if wanted.passes is not None:
            files = {seq: file for seq, file in files.items() if wanted.passes(file.body["attributes"] or {})}
        if not files:
            return []
        opened = self._open(check)
        for file in files.values():
            if file.model != opened.name:
                raise _other_model(file.file_id, file.model, opened.name)
        numbers, similarities = self._similarities(ids, files, opened.queries(queries))
        if wanted.by_words:
            places = {number: place for place, number in enumerate(numbers)}
            rankings = []
            for query, row in zip(queries, similarities, strict=True):
                hits = with_words(self.vectors, ids, query, files, max(MOST_CANDIDATES, wanted.most))
                rankings.append(Ranking(row, [places[hit] for hit in hits if hit in places]))
            best = fused(rankings, wanted.weights, wanted.most)
        else:
            best = by_similarity(similarities.max(axis=0), wanted.most) if numbers else []
        kept = [(numbers[place], score) for place, score in best if score >= wanted.least_score]
        found = read_chunks(self.vectors, [number for number, _ in kept])
        results = []
        for number, score in kept:
            if (chunk := found.get(number)) is not None:  # it may have been deleted meanwhile
                file = files[chunk.file]
                name, attributes = file.body["filename"], file.body["attributes"]
                results.append(Result(file.file_id, name, attributes, score, chunk.text))
        return results

    def _similarities(
        self, ids: Sequence[str], files: Mapping[int, Searched], queries: Floats
    ) -> tuple[list[int], Floats]:
        """Numbers of the chunks of files, and the cosine of each with each query: `[queries, chunks]`."""
        import numpy as np

        wanted = np.fromiter(files, np.int64, len(files))
        numbers: list[int] = []
        found: list[Floats] = [np.empty((len(queries), 0), np.float32)]
        for id in dict.fromkeys(ids):
            for matrix in self._matrices.read(id):
                kept = np.isin(matrix.files, wanted)
                numbers += matrix.numbers[kept].tolist()
                # One query at a time: `queries @ vectors.T` takes three times as long.
                found.append(np.stack([(matrix.vectors @ query)[kept] for query in queries]))
        return numbers, np.concatenate(found, axis=1)


def has_expired(body: Json) -> bool:
    """True if a vector store was not used for as long as it says."""
    at = expires_at(body)
    return at is not None and at <= now()


def unknown_store(id: str) -> NotFound:
    """The error for a vector store that is not there."""
    return NotFound(f"Vector store with id '{id}' not found.", param="vector_store_id", code="vector_store_not_found")


def _other_model(file_id: str, model: str | None, name: str) -> BadRequest:
    return BadRequest(
        f"The file '{file_id}' was embedded by another model ({model}) than this client's ({name}). Pass the other "
        "one as `embedding_model=` to the client, or add the file again.",
        param="vector_store_id",
        code="embedding_model_mismatch",
    )

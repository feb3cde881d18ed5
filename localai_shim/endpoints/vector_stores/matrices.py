"""Vectors of vector stores as matrices: reading 40 MB from SQLite takes ten times as long as multiplying them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ...state.vector_search import Extent, extent_of, read_blocks
from ...state.vectors import Vectors
from ...threads.cache import LRUCache

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_BYTES = 256 * 2**20
"""Maximum size of all matrices that are kept. A vector store that alone is larger is read for each search."""


class Matrix(NamedTuple):
    """Chunks of a vector store."""

    extent: Extent
    numbers: npt.NDArray[np.int64]
    files: npt.NDArray[np.int64]
    """Number of the file of each chunk."""
    vectors: npt.NDArray[np.float32]
    """`[chunks, dimensions]`."""

    @property
    def nbytes(self) -> int:
        return self.vectors.nbytes + self.numbers.nbytes + self.files.nbytes


class Matrices:
    """Matrices of the vector stores that were searched last. May be used from several threads."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors
        self._kept: LRUCache[Matrix] = LRUCache(MAX_BYTES, lambda matrix: matrix.nbytes)

    def read(self, id: str) -> Iterator[Matrix]:
        """The chunks of a vector store, in pieces that follow each other; none if there are no chunks.

        Vectors of another size than the newest one's are left out: they are of another model.
        """
        extent = extent_of(self._vectors, id)
        if not extent.chunks:
            return
        if extent.chunks * extent.bytes > MAX_BYTES:
            yield from self._pieces(id, extent)
            return
        kept = self._kept.get(id)
        if kept is None or kept.extent != extent:
            kept = self._renewed(id, extent, kept)
            self._kept.put(id, kept)
        yield kept

    def _renewed(self, id: str, extent: Extent, old: Matrix | None) -> Matrix:
        """The matrix with the chunks that were added, or a new one if some were removed."""
        if old is not None and old.extent.bytes == extent.bytes:
            pieces = [old, *self._pieces(id, extent, old.extent.last)]
            if sum(len(piece.numbers) for piece in pieces) == extent.chunks:
                return _joined(pieces, extent)
        return _joined([*self._pieces(id, extent)], extent)

    def _pieces(self, id: str, extent: Extent, last: int = -1) -> Iterator[Matrix]:
        import numpy as np

        for block in read_blocks(self._vectors, id, last):
            rows = [row for row in block if len(row[2]) == extent.bytes]
            numbers, files = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
            vectors = np.frombuffer(b"".join(row[2] for row in rows), "<f4").reshape(len(rows), extent.bytes // 4)
            yield Matrix(extent, numbers, files, vectors)


def _joined(pieces: list[Matrix], extent: Extent) -> Matrix:
    import numpy as np

    numbers, files, vectors = (np.concatenate([piece[i] for piece in pieces]) for i in (1, 2, 3))
    return Matrix(extent, numbers, files, vectors)

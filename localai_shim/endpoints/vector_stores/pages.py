"""Pages of vector stores and of their files, which can be read in both directions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ...errors import BadRequest, NotFound
from ...state.store import Json, Page
from ..fields import Fields
from ..paging import Query, list_object, read_paging, unknown_after


class Range(NamedTuple):
    """Part of a list that is wanted, in the order in which it is read."""

    start: str | None
    """Id of the object before the first one."""
    limit: int
    descending: bool
    is_backward: bool
    """The page ends before `start`: it is read from its end."""

    def page(self, data: Sequence[Json], has_more: bool) -> dict[str, object]:
        """The JSON of the page, of objects in the order in which they were read."""
        return list_object(Page([*reversed(data)] if self.is_backward else [*data], has_more))


def read_range(query: Query, others: Collection[str] = ()) -> Range:
    """Read `after`, `before`, `limit`, and `order` of a list, which is newest first by default.

    Raises:
        BadRequest: a parameter is wrong or unknown.
    """
    before = Fields(query).string("before")
    rest = {name: value for name, value in query.items() if name != "before"}
    paging = read_paging(rest, default_order="desc", others=others)
    if before is None:
        return Range(paging.after, paging.limit, paging.descending, False)
    if paging.after is not None:
        raise BadRequest.invalid("before", "Pass one of 'after' and 'before'.")
    return Range(before, paging.limit, not paging.descending, True)


def unknown_start(kind: str, wanted: Range) -> NotFound:
    """The error for a start that is not in the list. `kind` as it begins a sentence, such as 'File'."""
    error = unknown_after(kind, wanted.start)
    return NotFound(error.message, param="before" if wanted.is_backward else "after", code=error.code)

"""Lists that come in pages: `after`, `limit` and `order` of the query, a stored page, and its list object."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from ..errors import BadRequest, NotFound
from ..state.errors import MissingError
from ..state.store import Json, Kind, Page, Store
from .fields import Fields, as_integer

T = TypeVar("T")
Order = Literal["asc", "desc"]
Query = Mapping[str, object]
"""Parameters of a URL."""

_DEFAULT_LIMIT, _MAX_LIMIT = 20, 100


@dataclass(frozen=True, slots=True)
class Paging:
    """Part of a list that is wanted.

    Attributes:
        after: id of the last object of the page before; None: from the beginning.
        limit: most objects in the page.
        descending: newest first.
    """

    after: str | None
    limit: int
    descending: bool


def read_paging(
    query: Query,
    *,
    default_order: Order,
    others: Collection[str] = (),
    largest: int = _MAX_LIMIT,
    default: int = _DEFAULT_LIMIT,
) -> Paging:
    """Read the url parameters of a list.

    Args:
        query: the parameters; numbers may be text, as they are in a url.
        default_order: where the caller does not say.
        others: parameters that the endpoint reads besides.
        largest: the highest `limit`.
        default: `limit` where the caller does not say.

    Raises:
        BadRequest: a parameter is wrong or unknown.
    """
    fields = Fields(query)
    fields.refuse({"before": "Pass 'after' with the opposite 'order'."})
    check_query(query, ("after", "limit", "order", *others))
    order = fields.choice("order", ("asc", "desc")) or default_order
    limit = as_integer("limit", url_value(query.get("limit")), 1, largest)
    return Paging(fields.string("after"), limit or default, order == "desc")


def check_query(query: Query, known: Collection[str] = ()) -> None:
    """Refuse url parameters that the endpoint does not have; null means absent, `name[]` is `name`.

    Raises:
        BadRequest: there is one.
    """
    for name, value in query.items():
        if value is not None and name.removesuffix("[]") not in known:
            raise BadRequest.unknown_parameter(name, sorted(known), "has no parameters in the url")


def finish(fields: Fields, query: Query, known: Collection[str] = ()) -> None:
    """Refuse fields of the body that a handler has not read, and unknown parameters of the URL."""
    fields.finish()
    check_query(query, known)


def stored_list(
    store: Store, kind: Kind, paging: Paging, *, item: str, where: Callable[[Json], bool] | None = None
) -> Page:
    """A page of the stored objects of a kind.

    Args:
        where: selects those that are listed; None: all are.
        item: what the list holds, as it begins a sentence.

    Raises:
        NotFound: `after` is not in the list.
    """
    try:
        return store.list(kind, after=paging.after, limit=paging.limit, descending=paging.descending, where=where)
    except MissingError:
        raise unknown_after(item, paging.after) from None


def stored_page(
    store: Store, kind: Kind, id: str, part: str, paging: Paging, *, missing: Callable[[str], NotFound], item: str
) -> Page:
    """A page of what belongs to a stored object.

    Args:
        store: where.
        kind: the object's.
        id: the object's.
        part: which of its lists.
        paging: which page.
        missing: makes the error where there is no such object.
        item: what the list holds, as it begins a sentence.

    Raises:
        NotFound: there is no such object, or `after` is not in the list.
    """
    try:
        return store.page(kind, id, part, after=paging.after, limit=paging.limit, descending=paging.descending)
    except MissingError as error:
        raise (missing(id) if error.kind == kind else unknown_after(item, paging.after)) from None


def found(body: T | None, missing: NotFound) -> T:
    """Object that the store has, or else the error for its absence."""
    if body is None:
        raise missing
    return body


def list_object(page: Page) -> dict[str, object]:
    """The JSON of a page. An empty one has null ids, as OpenAI's have."""
    ids = [item.get("id") for item in page.data] or [None]
    return {
        "object": "list",
        "data": page.data,
        "first_id": ids[0],
        "last_id": ids[-1],
        "has_more": page.has_more,
    }


def unknown_after(kind: str, after: str | None) -> NotFound:
    """The error for an `after` that is not in the list. `kind` as it begins a sentence, such as 'Item'."""
    return NotFound(f"{kind} with id '{after}' not found.", param="after", code=f"{kind.split()[-1].lower()}_not_found")


def url_value(value: object) -> object:
    """A parameter's value: in a url, numbers and booleans are text."""
    if not isinstance(value, str):
        return value
    if value in ("true", "false"):
        return value == "true"
    try:
        return int(value)
    except ValueError:
        return value

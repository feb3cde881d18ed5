"""Fields that requests about vector stores have in common, untrusted."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ...errors import BadRequest
from ...prompt.messages import encodable
from ...types import Json
from ..fields import Fields, as_number, as_strings
from ..request_fields import read_metadata
from .filters import Filter, read_filter
from .ranking import EVEN, Weights

MAX_FILES = 2000  # of a batch
MAX_RESULTS = 50
DEFAULT_RESULTS: Final = 10
MAX_QUERY = 4096  # characters
AUTO: Json = {"type": "static", "static": {"max_chunk_size_tokens": 800, "chunk_overlap_tokens": 400}}
_SECONDS = 24 * 3600
_RANKER = re.compile(r"default[-_]\d{4}[-_]\d{2}[-_]\d{2}")


class Wanted(NamedTuple):
    """Results that a search wants."""

    most: int = DEFAULT_RESULTS
    least_score: float = 0.0
    by_words: bool = True
    """Chunks are ranked by their words, too."""
    weights: Weights = EVEN
    passes: Filter | None = None
    """Selects files by their attributes."""


def read_wanted(options: Mapping[str, object], path: str = "") -> Wanted:
    """`max_num_results`, `ranking_options`, and `filters` of a search or a tool; reads no other fields.

    Raises:
        BadRequest: with the path of what is wrong.
    """
    fields = Fields(options, path)
    most = fields.integer("max_num_results", 1, MAX_RESULTS) or DEFAULT_RESULTS
    passes = read_filter(fields.get("filters"), fields.at("filters")) if fields.has("filters") else None
    with fields.inner("ranking_options") as inner:
        ranker = inner.string("ranker")
        if ranker not in (None, "auto", "none") and not _RANKER.fullmatch(ranker):
            raise BadRequest.unknown_value(inner.at("ranker"), ranker, ("auto", "none", "default-2024-11-15"))
        least = inner.number("score_threshold", 0, 1) or 0.0
        weights = _read_weights(inner)
    return Wanted(most, least, ranker != "none", weights, passes)


def _read_weights(fields: Fields) -> Weights:
    if not fields.has("hybrid_search"):
        return EVEN
    with fields.inner("hybrid_search") as inner:
        read = [
            as_number(inner.at(name), inner.require(name), 0, 1e6) or 0.0
            for name in ("embedding_weight", "text_weight")
        ]
    if not any(read):
        raise BadRequest.refused(fields.at("hybrid_search"), "one of the weights must be above 0")
    return Weights(*read)


def read_queries(fields: Fields) -> list[str]:
    """`query`: a string or strings, none of which is empty."""
    value = fields.require("query")
    if isinstance(value, str):
        queries, paths = [encodable(value, "query")], ["query"]
    else:
        queries = as_strings("query", value, "one of a string or an array of strings", empty=False, most=MAX_RESULTS)
        paths = [f"query[{i}]" for i in range(len(queries))]
    for path, query in zip(paths, queries, strict=True):
        if not query.strip():
            raise BadRequest.empty_string(path)
        if len(query) > MAX_QUERY:
            raise BadRequest.long_string(path, MAX_QUERY, len(query))
    return queries


def read_strategy(fields: Fields) -> Json:
    """`chunking_strategy`; `auto` is the static one with 800 tokens and an overlap of 400."""
    if not fields.has("chunking_strategy"):
        return AUTO
    inner = fields.inner("chunking_strategy")
    kind = inner.option("type", ("auto", "static"))
    if kind == "auto":
        inner.finish()
        return AUTO
    inner.require("static")
    with inner.inner("static") as static:
        inner.finish()
        names = ("max_chunk_size_tokens", "chunk_overlap_tokens")
        for name in names:
            static.require(name)
        size, overlap = static.integer(names[0], 100, 4096), static.integer(names[1], 0)
    assert size is not None and overlap is not None
    if overlap > size // 2:
        why = f"the overlap, {overlap}, must not exceed half of 'max_chunk_size_tokens', {size}"
        raise BadRequest.refused(static.at(names[1]), why, "integer_above_max_value")
    return {"type": "static", "static": dict(zip(names, (size, overlap), strict=True))}


def read_attributes(fields: Fields) -> Json | None:
    """`attributes`: at most 16 strings of at most 512 characters, numbers, or booleans, under keys of at most 64."""
    path, given = fields.at("attributes"), fields.mapping("attributes")
    if given is None:
        return None
    strings = {name: value for name, value in given.items() if isinstance(value, str)}
    others = {name: value for name, value in given.items() if name not in strings}
    texts: dict[object, object] = {name: "" if name in others else value for name, value in given.items()}
    try:
        read_metadata(Fields({"metadata": texts}))  # which has the same limits
    except BadRequest as error:
        message = error.message.replace("'metadata", f"'{path}", 1)
        raise BadRequest(message, param=(error.param or "").replace("metadata", path, 1), code=error.code) from None
    for name, value in others.items():
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise BadRequest.wrong_type(f"{path}.{name}", "one of a string, a number, or a boolean", value)
    return given


def read_expiry(fields: Fields) -> Json | None:
    """`expires_after`: days, from 1 to 365, after the vector store was last used."""
    if not fields.has("expires_after"):
        return None
    with fields.inner("expires_after") as inner:
        inner.option("anchor", ("last_active_at",))
        inner.require("days")
        days = inner.integer("days", 1, 365)
    return {"anchor": "last_active_at", "days": days}


def expires_at(body: Json) -> int | None:
    """When a vector store expires, in seconds since 1970; None: never."""
    expiry = body.get("expires_after")
    return None if expiry is None else int(body["last_active_at"]) + int(expiry["days"]) * _SECONDS

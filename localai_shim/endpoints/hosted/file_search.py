"""`file_search`: the client's vector stores are searched, or the hook gets a query and returns passages of files."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from ...types import Json
from ..fields import Fields, as_strings, given
from ..vector_stores.fields import read_wanted
from .kind import BadResultError, Kind, Names, Options, Outcome, as_list, text_of, value_of, written

RESULTS = "file_search_call.results"
MAX_STORES = 16
_ANY = 1e308
_GONE = "The results of this search are not available any more."
_TEXTS = ("file_id", "filename", "text")


class FileSearch(Kind):
    """Searches in files that answers make."""

    name = "file_search"
    method = "search"
    types = ("file_search",)
    names = Names("file_search_call", "fs", "searching")
    description = (
        "Search the files. Returns passages with the name of their file. Name the file of each passage that your "
        "answer is based on."
    )
    argument = "query"
    about_argument = "The search query."
    hints = ("max_num_results", "ranking_options", "vector_store_ids")

    def read_options(self, fields: Fields) -> dict[str, object]:
        ids = as_strings(
            fields.at("vector_store_ids"), fields.require("vector_store_ids"), empty=False, most=MAX_STORES
        )
        read: dict[str, object] = {
            "vector_store_ids": ids,
            "max_num_results": fields.get("max_num_results"),
            "ranking_options": fields.mapping("ranking_options"),
            "filters": fields.mapping("filters"),
        }
        read_wanted(read, fields.path)
        return read

    def outcome(self, returned: object) -> Outcome:
        found = [_result(each) for each in as_list(returned, "what 'file_search' returns")]
        return Outcome(written([{"filename": each["filename"], "text": each["text"]} for each in found]), found)

    def item_fields(self, argument: str, options: Options, found: Sequence[Json], include: Collection[str]) -> Json:
        return {"queries": [argument], "results": list(found) if found and RESULTS in include else None}

    def citations(self, text: str, found: Sequence[Json]) -> list[Json]:
        """`file_citation` annotations, one behind each place that names a file that was found."""
        ids = {each["filename"]: each["file_id"] for each in reversed(found) if each["filename"]}
        if not ids:
            return []
        names = "|".join(re.escape(name) for name in sorted(ids, key=len, reverse=True))
        return [
            {"type": "file_citation", "file_id": ids[match[0]], "filename": match[0], "index": match.end()}
            for match in re.finditer(rf"(?<![\w/.-])(?:{names})(?![\w-]|\.\w)", text)
        ]

    def read_item(self, fields: Fields) -> Json:
        queries = fields.get("queries")
        results = None
        if fields.has("results"):
            results = [
                _sent_back(Fields(each, f"{fields.at('results')}[{i}]"))
                for i, each in enumerate(fields.array("results"))
            ]
        return {"queries": [] if queries is None else as_strings(fields.at("queries"), queries), "results": results}

    def asked(self, item: Json) -> str:
        return next(iter(item.get("queries") or ()), "")

    def found_in(self, item: Json) -> list[Json]:
        return [each for each in item.get("results") or () if each.get("file_id") and each.get("filename")]

    def shown_output(self, item: Json) -> str:
        found = item.get("results")
        return written([given(**{name: each.get(name) for name in _TEXTS[1:]}) for each in found]) if found else _GONE


def _result(returned: object) -> Json:
    what = "a result of 'file_search'"
    score, attributes = value_of(returned, "score"), value_of(returned, "attributes")
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
        raise BadResultError(f"{what} must have 'score', a number, not {score!r}")
    if attributes is not None and not isinstance(attributes, Mapping):
        raise BadResultError(f"{what} must have 'attributes', a mapping, not {attributes!r}")
    return {
        "file_id": text_of(returned, "file_id", what, otherwise=""),
        "filename": text_of(returned, "filename", what),
        "text": text_of(returned, "text", what),
        "score": score,
        "attributes": dict(attributes or {}),
    }


def _sent_back(fields: Fields) -> Json:
    read = given(**{name: fields.string(name) for name in _TEXTS}, score=fields.number("score", -_ANY, _ANY))
    read["attributes"] = fields.mapping("attributes") or {}
    fields.finish()
    return read

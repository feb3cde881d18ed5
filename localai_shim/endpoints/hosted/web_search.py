"""`web_search`: the hook gets a query, and returns pages."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace

from ...formats.values import json_or_text
from ...types import Json, SearchResult
from ..fields import Fields, as_strings, given
from .kind import HostedTool, Kind, Names, Options, Outcome, as_list, text_of, written

CHAT_FIELD = "web_search_options"
"""Field of chat.completions."""
SOURCES, RESULTS = "web_search_call.action.sources", "web_search_call.results"
_SIZES = ("low", "medium", "high")
_PLACE = ("type", "city", "country", "region", "timezone")
_RESULT = ("url", "title", "text")
_GONE = "The results of this search are not available any more."


class WebSearch(Kind):
    """Searches that answers make."""

    name = "web_search"
    method = "search"
    types = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11")
    shown_types = dict.fromkeys(types[:2], types[2])
    names = Names("web_search_call", "ws", "searching")
    description = (
        "Search the web. Returns pages with their URL, title, and text. Name the URL of each page that your answer is "
        "based on."
    )
    argument = "query"
    about_argument = "The search query."
    hints = ("search_context_size", "user_location", "search_content_types")

    def read_options(self, fields: Fields) -> dict[str, object]:
        kinds = fields.get("search_content_types")
        return {
            "search_context_size": fields.choice("search_context_size", _SIZES),
            "user_location": _strings(fields, "user_location", _PLACE),
            "filters": _filters(fields),
            "external_web_access": fields.boolean("external_web_access"),
            "search_content_types": kinds and as_strings(fields.at("search_content_types"), kinds),
        }

    def outcome(self, returned: object) -> Outcome:
        what = "a result of 'web_search'"
        results = [
            SearchResult(text_of(each, "url", what), *(text_of(each, name, what, otherwise="") for name in _RESULT[1:]))
            for each in as_list(returned, "what 'web_search' returns")
        ]
        found: list[Json] = [asdict(each) for each in results]
        return Outcome(written(found), found)

    def item_fields(self, argument: str, options: Options, found: Sequence[Json], include: Collection[str]) -> Json:
        action: Json = {"type": "search", "query": argument, "queries": [argument]}
        if found and SOURCES in include:
            action["sources"] = [{"type": "url", "url": url} for url in dict.fromkeys(each["url"] for each in found)]
        return {"action": action, **({"results": list(found)} if found and RESULTS in include else {})}

    def citations(self, text: str, found: Sequence[Json]) -> list[Json]:
        """`url_citation` annotations, one for each place that names the URL of a page that was found."""
        titles = {each["url"]: each["title"] for each in reversed(found) if each["url"]}
        if not titles:
            return []
        urls = "|".join(re.escape(url) for url in sorted(titles, key=len, reverse=True))
        return [
            {"type": "url_citation", "url": match[0], "title": titles[match[0]], **_span(match)}
            for match in re.finditer(rf"(?:{urls})(?![\w%=&#/~+-]|[.?:@][\w%])", text)
        ]

    def read_item(self, fields: Fields) -> Json:
        if not fields.has("action"):  # as some programs send it back
            return {"action": {"type": "search", "query": "", "queries": []}}
        with fields.inner("action") as inner:
            kind = inner.option("type", ("search", "open_page", "find_in_page", "find"))
            action: Json = {"type": kind, **given(**{name: inner.string(name) for name in ("query", "url", "pattern")})}
            if inner.has("queries"):
                action["queries"] = as_strings(inner.at("queries"), inner.get("queries"))
            if inner.has("sources"):
                action["sources"] = _each(inner, "sources", ("type", "url", "name"))
        return {"action": action, **({"results": _each(fields, "results", _RESULT)} if fields.has("results") else {})}

    def asked(self, item: Json) -> str:
        action = item["action"]
        asked = (action.get("query"), *action.get("queries", ()), action.get("pattern"), action.get("url"))
        return next(filter(None, asked), "")

    def found_in(self, item: Json) -> list[Json]:
        found = item.get("results") or json_or_text(item.get("output") or "") or item["action"].get("sources")
        pages = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
        return [{"url": page["url"], "title": str(page.get("title") or "")} for page in pages if _has_url(page)]

    def shown_output(self, item: Json) -> str:
        found = item.get("results") or item["action"].get("sources")
        return written(found) if found else _GONE


def read_search(fields: Fields) -> HostedTool | None:
    """`web_search_options` of chat.completions, whose search has the same options as that of Responses.

    Raises:
        BadRequest: with the path of what is wrong.
    """
    if not fields.has(CHAT_FIELD):
        return None
    with fields.inner(CHAT_FIELD) as inner:
        given: Json = {"type": WebSearch.name, "search_context_size": inner.choice("search_context_size", _SIZES)}
        if inner.has("user_location"):
            with inner.inner("user_location") as place:
                place.option("type", ("approximate",))
                place.require("approximate")
                given["user_location"] = {"type": "approximate", **(_strings(place, "approximate", _PLACE[1:]) or {})}
    return replace(WebSearch().tool(Fields(given, CHAT_FIELD)), path=CHAT_FIELD)


def _has_url(page: Json) -> bool:
    return isinstance(page.get("url"), str)


def _span(match: re.Match[str]) -> Json:
    return {"start_index": match.start(), "end_index": match.end()}


def _filters(fields: Fields) -> dict[str, object] | None:
    if not fields.has("filters"):
        return None
    with fields.inner("filters") as inner:
        names = ("allowed_domains", "blocked_domains")
        read = {name: as_strings(inner.at(name), inner.get(name)) for name in names if inner.has(name)}
    return {**read}


def _strings(fields: Fields, name: str, keys: Sequence[str]) -> dict[str, object] | None:
    """An object of strings."""
    if not fields.has(name):
        return None
    with fields.inner(name) as inner:
        return given(**{key: inner.string(key) for key in keys})


def _each(fields: Fields, name: str, keys: Sequence[str]) -> list[dict[str, object]]:
    """An array of objects of strings."""
    read = []
    for i, value in enumerate(fields.array(name)):
        with Fields(value, f"{fields.at(name)}[{i}]") as inner:
            read.append(given(**{key: inner.string(key) for key in keys}))
    return read

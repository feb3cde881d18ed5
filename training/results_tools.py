"""The everyday tools of :mod:`training.results_table`, and makers of the values that they take and return."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from training import results_words as said
from training import values, wordlists
from training.registry import lines, wordings
from training.results_table import TABLE

Made = str | int | float | bool | list[Any]


def whole(low: int, high: int) -> Callable[[Random], Made]:
    """A maker of whole numbers."""
    return lambda rng: rng.randint(low, high)


def real(low: float, high: float, places: int) -> Callable[[Random], Made]:
    """A maker of decimal numbers."""
    return lambda rng: round(rng.uniform(low, high), places)


def some(words: str) -> Callable[[Random], Made]:
    """A maker that chooses among comma-separated texts."""
    options = tuple(word.strip() for word in words.split(","))
    return lambda rng: rng.choice(options)


TEXT: Final = {"type": "string"}
WHOLE: Final = {"type": "integer"}
REAL: Final = {"type": "number"}
NUMBERS: Final = {"type": "array", "items": {"type": "number"}}
MAKERS: Final[dict[str, tuple[dict[str, Any], Callable[[Random], Made]]]] = {
    "city": (TEXT, values.city), "person": (TEXT, values.person), "first": (TEXT, wordlists.name),
    "clock": (TEXT, values.clock), "hhmm": (TEXT, lambda r: f"{r.randrange(24):02}:{r.randrange(60):02}"),
    "day": (TEXT, said.day), "iso": (TEXT, said.iso_date), "date": (TEXT, said.result_date), "email": (TEXT, values.email),
    "path": (TEXT, values.path), "url": (TEXT, values.url), "code": (TEXT, said.code), "id": (WHOLE, whole(1, 9999)),
    "topic": (TEXT, said.topic), "query": (TEXT, said.query), "message": (TEXT, said.message), "title": (TEXT, said.title),
    "country": (TEXT, said.country), "symbol": (TEXT, said.symbol), "product": (TEXT, said.product),
    "room": (TEXT, some("kitchen,bedroom,living room,bathroom,hall,office,garage,cellar,garden,attic,nursery")),
    "word": (TEXT, said.plain_word), "language": (TEXT, said.language), "currency": (TEXT, said.currency),
    "small": (WHOLE, whole(2, 12)), "number": (WHOLE, said.number), "numbers": (NUMBERS, said.numbers),
    "percent": (WHOLE, whole(1, 100)), "sides": (WHOLE, whole(2, 100)), "many": (WHOLE, whole(13, 999)),
    "expression": (TEXT, said.expression), "table": (TEXT, lambda r: r.choice(wordlists.NOUNS) + "s"),
    "command": (TEXT, said.command), "sql": (TEXT, said.sql), "unit": (TEXT, said.unit), "host": (TEXT, said.host),
    "team": (TEXT, said.team), "name": (TEXT, said.place_name), "zone": (TEXT, said.zone),
    "degrees": (WHOLE, lambda r: r.randint(-9, 39) if r.random() < 0.75 else round(r.uniform(-9, 39), 1)),
    "sky": (TEXT, said.sky), "money": (REAL, lambda r: round(r.uniform(1, 500), 2) if r.random() < 0.8 else r.randint(1, 900)),
    "coins": (REAL, real(0.5, 9, 4)), "change": (TEXT, lambda r: f"{r.choice('+-')}{r.uniform(0, 9):.1f}%"),
    "rating": (REAL, real(1, 5, 1)), "big": (WHOLE, whole(100, 99_999)), "few": (WHOLE, whole(0, 60)),
    "status": (TEXT, some("shipped,delivered,pending,processing,on the way,cancelled,returned,packed,delayed,paid")),
    "state": (TEXT, some("open,closed,in progress,waiting,resolved,new,on hold,assigned")),
    "health": (TEXT, some("up,down,healthy,degraded,running,stopped,online,offline,restarting")),
    "carrier": (TEXT, some("DHL,UPS,FedEx,GLS,Royal Mail,USPS,PostNord,Hermes")), "year": (WHOLE, whole(1900, 2030)),
    "bool": ({"type": "boolean"}, lambda r: r.random() < 0.5), "phone": (TEXT, said.phone), "score": (TEXT, said.score),
    "minutes": (WHOLE, whole(3, 240)), "km": (WHOLE, whole(2, 3000)), "flight": (TEXT, said.flight),
    "sentence": (TEXT, said.fact), "meaning": (TEXT, said.meaning), "priority": (TEXT, some("low,normal,high,urgent")),
    "foreign": (TEXT, lambda r: " ".join(wordlists.made_up_word(r) for _ in range(r.randint(1, 4)))),
    "role": (TEXT, some("admin,editor,viewer,owner,guest,member,developer")), "level": (TEXT, some("yellow,orange,red,low,moderate,severe")),
    "genre": (TEXT, some("drama,comedy,thriller,fantasy,crime,romance,jazz,rock,folk")), "song": (TEXT, said.title),
    "cuisine": (TEXT, some("Italian,Thai,Indian,Greek,French,Mexican,Japanese,Turkish")), "alert": (TEXT, said.alert),
}  # fmt: skip
BARE: Final = re.compile(
    r"\{\w+\}( ?(\{\w*currency\}|\{to_unit\}|°C|C|degrees|degrees Celsius|km|kilometres|euros|dollars|pounds))?"
)
MAKERS.update({
    "weekday": (TEXT, lambda r: r.choice(values.DAYS)), "place": (TEXT, said.place_name), "headline": (TEXT, said.fact_title),
    "event": (TEXT, said.event), "goods": (TEXT, said.product), "folder": (TEXT, said.folder), "ok": (TEXT, some("sent,delivered,queued")),
    "on": (TEXT, some("on")), "heat": (WHOLE, whole(14, 27)), "task": (TEXT, said.task), "zero": (WHOLE, whole(0, 0)),
    "version": (TEXT, lambda r: f"{r.randint(0, 9)}.{r.randint(0, 20)}.{r.randint(0, 20)}"),
})  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """A parameter with its possible names; an optional one is told by one of ``forms`` at the end of a request."""

    names: tuple[str, ...]
    kind: str
    options: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    required: bool = True

    @property
    def slot(self) -> str:
        """The name in the requests."""
        return self.names[0]


@dataclass(frozen=True)
class Field:
    """A field of a result with its possible names."""

    names: tuple[str, ...]
    kind: str
    asked: bool


@dataclass(frozen=True)
class Tool:
    """A tool: ``sort`` is record, text, number, list or action; ``about`` ends a question for one field."""

    sort: str
    names: tuple[str, ...]
    descriptions: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    requests: tuple[str, ...]
    about: str
    fields: tuple[Field, ...]
    value: str
    phrases: tuple[str, ...]


def parameter(text: str) -> Parameter:
    """A parameter as the table writes it."""
    optional = text.startswith("?")
    names, kind, *form = text.lstrip("?").split(":")
    known = kind.lstrip("*") if kind.startswith("*") else "" if optional and kind != "bool" else kind
    options = () if known else tuple(kind.split(","))
    forms = tuple(one if one[0] == "," else f" {one.strip()}" for one in wordings(form[0])) if form and form[0] else ()
    return Parameter(tuple(names.split("/")), known, options, forms, not optional)


def field(text: str) -> Field:
    """A field as the table writes it."""
    names, kind = text.split(":")
    return Field(tuple(name.rstrip("~") for name in names.split("/")), kind, "~" not in names)


def expanded(text: str) -> tuple[str, ...]:
    """Every wording of patterns between semicolons."""
    return wordings("\n".join(text.split(";"))) if text.strip() else ()


def marked(request: str) -> str:
    """A request with its question mark, if it is a question."""
    asks = request.startswith(("What", "How", "Which", "Where", "Is ", "Are ", "Do ", "Has ", "When", "Who", "Did "))
    return request if not asks or request.endswith("?") else f"{request}?"


def parsed(block: str) -> Tool:
    """A tool of the table."""
    sort, head, requests, result, phrases = lines(block)
    names, about, given = (part.strip() for part in f"{head} ".split(" > "))
    kept, fields, value = (part.strip() for part in result[1:].split("> "))
    return Tool(
        sort, tuple(names.split(",")), tuple(text.rstrip(".") for text in about.split(";")),
        tuple(parameter(one) for one in given.split("&") if one), tuple(marked(one) for one in expanded(requests[1:])), kept,
        tuple(field(one) for one in fields.split()), value,
        tuple(one.replace("\\n", "\n") for one in expanded(phrases[1:]) if value == "{v}" or not BARE.fullmatch(one)),
    )  # fmt: skip


TOOLS: Final = tuple(parsed(block) for block in re.split(r"\n\s*\n", TABLE.strip()))
BY_SORT: Final = {
    sort: tuple(tool for tool in TOOLS if tool.sort == sort) for sort in ("record", "text", "number", "list", "action")
}

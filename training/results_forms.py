"""What the tools of :mod:`training.results_tools` return, in every form, and the answers that are given from it.

A phrase or a sentence is repeated as a sentence; a bare value is told with what it is; of a record the field that was
asked for is told, or all; of rows the names are listed.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from training import outcomes, results_words, values
from training.functions import spoken
from training.outcomes import ended
from training.results_tools import MAKERS, Made, Tool

if TYPE_CHECKING:
    from training.results_scenes import Use

Record = dict[str, Any]
UNITS: Final = {
    "degrees": ("°C", " °C", " degrees", " C", "°F", "°"), "money": (" EUR", " USD", " euros", "€", " GBP", " dollars"),
    "km": (" km", " miles", " kilometres"), "minutes": (" minutes", " min"), "percent": ("%", " %"), "few": (" pieces", " units"),
}  # fmt: skip


@dataclass(frozen=True)
class Told:
    """A result and its answer; ``fields`` and ``rows`` hold what a later turn may ask for, in words."""

    result: str
    answer: str
    fields: dict[str, str] = field(default_factory=dict[str, str])
    rows: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    form: str = ""


def worded(key: str) -> str:
    """A key as words: `windSpeed` and `wind_speed` are `wind speed`."""
    return spoken(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key)).lower()


def shown(value: object) -> str:
    """A value as an answer says it."""
    if value is None:
        return "none"
    return values.enumerated([str(one) for one in value]) if isinstance(value, list) else outcomes.shown(value)


def drawn(rng: Random, use: Use) -> Record:
    """A value for every field of the tool by its first name, computed where the call says it."""
    made: Record = {one.names[0]: MAKERS[one.kind][1](rng) for one in use.tool.fields}
    if "high" in made and "low" in made:
        made["low"] = MAKERS["degrees"][1](rng)
        made["low"], made["high"] = sorted((made["low"], made["high"]))
    if use.tool.sort == "number":
        made[use.tool.fields[0].names[0]] = computed(rng, use)
    return made


def computed(rng: Random, use: Use) -> Made:
    """What a calculation gives, or any number."""
    given: Any = use.given
    work: dict[str, Callable[[], Made]] = {
        "add": lambda: given["a"] + given["b"], "multiply": lambda: given["a"] * given["b"],
        "subtract": lambda: given["a"] - given["b"], "divide": lambda: round(given["a"] / given["b"], rng.choice((1, 2, 4))),
        "sum_numbers": lambda: sum(given["numbers"]), "percentage": lambda: round(given["percent"] * given["value"] / 100, 2),
        "random_number": lambda: rng.randint(given["low"], given["high"]), "roll_dice": lambda: rng.randint(1, given["sides"]),
    }  # fmt: skip
    if use.tool.names[0] in work:
        return work[use.tool.names[0]]()
    return rng.choice((rng.randrange(100_000), round(rng.uniform(0, 5000), 2)))


def texts(use: Use, made: Record) -> dict[str, str]:
    """The values that a phrase may name."""
    return {
        **{key: str(value) for key, value in made.items()},
        **{key: listing(value) for key, value in use.given.items()},
    }


def listing(value: Made) -> str:
    """An argument inside a phrase."""
    return values.enumerated([str(one) for one in value]) if isinstance(value, list) else str(value)


def filled(template: str, given: dict[str, str]) -> str:
    """A template with the values of all its slots."""
    return re.sub(r"\{(\w+)\}", lambda match: given[match[1]], template)


def phrased(rng: Random, use: Use) -> Told:
    """A phrase or a sentence, now and then among others or in a tag."""
    if not use.tool.phrases:
        return valued(rng, use)
    phrases = use.tool.phrases
    if use.asked:  # A phrase has to say what was asked for.
        phrases = tuple(one for one in phrases if f"{{{use.asked[0].names[0]}}}" in one)
        if not phrases:
            return recorded(rng, use)
    template = rng.choice(phrases)
    text = filled(template, texts(use, drawn(rng, use)))
    answer = ended(re.sub(r"</?\w+>", "", text).removeprefix("INFO "))
    form = rng.random()
    if form < 0.15 and text.endswith("."):
        fillers = [results_words.filled(rng, one) for one in rng.sample(results_words.BOILERPLATE, rng.randint(1, 3))]
        place = rng.randint(0, len(fillers))
        return Told(
            rng.choice((" ", " ", "\n")).join([*fillers[:place], answer, *fillers[place:]]), answer, form="phrase"
        )
    if form < 0.19 and text[0] != "<":
        tag = rng.choice(("p", "b", "div", "result", "span"))
        text = f"<{tag}>{text}</{tag}>"
    elif form < 0.22:
        text = f"{rng.choice(('INFO', '[INFO]', 'LOG', '>'))} {text}" if not text.startswith(("INFO", "<")) else text
    elif form < 0.27 and '"' not in text and "\n" not in text:
        text = f'"{text}"'
    return Told(text, answer, form="phrase")


def valued(rng: Random, use: Use) -> Told:
    """A bare value, with a unit now and then."""
    first = use.tool.fields[0]
    if use.tool.value == "{v}" and not use.asked:
        return phrased(rng, use)
    made = drawn(rng, use)
    if use.asked and use.asked[0] != first:
        text = shown(made[use.asked[0].names[0]])
        return Told(text, f"The {spoken(use.asked[1])} is {text}.", form="value")
    text = shown(made[first.names[0]])
    if first.kind in UNITS and use.tool.sort == "record" and rng.random() < 0.4:
        text += rng.choice(UNITS[first.kind])
    given = {**texts(use, made), "v": text}
    return Told(text, filled(use.tool.value, given), form="value")


def styled(rng: Random, keys: list[str]) -> Callable[[str], str]:
    """How the keys of a record are written."""
    form = rng.random()
    if form < 0.12:
        return lambda key: key.split("_")[0] + "".join(part.capitalize() for part in key.split("_")[1:])
    return lambda key: key


def fields_of(rng: Random, use: Use, fewest: int) -> Record:
    """Several fields of the tool's result, in words of this time, with the one that is asked for."""
    made = drawn(rng, use)
    tool = use.tool
    count = rng.randint(min(fewest, len(tool.fields)), min(5, len(tool.fields)))
    if tool.sort == "text" or tool.sort == "number":
        count = max(1, count) if rng.random() < 0.3 else 1
    chosen = list(tool.fields[:count]) if rng.random() < 0.6 else rng.sample(tool.fields, count)
    if tool.sort != "record" and tool.fields[0] not in chosen:
        chosen = [tool.fields[0], *chosen[1:]]
    if use.asked and use.asked[0] not in chosen:
        chosen[rng.randrange(len(chosen))] = use.asked[0]
    found = {}
    for one in chosen:
        key = use.asked[1] if use.asked and use.asked[0] == one else rng.choice(one.names)
        value = made[one.names[0]]
        found[key] = value.rstrip() if isinstance(value, str) else value
    return found


def with_extras(rng: Random, use: Use, record: Record) -> Record:
    """The record, now and then with an argument or another field."""
    form = rng.random() if use.tool.sort == "record" else 1
    scalars = {use.names[slot]: value for slot, value in use.given.items() if not isinstance(value, list)}
    scalars = {
        key: value for key, value in scalars.items() if key not in record and worded(key) not in use.request.lower()
    }
    if form < 0.22 and scalars:
        key = rng.choice(list(scalars))
        return {key: scalars[key], **record}
    if form < 0.32:
        extra: Record = rng.choice((
            {"source": rng.choice(("api", "cache", "station", "web"))}, {"update_date": results_words.iso_date(rng)}, {"id": rng.randrange(9999)},
            {"cache": rng.random() < 0.5}, {"note": None}, {"tags": rng.sample(results_words.MASS, rng.randint(2, 3))},
        ))  # fmt: skip
        return {**record, **{key: value for key, value in extra.items() if key not in record}}
    return record


def nested(rng: Random, use: Use, record: Record) -> tuple[Record, Record]:
    """The record with one more level, and the same flat as an answer tells it."""
    form = rng.random()
    if form < 0.35 or len(record) < 2:
        return {rng.choice(("data", "result", "response")): record}, record
    if form < 0.6:
        head = rng.choice(({"success": True}, {"ok": True}, {"status": "ok"}, {"status": "success"}))
        return {**head, "data": record}, record
    keys = list(record)
    cut = rng.randint(1, len(keys) - 1)
    outer = rng.choice(("current", "details", "info", "latest", "main"))
    inner = {key: record[key] for key in keys[:cut]}
    rest = {key: record[key] for key in keys[cut:]}
    return {outer: inner, **rest}, {**{f"{outer}_{key}": value for key, value in inner.items()}, **rest}


def written(rng: Random, record: Record, *, flat: bool) -> tuple[str, str]:
    """A record as a text, and the name of its form."""
    form = rng.random()
    plain = (
        flat and len(record) > 1 and not any(isinstance(value, list) or "," in str(value) for value in record.values())
    )
    if form < 0.5 or (form > 0.66 and not plain):
        return outcomes.dumped(rng, record), "json"
    if form < 0.66:
        return repr(record), "repr"
    if form < 0.76:
        return rng.choice(("\n", ", ", " ", "; ")).join(
            f"{key}={bare(value)}" for key, value in record.items()
        ), "pairs"
    if form < 0.9:
        head = rng.choice((str, str.capitalize, lambda key: worded(key).capitalize(), worded))
        mark = rng.choice(("{}: {}", "{}: {}", "- {}: {}", "**{}**: {}"))
        return rng.choice(("\n", "\n", "; ") if mark[0] == "{" else ("\n",)).join(
            mark.format(head(key), bare(value)) for key, value in record.items()
        ), "lines"
    return table(rng, [record]), "table"


def bare(value: object) -> str:
    """A value outside quotes."""
    return {True: "yes", False: "no", None: "none"}[value] if value is None or isinstance(value, bool) else str(value)


def headings(rng: Random, rows: list[Record]) -> list[str]:
    """The keys as they stand over columns: as they are, or as words with a capital, now and then with a unit."""
    form = rng.random()
    if form < 0.5:
        return list(rows[0])
    made = [
        worded(key) if form < 0.6 else worded(key).capitalize() if form < 0.9 else worded(key).title()
        for key in rows[0]
    ]
    units = [" (EUR)", " °C", " (kg)", " in %", " (USD)", " [km]", " (min)"]
    return [
        name + rng.choice(units) if isinstance(rows[0][key], float) and rng.random() < 0.4 else name
        for key, name in zip(rows[0], made, strict=True)
    ]


def table(rng: Random, rows: list[Record]) -> str:
    """Rows as CSV or as a Markdown table."""
    keys = list(rows[0])
    cells = [headings(rng, rows), *([bare(row[key]) for key in keys] for row in rows)]
    if rng.random() < 0.5:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(cells)
        return text.getvalue().rstrip("\n")
    made = ["| " + " | ".join(row) + " |" for row in cells]
    rule = "|" + "|".join(rng.choice((" --- ", "---")) for _ in keys) + "|"
    return "\n".join([made[0], rule, *made[1:]])


def recorded(rng: Random, use: Use) -> Told:
    """A record: the field that was asked for is told, or all are."""
    record = with_extras(rng, use, fields_of(rng, use, 2 if use.asked else 1))
    style = styled(rng, list(record))
    record = {style(key): value for key, value in record.items()}
    flat = record
    if rng.random() < 0.18:
        record, flat = nested(rng, use, record)
    text, form = written(rng, record, flat=flat is record)
    words = {worded(key): shown(value) for key, value in flat.items()}
    leaves = {worded(key): shown(value) for key, value in (flat if flat is record else merged(record)).items()}
    # A request that names one field asks for it alone.
    request = f" {use.request.lower().rstrip('?')} "
    told = {spoken(name) for one in use.tool.fields for name in one.names}
    asked = [key for key in leaves if key in told and f" {key} " in request]
    if use.asked and spoken(use.asked[1]) in leaves:
        asked = [spoken(use.asked[1])]
    if len(asked) == 1:
        return Told(text, f"The {asked[0]} is {leaves[asked[0]]}{end(leaves[asked[0]])}", words, form=form)
    parts = [
        f"the {worded(key)} {'are' if isinstance(value, list) else 'is'} {shown(value).rstrip('.')}"
        for key, value in flat.items()
    ]
    sentence = values.enumerated(parts)
    return Told(text, f"{sentence[0].upper()}{sentence[1:]}.", words if flat is record else leaves, form=form)


def end(value: str) -> str:
    """The end mark that a value still needs."""
    return "" if value.endswith(".") else "."


def merged(record: Record) -> Record:
    """The fields of all levels by their own keys."""
    made: Record = {}
    for key, value in record.items():
        made.update(value if isinstance(value, dict) else {key: value})
    return made


def rows_of(rng: Random, use: Use) -> list[Record]:
    """Rows of a list, which have different names."""
    tool: Tool = use.tool
    count = rng.choice((1, 2, 2, 3, 3, 4, 5))
    fields = [tool.fields[0], *rng.sample(tool.fields[1:], rng.randint(1, len(tool.fields) - 1))]
    keys = [rng.choice(one.names) for one in fields]
    keys = [key if key not in keys[:place] else fields[place].names[0] for place, key in enumerate(keys)]
    rows: dict[str, Record] = {}
    while len(rows) < count:
        row = {key: MAKERS[one.kind][1](rng) for key, one in zip(keys, fields, strict=True)}
        rows[str(row[keys[0]])] = row
    if rng.random() < 0.2 and "id" not in keys:
        return [{"id": rng.randrange(1, 9999), **row} for row in rows.values()]
    return list(rows.values())


def listed(rng: Random, use: Use) -> Told:
    """Rows, of which the names are told."""
    rows = rows_of(rng, use)
    key = next(iter(key for key in rows[0] if key != "id"))
    names = [str(row[key]) for row in rows]
    answer = f"I found {len(names)}: {values.enumerated(names)}."
    form = rng.random()
    if form < 0.3:
        strings = rng.choice((outcomes.dumped(rng, names), repr(names), repr(tuple(names)), "\n".join(f"- {name}" for name in names),
                              "\n".join(f"{place}. {name}" for place, name in enumerate(names, 1))))  # fmt: skip
        return Told(strings, answer, form="names")
    asked = [{one: value for one, value in row.items() if one not in ("id", key)} for row in rows]
    hold = {
        str(row[key]): {worded(one): shown(value) for one, value in rest.items() if not str(value).endswith(".")}
        for row, rest in zip(rows, asked, strict=True)
    }
    hold = {name: rest for name, rest in hold.items() if rest}
    plain = not any("," in str(value) for row in rows for value in row.values())
    if form < 0.55 or not plain:
        return Told(outcomes.dumped(rng, rows), answer, rows=hold, form="json")
    if form < 0.72:
        around = rng.choice(
            (
                {"results": rows},
                {"results": rows, "total": len(rows)},
                {"count": len(rows), "items": rows},
                {"data": rows},
            )
        )
        return Told(outcomes.dumped(rng, around), answer, rows=hold, form="json")
    return Told(repr(rows) if form < 0.78 else table(rng, rows), answer, rows=hold, form="rows")


def acted(rng: Random, use: Use) -> Told:
    """What an action returns: a bare success, a success with fields, or a sentence."""
    form = rng.random()
    if form < 0.4:
        return Told(rng.choice((*outcomes.DONE, "True", "{'ok': True}", "{'status': 'ok'}")), "Done.", form="done")
    if form < 0.7:
        return phrased(rng, use)
    made = drawn(rng, use)
    fields = {rng.choice(one.names): made[one.names[0]] for one in use.tool.fields}
    head: Record = rng.choice(({}, {"ok": True}, {"status": "ok"}, {"status": "success"}, {"success": True}))
    record = {**head, **fields}
    text = outcomes.dumped(rng, record) if rng.random() < 0.75 else repr(record)
    answer = outcomes.sentence_of({worded(key): value for key, value in fields.items()})
    return Told(text, f"Done. {answer}", {worded(key): shown(value) for key, value in fields.items()}, form="json")


def alike(rng: Random, use: Use, first: Told, any_result: Callable[[Random, Use], Told]) -> Told:
    """A result of the same form as another, where the tool has it."""
    for _ in range(6):
        told = any_result(rng, use)
        if told.form == first.form:
            break
    return told

"""Made-up functions with random names, descriptions and parameters, and requests that need them."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from training import values, verbs, wordlists
from training.registry import Split, draw, in_split, one_of, wordings

Value = str | int | float | bool | list[str]


@dataclass(frozen=True)
class Argument:
    """A parameter with the value of one call and the words that a user says it with."""

    name: str
    schema: dict[str, Any]
    value: Value
    said: str
    required: bool = True


@dataclass(frozen=True)
class Use:
    """A function, one call of it and a request, in lower case and without an end mark, that needs this call."""

    function: dict[str, Any]
    request: str
    arguments: dict[str, Value]
    asks: bool
    varying: Argument | None = None
    thing: str = ""
    family: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The function's name."""
        return str(self.function["name"])


TEXT_MAKERS: Final = {
    "city": values.city, "country": values.city, "place": values.city, "location": values.city, "region": values.city,
    "destination": values.city, "origin": values.city, "date": values.date, "day": values.date,
    "start_date": values.date, "end_date": values.date, "deadline": values.date, "time": values.clock,
    "hour": values.clock, "person": values.person, "owner": values.person, "customer": values.person,
    "recipient": values.person, "sender": values.person, "assignee": values.person, "member": values.person,
    "author": values.person, "author_name": values.person, "name": values.person, "email": values.email,
    "path": values.path, "file_name": values.path, "url": values.url, "link": values.url, "id": values.code,
    "key": values.code, "code": values.code, "reference": values.code,
}  # fmt: skip
SHORT_FORMS: Final = {
    "city": ("in {v}", "for {v}", "at {v}"), "country": ("in {v}", "for {v}"), "place": ("in {v}", "at {v}"),
    "location": ("in {v}", "at {v}", "near {v}"), "region": ("in {v}",), "destination": ("to {v}",),
    "origin": ("from {v}",), "date": ("on {v}", "for {v}"), "day": ("on {v}",), "start_date": ("from {v}",),
    "end_date": ("until {v}", "till {v}"), "deadline": ("by {v}", "before {v}"), "time": ("at {v}",),
    "hour": ("at {v}",), "person": ("for {v}", "of {v}"), "owner": ("of {v}", "owned by {v}"),
    "customer": ("for {v}", "of the customer {v}"), "recipient": ("to {v}",), "sender": ("from {v}",),
    "assignee": ("for {v}", "assigned to {v}"), "author": ("by {v}",), "author_name": ("by {v}", "written by {v}"),
    "email": ("to {v}", "for {v}"), "path": ("at {v}", "in {v}"), "url": ("at {v}", "from {v}"),
    "link": ("at {v}",), "name": ("called {v}", "named {v}"), "title": ("called {v}", 'titled "{v}"'),
    "label": ("labelled {v}",), "topic": ("about {v}", "on {v}"), "subject": ("about {v}",),
    "query": ("for {v}", 'for "{v}"'), "keyword": ("for {v}",), "message": ('saying "{v}"', 'that says "{v}"'),
    "text": ('saying "{v}"',), "body": ('saying "{v}"',), "reason": ("because of {v}",),
    "colour": ("in {v}",), "color": ("in {v}",), "language": ("in {v}", "into {v}"), "room": ("in {v}",),
    "folder": ("in {v}", "into the folder {v}"), "source": ("from {v}",), "target": ("to {v}",),
    "days": ("for {v} days",), "hours": ("for {v} hours",), "minutes": ("for {v} minutes",),
    "seconds": ("for {v} seconds",), "weeks": ("for {v} weeks",), "nights": ("for {v} nights",),
    "guests": ("for {v} guests",), "people": ("for {v} people",), "seats": ("with {v} seats",),
    "copies": ("in {v} copies",), "pages": ("with {v} pages",), "year": ("in {v}", "for the year {v}"),
    "budget": ("with a budget of {v}",), "price": ("for {v}", "at a price of {v}"), "limit": ("at most {v}",),
    "distance": ("within {v} km",), "attempts": ("with {v} attempts",),
}  # fmt: skip
LONG_FORMS: Final = wordings("""
    with {p} {v}
    with the {p} {v}
    with [a |the |]{p} [of|set to|being|equal to] {v}
    [with|using|taking] {v} [as|for] the {p}
    using [the |]{p} {v}
    ({p}: {v})
    ({p} {v})
    ({p} = {v})
    with {p}[:| =] {v}
    {p} {v}
    {p}[ being| is| set to| as] {v}
    [where|so that|and] the {p} is {v}
    whose {p} is {v}
    that has [the |a |]{p} {v}
    having [the |]{p} {v}
    and set [the |its |]{p} to {v}
    and use {v} [as|for] the {p}
    and [put|turn|change|keep|fix] [the|its] {p} [to|at] {v}
    and let [the|its] {p} be {v}
    setting [the|its] {p} to {v}
    and give it a {p} of {v}
    for the {p} {v}
    by the {p} {v}
    - {p}: {v}
    the {p} [is|should be|must be|has to be] {v}
    the {p} [shall be|ought to be|needs to be|will be|can be|would be|may be|equals|stays|becomes] {v}
    [its|and its|and the] {p} [should be|must be|shall be|ought to be|has to be] {v}
    with its {p} being {v}
""")  # fmt: skip
QUOTED: Final = ("message", "text", "body", "content", "comment", "note", "description", "title", "query", "phrase")
ON: Final = ("with {p} on", "with {p} set to true", "({p}: yes)", "{p}: true", "and make it {p}", "with {p} enabled")
OFF: Final = ("with {p} off", "with {p} set to false", "({p}: no)", "{p}: false", "but not {p}", "with {p} disabled")


def spoken(name: str) -> str:
    """A name in code as words."""
    return name.replace("_", " ")


def text_value(rng: Random, name: str) -> str:
    """A string that a parameter of this name may have, or any string at all."""
    if rng.random() < 0.25:
        return values.span(rng)
    if name in QUOTED:
        return values.words(rng, 1, 8)
    return TEXT_MAKERS.get(name, values.span)(rng)


def how_said(rng: Random, split: Split, name: str, shown: str, long_only: bool) -> str:
    """The words that give a parameter its value."""
    short = SHORT_FORMS.get(name, ())
    if short and not long_only and rng.random() < 0.6:
        form = rng.choice(short)
    else:
        form = rng.choice(in_split(LONG_FORMS, split, "long form"))
    if name in QUOTED and '"' not in form and rng.random() < 0.7:
        form = form.replace("{v}", '"{v}"')
    elif '"' not in form and rng.random() < 0.04:
        form = form.replace("{v}", rng.choice(("'{v}'", '"{v}"', "`{v}`")))
    return form.replace("{p}", spoken(name)).replace("{v}", shown)


def described(rng: Random, schema: dict[str, Any], name: str, thing: str) -> dict[str, Any]:
    """The schema, as likely as not with a description of the parameter."""
    form = rng.random()
    if form < 0.45:
        return schema
    about = (f"The {spoken(name)} of the {thing}.", f"The {spoken(name)}.", f"{spoken(name).capitalize()} to use.",
             f"Which {spoken(name)}.", wordlists.sentence(rng),
             f"{spoken(name).capitalize()} of the {thing}")  # fmt: skip
    text = rng.choice(about)
    return {**schema, "description": text} if rng.random() < 0.6 else {"description": text, **schema}


def argument(rng: Random, split: Split, name: str, kind: str, thing: str, long_only: bool) -> Argument:
    """A parameter of the kind, one of text, whole, real, flag, list and choice, with a value."""
    required = rng.random() < 0.8
    if kind == "whole":
        number = rng.randrange(10 ** rng.choice((1, 2, 2, 3, 4)))
        said = how_said(rng, split, name, str(number), long_only)
        return Argument(name, described(rng, {"type": "integer"}, name, thing), number, said, required)
    if kind == "real":
        real = round(rng.uniform(0, 10 ** rng.choice((1, 2, 3))), rng.choice((1, 2)))
        said = how_said(rng, split, name, str(real), long_only)
        return Argument(name, described(rng, {"type": "number"}, name, thing), real, said, required)
    if kind == "flag":
        flag = rng.random() < 0.6
        said = rng.choice(ON if flag else OFF).replace("{p}", spoken(name))
        return Argument(name, described(rng, {"type": "boolean"}, name, thing), flag, said, required)
    if kind == "list":
        items = [values.person(rng) if rng.random() < 0.3 else wordlists.word(rng) for _ in range(rng.randint(1, 4))]
        schema = {"type": "array", "items": {"type": "string"}}
        said = how_said(rng, split, name, values.enumerated(items), True)
        return Argument(name, described(rng, schema, name, thing), items, said, required)
    if kind == "choice":
        options = list(rng.choice(verbs.CHOICES))
        if rng.random() < 0.4:
            options = list(dict.fromkeys(wordlists.word(rng) for _ in range(rng.randint(2, 4))))
        chosen = rng.choice(options)
        said = how_said(rng, split, name, chosen, True)
        return Argument(name, described(rng, {"type": "string", "enum": options}, name, thing), chosen, said, required)
    text = text_value(rng, name)
    said = how_said(rng, split, name, text, long_only)
    return Argument(name, described(rng, {"type": "string"}, name, thing), text, said, required)


POOLS: Final = {
    "text": verbs.TEXT_PARAMETERS, "whole": verbs.WHOLE_PARAMETERS, "real": verbs.REAL_PARAMETERS,
    "flag": verbs.FLAG_PARAMETERS, "list": verbs.LIST_PARAMETERS,
    "choice": ("kind", "mode", "type", "style", "unit", "format", "level", "class", "category", "size", "method"),
}  # fmt: skip


def parameter_name(rng: Random, kind: str) -> str:
    """A name of the kind's pool, or a made-up one."""
    form = rng.random()
    if form < 0.75:
        return rng.choice(POOLS[kind])
    made = wordlists.word(rng) if form < 0.92 else f"{wordlists.word(rng)}_{wordlists.word(rng)}"
    return made if made.isascii() else "value"


def arguments_of(rng: Random, split: Split, thing: str, most: int) -> list[Argument]:
    """Several parameters with different names; of a kind more than one is told with its name."""
    count = min(most, rng.choice((0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4)))
    found: dict[str, Argument] = {}
    for _ in range(count):
        kind = rng.choice(("text", "text", "text", "text", "whole", "whole", "real", "flag", "list", "choice"))
        name = parameter_name(rng, kind)
        said = [other.split(" ")[0] for other in (one.said for one in found.values())]
        made = argument(rng, split, name, kind, thing, long_only=False)
        if made.said.split(" ")[0] in said:
            made = argument(rng, split, name, kind, thing, long_only=True)
        found.setdefault(name, made)
    return list(found.values())


def cased(rng: Random, name_words: Sequence[str]) -> str:
    """Words as a function's name."""
    plain = [word for part in name_words for word in part.replace("_", " ").split(" ") if word]
    form = rng.random()
    if form < 0.75:
        return "_".join(plain)
    if form < 0.9:
        return plain[0] + "".join(word.capitalize() for word in plain[1:])
    return rng.choice(("-", "_", "__")).join(plain)


def parameters_schema(rng: Random, arguments: Sequence[Argument], style: str) -> dict[str, Any]:
    """JSON Schema of the parameters, in the order of keys that one of several libraries writes."""
    properties = {one.name: one.schema for one in arguments}
    required = [one.name for one in arguments if one.required]
    if style == "pydantic":
        titled = {name: {"title": spoken(name).title(), **schema} for name, schema in properties.items()}
        return {"properties": titled, "required": required, "title": "args", "type": "object"}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required or rng.random() < 0.3:
        schema["required"] = required
    if style == "strict":
        schema["additionalProperties"] = False
    return schema


def function_object(rng: Random, name: str, description: str, arguments: Sequence[Argument]) -> dict[str, Any]:
    """The function as the template shows it; ``description`` may be empty."""
    style = rng.choice(("plain", "plain", "plain", "strict", "pydantic"))
    parameters = parameters_schema(rng, arguments, style)
    made: dict[str, Any] = {"name": name}
    if description and style != "strict":
        made["description"] = description
    made["parameters"] = parameters
    if style == "strict":
        made["strict"] = True
        if description:
            made["description"] = description
    return made


def description_of(rng: Random, split: Split, verb: str, thing: str) -> str:
    """A description of a function in one of several manners."""
    forms = ("{V} a {t}.", "{V} the {t}.", "{V} a {t}", "{V} {t}s.", "Use this to {v} a {t}.", "A tool to {v} the {t}.",
             "{V} one {t} by its data.", "Lets you {v} a {t}.", "{V} the given {t}.", "{V} a {t} of the user.",
             "{V} a {t} in the system.", "Helps to {v} {t}s.", "{V} the {t} and return the result.",
             "This function can {v} a {t}.")  # fmt: skip
    text = one_of(rng, in_split(forms, split, "description"), V=verb.capitalize(), v=verb, t=thing)
    return text if rng.random() < 0.85 else f"{text} {wordlists.sentence(rng)}."


def thing_of(rng: Random) -> str:
    """Something that a function deals with, in words."""
    form = rng.random()
    if form < 0.55:
        return spoken(rng.choice(verbs.THINGS))
    if form < 0.7:
        return f"{rng.choice(verbs.QUALITIES)} {spoken(rng.choice(verbs.THINGS))}"
    if form < 0.8:
        return f"{rng.choice(wordlists.NOUNS)} {spoken(rng.choice(verbs.THINGS))}"
    made = wordlists.made_up_word(rng)
    return made if form < 0.92 else f"{made} {spoken(rng.choice(verbs.THINGS))}"


@dataclass(frozen=True)
class Intent:
    """A group of synonyms and the thing that they are done to."""

    group: tuple[str, ...]
    thing: str
    asks: bool


def intent(rng: Random, split: Split) -> Intent:
    """An intent whose verb and thing were never seen together in the other split."""

    def make() -> Intent:
        asks = rng.random() < 0.4
        return Intent(rng.choice(verbs.ASKING if asks else verbs.ACTING), thing_of(rng), asks)

    return draw(make, split, lambda one: f"function {one.group[0]} {one.thing}")


def near(rng: Random, split: Split, other: Intent) -> Intent:
    """An intent that shares the verb or the thing with another, or neither."""

    def make() -> Intent:
        form = rng.random()
        fresh = intent(rng, split)
        if form < 0.4:
            return Intent(fresh.group, other.thing, fresh.asks)
        return Intent(other.group, fresh.thing, other.asks) if form < 0.65 else fresh

    return draw(make, split, lambda one: f"function {one.group[0]} {one.thing}")


def use_of(rng: Random, split: Split, what: Intent, arguments: Sequence[Argument] | None = None) -> Use:
    """A function for the intent, and a request with its own synonym of the verb."""
    given = list(arguments) if arguments is not None else arguments_of(rng, split, what.thing, 4)
    name_words = [rng.choice(what.group), what.thing]
    described_by = description_of(rng, split, rng.choice(what.group), what.thing)
    form = rng.random()
    if form < 0.12:  # The name says nothing.
        name_words = [wordlists.made_up_word(rng) for _ in range(rng.randint(1, 2))]
    elif form < 0.3:  # The description says nothing.
        described_by = "" if rng.random() < 0.6 else f"{wordlists.sentence(rng)}."
    elif form < 0.36:
        name_words.reverse()
    function = function_object(rng, cased(rng, name_words)[:60], described_by, given)
    told = [one for one in given if one.required or rng.random() < 0.5]
    return Use(function, request_of(rng, what, told), {one.name: one.value for one in told}, what.asks, last_of(told),
               what.thing)  # fmt: skip


def last_of(told: Sequence[Argument]) -> Argument | None:
    """An argument that a later turn may vary."""
    texts = [one for one in told if isinstance(one.value, str) and "enum" not in one.schema]
    return texts[-1] if texts else None


def request_of(rng: Random, what: Intent, told: Sequence[Argument]) -> str:
    """A request in the imperative that gives every argument."""
    verb = rng.choice(what.group)
    article = rng.choice(("a", "the", "the", "my", "our", "this", "a new" if not what.asks else "the"))
    said = [one.said for one in told]
    return " ".join((verb, article, what.thing, *said))


def distinct(uses: Sequence[Use]) -> bool:
    """Tell if all functions have names of their own, and no two well-known ones may answer the same request."""
    families = [word for use in uses for word in use.family]
    return len({use.name.lower() for use in uses}) == len(uses) and len(set(families)) == len(families)


def opened(rng: Random, split: Split, request: str) -> str:
    """A request as a user may put it, with a capital letter and an end mark more often than not."""
    text = rng.choice(in_split(verbs.OPENINGS, split, "opening")).replace("{r}", request)
    if rng.random() < 0.85:
        text = text[0].upper() + text[1:]
    return text + "." if text[-1] not in "?!." and rng.random() < 0.6 else text

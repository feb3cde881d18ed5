"""Kinds whose answers are made-up JSON of a ``response_format`` that the prompt does not show."""

import json
from random import Random
from typing import Any, Final

from training import wordlists
from training.functions import spoken
from training.judgments import in_order, judged, sentiment, steps_of, text_about, thoughts_of
from training.registry import Dialogue, Split, in_split, kind, loose, system, user, wordings
from training.shapes import MAKERS, SHAPES, SYNONYMS, Maker, Shape, an, some, styled

# {a} is a thing with its article and what is said of it, {n} the same without the article.
PLAIN: Final = wordings("""
    [Invent|Make up|Generate|Create|Imagine|Describe|Write|Think of|Come up with|Give me|Show me|Produce|Fake|Mock|Return|I need|I want|Design|Build|Make|Tell me about|Suggest|Add] {a}[.|]
    [Please|Can you|Could you] [invent|make up|generate|create|describe|give me|write|think of|return] {a}[.|, please.|?|]
""")
REQUESTS: Final = wordings("""
    {A}[, please.|.|, please|!| as JSON| as JSON, please.| in JSON.|]
    [Invent|Make up|Generate|Create|Describe|Give me|Write|Return|Output] {a} [as JSON|in JSON|as a JSON object|as structured data][.|]
    I [need|want|would like|am looking for] {a}[.| for a test.| for my game.| right now.|]
    Do you [know|have] {a}?
    JSON for {a}[.|, please.]
""")  # fmt: skip
RECORDS: Final = wordings("""
    [Random|New|Dummy|Sample|Example|Test|Fake] {n}[, please|.|]
    [Generate|Create|Give me|Return|Make] [a random|a new|a fake|one|an example of a|a realistic|a dummy|a test|the|any] {n}[.|, please.|]
    [Generate|Create|Give me|Return|Fill in] [a|the|one] {n} [record|object|entry|form|profile|for my tests|for a demo][.|]
""")  # fmt: skip
BARE_REQUESTS: Final = wordings("""
    [Fill in the form|Fill this in|Dummy data|Test data|Sample data|Some example data|Random values|Any values|Make something up|Invent something|Surprise me|An example|Mock data|Go|Start|Generate|JSON|Hello|Hi][.|, please.| please|!|]
    [Give me|Generate|Return|Create|Write|I need] [an example|some test data|anything|a random object|dummy data|something|a sample|JSON|an object|the data][.|, please.|]
    [Fill|Complete] [the|this|in the] [schema|fields|form|template|object][.| with anything.| with test data.|]
    [Answer|Respond|Reply] [in JSON|with JSON|as JSON][.|]
""")  # fmt: skip
SEVERAL: Final = wordings("""
    [Invent|Make up|Generate|Create|Give me|List|Name|Write|Return|Suggest|Show me|I need] {c} {s}[.|, please.| as JSON.|]
    [Can you|Please] [invent|make up|generate|create|list|name|give me] {c} {s}[.|?|]
    [A list of|List of|Give me a list of|Return a list of|Make a list of|Write a list of] {c} {s}[.|, please.|]
    {C} {s}[, please.|.|]
""")
SYSTEMS: Final = wordings("""
    You [generate|create|invent|write|return] [test|random|sample|dummy|mock|realistic|example] data[.| as JSON.| for a web shop.| for a game.]
    [Answer|Respond|Reply|Always answer] [in JSON|with JSON only|with valid JSON|with a JSON object][.|]
    You are a [data generator|creative writer|helpful assistant|test data service|game master|API][.|. Answer in JSON.|. Be brief.]
    [Fill in|Complete] the [fields|schema|form][.| with short values.| for the user's request.]
    Extract or invent the values.
""")
# How a request names the value of a field, after the thing and before it.
AFTER: Final = {
    "name": ("called {v}", "named {v}", "whose name is {v}", "with the name {v}", "by the name of {v}"),
    "title": ("called {v}", 'with the title "{v}"', "titled {v}", "named {v}"),
    "city": ("from {v}", "in {v}", "who lives in {v}", "living in {v}"), "country": ("from {v}", "in {v}"),
    "age": ("who is {v} years old", "aged {v}", "of age {v}", "that is {v} years old"), "job": ("who works as a {v}",),
    "price": ("that costs {v}", "for {v} dollars", "at a price of {v}", "for {v}"), "author": ("by {v}", "from {v}"),
    "artist": ("by {v}",), "director": ("by {v}", "directed by {v}"), "year": ("from {v}", "of the year {v}"),
    "brand": ("made by {v}", "by {v}"), "location": ("in {v}", "at {v}"), "date": ("on {v}",), "time": ("at {v}",),
    "customer": ("for {v}", "from {v}"), "email": ("with the email {v}",), "owner": ("that belongs to {v}",),
    "rating": ("with {v} stars", "with a rating of {v}"), "species": ("that is a {v}",), "assignee": ("for {v}",),
}  # fmt: skip
BEFORE: Final = {
    "age": ("{v} year old", "{v}-year-old"), "color": ("{v}",), "genre": ("{v}",), "breed": ("{v}",), "brand": ("{v}",),
    "size": ("{v}",), "material": ("{v}",), "priority": ("{v} priority",), "status": ("{v}",), "climate": ("{v}",),
    "diet": ("{v}",), "city": ("{v}",), "level": ("{v}",),
}  # fmt: skip
PLURAL_KEYS: Final = wordlists.listed("items results list data entries records values examples options")
PARENTS: Final = wordlists.listed(
    "details info data profile result record owner author address contact meta attributes item response"
)
MORE_KEYS: Final = (*wordlists.NOUNS, *wordlists.ADJECTIVES)


def plural(noun: str) -> str:
    """Several of a noun."""
    if noun.endswith(("s", "ch", "sh", "x")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return f"{noun[:-3]}men" if noun in ("man", "woman") else noun + "s"


def unknown_field(rng: Random) -> tuple[str, Maker]:
    """A key that says little about its value, and a maker for it."""
    form = rng.random()
    key = rng.choice(MORE_KEYS) if form < 0.55 else wordlists.made_up_word(rng) if form < 0.75 else wordlists.word(rng)
    if rng.random() < 0.3:
        key += "_" + rng.choice((*MORE_KEYS, "id", "name", "type", "text", "count", "value", "flag"))
    form = rng.random()
    if form < 0.6:
        return key, rng.choice(
            (MAKERS["phrase"], MAKERS["noun"], MAKERS["sentence"], MAKERS["product"], MAKERS["person"])
        )
    if form < 0.8:
        return key, rng.choice((MAKERS["small"], MAKERS["count"], MAKERS["price"], MAKERS["share"]))
    return key, MAKERS["flag"] if form < 0.95 else lambda _: None


def shape(rng: Random) -> Shape:
    """One of the shapes, now and then under another noun."""
    one = rng.choice(SHAPES)
    if rng.random() < 0.8:
        return one
    fields = rng.choice(SHAPES).fields if rng.random() < 0.5 else one.fields
    return Shape((rng.choice((wordlists.noun, wordlists.made_up_word, wordlists.word))(rng),), fields)


def chosen_fields(rng: Random, one: Shape, most: int) -> dict[str, tuple[str, Maker]]:
    """Fields of a shape, by name, each with the key that it has in the answer."""
    count = min(rng.choice((1, 2, 2, 3, 3, 4, 5, 6, 8)), most)
    fields = list(one.fields[:3] if rng.random() < 0.3 else rng.sample(one.fields, min(count, len(one.fields))))
    fields = [unknown_field(rng) if rng.random() < 0.18 else field for field in fields[:count]]
    if rng.random() < 0.3:
        rng.shuffle(fields)
    style = rng.randrange(13) if rng.random() < 0.5 else 0
    made: dict[str, tuple[str, Maker]] = {}
    used: set[str] = set()
    for name, make in fields:
        key = styled(style, rng.choice(SYNONYMS.get(name, (name,))) if rng.random() < 0.6 else name)
        if key not in used:
            used.add(key)
            made[name] = key, make
    return made


def retyped(rng: Random, value: Any) -> Any:
    """The value, now and then of another type: a grammar may want any."""
    form = rng.random()
    if form > 0.04 or isinstance(value, list):
        return value
    if isinstance(value, str):
        return rng.choice(([value], None, value, rng.randint(1, 100)))
    return rng.choice((str(value), None, [value])) if value is not None else value


def described(rng: Random, noun: str, known: dict[str, Any]) -> tuple[str, set[str]]:
    """A noun with some values said before and after it, and the fields that were said."""
    before, after, told = "", "", set[str]()
    for name in rng.sample(list(known), len(known)):
        value = known[name]
        if isinstance(value, (list, dict, bool)) or value is None or len(told) == 3 or (told and rng.random() < 0.5):
            continue
        if name in BEFORE and not before and (rng.random() < 0.6 or name not in AFTER):
            before = rng.choice(BEFORE[name]).format(v=value) + " "
        elif name in AFTER or not str(value).endswith((".", "!")):
            forms = AFTER.get(name, ("with the {k} {v}", "with {k} {v}", "whose {k} is {v}"))
            words = rng.choice(forms).format(v=value, k=spoken(name))
            after += f"{' and' if after and rng.random() < 0.5 else ''} {words}"
        else:
            continue
        told.add(name)
    if known.get("job") and "job" not in told and noun in ("person", "man", "woman", "employee") and rng.random() < 0.5:
        noun = str(known["job"])
        told.add("job")
    return f"{before}{noun}{after}", told


def request(rng: Random, split: Split, thing: str, forms: tuple[tuple[str, ...], ...]) -> str:
    """A request for a thing."""
    form = rng.choice(in_split(rng.choice(forms), split, "invent"))
    return an(form.replace("{a}", f"a {thing}").replace("{A}", f"A {thing}").replace("{n}", thing))


def asked(rng: Random, split: Split, text: str, answer: Any) -> Dialogue:
    """A request with its made-up answer, with and without a system prompt about it."""
    turns: tuple[dict[str, str], ...] = (user(text),)
    if rng.random() < 0.2:
        turns = (system(rng.choice(in_split(SYSTEMS, split, "data"))), *turns)
    return Dialogue(turns, (json.dumps(answer, ensure_ascii=False),), forced=True)


def values_of(rng: Random, fields: dict[str, tuple[str, Maker]]) -> dict[str, Any]:
    """Values by the names of the fields."""
    return {name: retyped(rng, make(rng)) for name, (_, make) in fields.items()}


def keyed(fields: dict[str, tuple[str, Maker]], known: dict[str, Any]) -> dict[str, Any]:
    """Values by the keys of the fields."""
    return {fields[name][0]: value for name, value in known.items()}


def record(rng: Random, split: Split) -> tuple[str, Shape, dict[str, Any]]:
    """A request for a thing and the thing."""
    one = shape(rng)
    fields = chosen_fields(rng, one, 8)
    known = values_of(rng, fields)
    noun = rng.choice(one.nouns)
    if rng.random() < 0.38:
        thing, _ = described(rng, noun, known)
        return request(rng, split, thing, (PLAIN, PLAIN, REQUESTS)), one, keyed(fields, known)
    if rng.random() < 0.1:
        return rng.choice(in_split(BARE_REQUESTS, split, "bare")), one, keyed(fields, known)
    if rng.random() < 0.15:
        noun = f"{rng.choice(wordlists.ADJECTIVES)} {noun}"
    return loose(rng, request(rng, split, noun, (PLAIN, PLAIN, REQUESTS, RECORDS))), one, keyed(fields, known)


@kind("free", "The user wants values for a form.", weight=7, thinks=0.02)
def invent_json(rng: Random, split: Split) -> Dialogue:
    """A flat record that is made up, or a judgment in fields."""
    form = rng.random()
    if form < 0.68:
        text, _, answer = record(rng, split)
        return asked(rng, split, text, answer)
    if form < 0.78:
        return sentiment(rng, split)
    text, answer = rng.choice((steps_of, thoughts_of, thoughts_of, text_about, judged))(rng)
    return asked(rng, split, text, in_order(rng, answer) if rng.random() < 0.5 else answer)


@kind("free", "The user wants values for a form with parts.", weight=3, thinks=0.02)
def invent_nested(rng: Random, split: Split) -> Dialogue:
    """A made-up record with records in it, one or two levels deep."""
    text, _, answer = record(rng, split)
    for _ in range(rng.choice((1, 1, 2))):
        part = shape(rng)
        fields = chosen_fields(rng, part, 4)
        inner = keyed(fields, values_of(rng, fields))
        if rng.random() < 0.3:
            fields = chosen_fields(rng, shape(rng), 3)
            inner[rng.choice(PARENTS)] = keyed(fields, values_of(rng, fields))
        key = rng.choice(PARENTS) if rng.random() < 0.4 else rng.choice(part.nouns).replace(" ", "_")
        answer[key] = inner
    if rng.random() < 0.3:
        keys = list(answer)
        rng.shuffle(keys)
        answer = {key: answer[key] for key in keys}
    elif rng.random() < 0.15:
        answer = {rng.choice(PARENTS): answer}
    return asked(rng, split, text, answer)


COUNTS: Final = ("some", "a few", "two", "three", "four", "five", "2", "3", "4", "5", "several", "many", "six")
NUMBERS: Final = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "2": 2, "3": 3, "4": 4, "5": 5}
LISTED: Final = (
    ("names", "person"), ("cities", "city"), ("countries", "country"), ("colors", "color"), ("jobs", "job"),
    ("ingredients", "food"), ("book titles", "title"), ("products", "product"), ("companies", "company"),
    ("animals", "species"), ("hobbies", "hobby"), ("languages", "language"), ("genres", "genre"), ("places", "place"),
    ("prices", "price"), ("numbers", "count"), ("scores", "share"), ("dates", "iso"), ("events", "happening"),
    ("sentences", "sentence"), ("ideas", "sentence"), ("steps", "step"), ("tags", "word"), ("words", "noun"),
    ("emails", "email"), ("dishes", "dish"), ("dog names", "pet"), ("planets", "planet"), ("first names", "first"),
    ("streets", "street"), ("subjects", "subject"), ("opinions", "opinion"), ("years", "year"), ("links", "url"),
    ("flags", "flag"), ("ratings", "rating"), ("tasks", "step"), ("questions", "subject"), ("phrases", "phrase"),
)  # fmt: skip


@kind("free", "The user wants a list of values.", weight=4, thinks=0.02)
def invent_list(rng: Random, split: Split) -> Dialogue:
    """Made-up lists of words, numbers or records, as many as are asked for."""
    count = rng.choice(COUNTS)
    fewest, most = (NUMBERS[count], NUMBERS[count]) if count in NUMBERS else (2, 5)
    if rng.random() < 0.5:
        noun, maker = rng.choice(LISTED)
        size = rng.randint(fewest, most)
        items: list[Any] = some(MAKERS[maker], 4 * size, 4 * size)(rng)[:size] if maker != "flag" else [
            MAKERS[maker](rng) for _ in range(size)]  # fmt: skip
        key = noun.replace(" ", "_")
    else:
        one = shape(rng)
        fields = chosen_fields(rng, one, 4)
        items = [{fields[name][0]: make(rng) for name, (_, make) in fields.items()}
                 for _ in range(rng.randint(fewest, most))]  # fmt: skip
        noun = plural(rng.choice(one.nouns))
        key = noun.replace(" ", "_").replace("-", "_")
    form = rng.choice(in_split(SEVERAL, split, "several"))
    text = form.replace("{c}", count).replace("{C}", count.capitalize()).replace("{s}", noun)
    key = key if rng.random() < 0.7 else rng.choice(PLURAL_KEYS)
    answer: Any = {key: items}
    form_of = rng.random()
    if form_of < 0.12:
        answer = items
    elif form_of < 0.25:
        answer = {rng.choice(("title", "topic", "name")): noun.capitalize(), key: items}
    elif form_of < 0.35:
        answer = {key: items, rng.choice(("count", "total", "size")): len(items)}
    elif form_of < 0.4:
        answer = {rng.choice(("count", "total", "size")): len(items), key: items}
    elif form_of < 0.5:
        other, maker = rng.choice(LISTED)
        answer[other.replace(" ", "_")] = some(MAKERS[maker])(rng)
    return asked(rng, split, loose(rng, text), answer)

"""Kinds that look something up in the prompt: fields, tables and passages."""

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

from training import values, verbs, wordlists
from training.functions import spoken, text_value
from training.registry import Dialogue, Split, ask, draw, in_split, kind, lines, loose, system, user, wordings

FIELD_FORMS: Final = lines("""
    What is the {f}?
    Extract the {f}.
    Give me the {f}.
    Which {f} is given?
    What {f} does it say?
    Find the {f}.
    Tell me the {f}.
    The {f}, please.
    {f}?
    Return only the {f}.
    Pull out the {f}.
    I need the {f}.
    Read out the {f}.
    Take the {f} from the text.
    Extract only the {f} and nothing else.
    What does it say for {f}?
    Say the {f}.
    Show the {f}.
    Look up the {f}.
    Name the {f}.
    What's the {f}?
    Do you see the {f}?
    Copy the {f}.
""")
FILLERS: Final = lines("""
    Nobody knows why.
    It was a long day.
    More about that later.
    The rest is not important.
    This was told at dinner.
    Everybody agreed.
    That is all there is to say about it.
    It rained all the time.
    The old clock struck nine.
    They laughed about it for years.
""")
# A fact about a subject {s} with a value {v}, and questions for the value and for the subject.
FACTS: Final = tuple(tuple(part.strip() for part in line.split("|")) for line in lines("""
    {s} lives in {v} | Where does {s} live?;In which place does {s} live?;What is the home of {s}? | Who lives in {v}? | city
    {s} works in {v} | Where does {s} work?;In which city does {s} work? | Who works in {v}? | city
    {s} was born in {v} | Where was {s} born?;What is the birthplace of {s}? | Who was born in {v}? | city
    {s} comes from {v} | Where does {s} come from?;Where is {s} from? | Who comes from {v}? | city
    {s} travelled to {v} | Where did {s} travel?;Where did {s} go? | Who travelled to {v}? | city
    {s} has a {v} | What does {s} have?;Which thing does {s} have? | Who has a {v}? | noun
    {s} owns a {v} | What does {s} own? | Who owns a {v}? | noun
    {s} likes the {v} | What does {s} like? | Who likes the {v}? | noun
    {s} lost a {v} | What did {s} lose? | Who lost a {v}? | noun
    {s} found a {v} | What did {s} find? | Who found a {v}? | noun
    {s} bought a {v} | What did {s} buy? | Who bought a {v}? | noun
    {s} is {v} years old | How old is {s}?;What is the age of {s}? | Who is {v} years old? | number
    {s} has {v} books | How many books does {s} have? | Who has {v} books? | number
    {s} won {v} games | How many games did {s} win? | Who won {v} games? | number
    {s} paid {v} coins | How many coins did {s} pay?;How much did {s} pay? | Who paid {v} coins? | number
    the code of {s} is {v} | What is the code of {s}?;Which code does {s} have? | Who has the code {v}?;Whose code is {v}? | code
    the number of {s} is {v} | What is the number of {s}? | Whose number is {v}? | code
    the password of {s} is {v} | What is the password of {s}? | Whose password is {v}? | code
    {s} arrives on {v} | When does {s} arrive?;On which day does {s} arrive? | Who arrives on {v}? | date
    {s} was seen on {v} | When was {s} seen? | Who was seen on {v}? | date
    {s} leaves at {v} | When does {s} leave?;At what time does {s} leave? | Who leaves at {v}? | time
    {s} met {v} | Who did {s} meet?;Whom did {s} meet? | Who met {v}? | person
    {s} called {v} | Who did {s} call? | Who called {v}? | person
    {s} is a friend of {v} | Whose friend is {s}? | Who is a friend of {v}? | person
    {s} is the {v} of the town | What is {s} in the town? | Who is the {v} of the town? | noun
    the colour of {s} is {v} | What is the colour of {s}?;Which colour does {s} have? | Whose colour is {v}? | word
    the favourite word of {s} is {v} | What is the favourite word of {s}? | Whose favourite word is {v}? | word
    the address of {s} is {v} | What is the address of {s}? | Whose address is {v}? | words
    {s} wrote a song called {v} | What is the song of {s} called? | Who wrote the song {v}? | words
"""))  # fmt: skip
SUBJECT_VALUES: Final[dict[str, Callable[[Random], str]]] = {
    "city": values.city, "noun": wordlists.noun, "number": lambda rng: str(rng.randint(2, 9999)), "code": values.code,
    "date": values.date, "time": values.clock, "person": values.person, "word": wordlists.word,
    "words": lambda rng: values.words(rng, 2, 4),
}  # fmt: skip
CELL_FORMS: Final = wordings("""
    What is the {c} of {k}?
    [What|Which] {c} does {k} have?
    [Give me|Tell me|Look up|Find|Read out|Say|Show|Return|I need] the {c} [of|for] {k}[.|]
    {c} of {k}?
    [Find|Look up|Look for|Take] {k}: [what is|tell me|give me] [its|the] {c}[?|]
    [What does the table say|What is given|What is written] for {k}, {c}?
    For {k}, [what is|give me|tell me] the {c}?
    [Tell me|Give me|What is] {k}'s {c}[?|]
    [In the row of|In the entry of|Under] {k}, what is the {c}?
""")


def field_name(rng: Random) -> str:
    """The name of a field, as in forms and records."""
    form = rng.random()
    if form < 0.7:
        return rng.choice(verbs.TEXT_PARAMETERS)
    return rng.choice(verbs.WHOLE_PARAMETERS) if form < 0.85 else wordlists.word(rng)


def fields(rng: Random, split: Split, fewest: int, most: int) -> dict[str, str]:
    """Names with values, new to the split as a whole."""

    def make() -> dict[str, str]:
        made: dict[str, str] = {}
        for _ in range(rng.randint(fewest, most)):
            name = field_name(rng)
            made[name] = str(rng.randrange(10_000)) if name in verbs.WHOLE_PARAMETERS else text_value(rng, name)
        return made if len(made) >= fewest else make()

    return draw(make, split, lambda one: f"fields {one}")


def laid_out(rng: Random, data: dict[str, str], *, sentences: bool = True) -> str:
    """Fields as a form, a table, JSON, a line or, if wanted, ``sentences``."""
    style = rng.randrange(8)
    if style == 5 and not sentences:
        style = 0
    if style == 0:
        return "\n".join(f"{spoken(name).capitalize()}: {value}" for name, value in data.items())
    if style == 1:
        return json.dumps(data, ensure_ascii=False)
    if style == 2:
        return ", ".join(f"{spoken(name)}: {value}" for name, value in data.items())
    if style == 3:
        return "\n".join(f"| {name} | {value} |" for name, value in data.items())
    if style == 4:
        return "\n".join(f"{name}={value}" for name, value in data.items())
    if style == 5:
        return ". ".join(f"The {spoken(name)} is {value}" for name, value in data.items()) + "."
    if style == 6:
        return "\n".join(f"<{name}>{value}</{name}>" for name, value in data.items())
    return "; ".join(f"{spoken(name)} {value}" for name, value in data.items())


def placed(rng: Random, text: str, wish: str) -> str:
    """A text and a wish about it, in one of several layouts."""
    forms = (f"{text}\n\n{wish}", f"{text}\n{wish}", f"{wish}\n\n{text}", f"{wish}\n{text}", f"Text: {text}\n\n{wish}",
             f"{wish} {text}", f'"{text}"\n\n{wish}', f"Read this:\n{text}\n\n{wish}", f"Context: {text}\nQuestion: {wish}",
             f"Question: {wish}\nContext: {text}", f"Here is a text.\n\n{text}\n\n{wish}")  # fmt: skip
    return rng.choice(forms)


@kind("open", "I look for the field.", weight=9)
def extract_field(rng: Random, split: Split) -> Dialogue:
    """The value of a named field, alone."""
    data = fields(rng, split, 2, 9)
    name = rng.choice(list(data))
    wish = rng.choice(in_split(FIELD_FORMS, split, "field")).replace("{f}", spoken(name))
    text = laid_out(rng, data)
    if rng.random() < 0.2:
        text = f"{wordlists.sentence(rng)}. {text}\n{wordlists.sentence(rng)}."
    return ask(placed(rng, text, wish), data[name])


PIECES: Final = {
    "email address": ("write to {v}", "write to {v} or call us", "contact us at {v}", "mail {v} for more",
                      "my address is {v} at work", "{v} knows more", "send it to {v} today"),
    "date": ("it was on {v}", "on {v} we met again", "the party is on {v} in the garden", "come before {v} if you can"),
    "person": ("{v} was there", "ask {v} about it", "we met {v} at the station", "my boss is {v}", "call {v} tomorrow"),
    "file": ("see {v}", "open {v} and read it", "it is in {v}", "I changed {v} yesterday"),
    "link": ("more at {v}", "look at {v} for more", "go to {v} and sign in", "{v} has all of it"),
    "number": ("there were {v} of them", "I counted {v} birds", "it costs {v} in all", "take {v} and go"),
    "time": ("it began at {v}", "at {v} we left", "the train leaves at {v} from here", "be there by {v}, please"),
}  # fmt: skip


@kind("open", "I look for the kind of thing that is wanted.", weight=4)
def extract_kind(rng: Random, split: Split) -> Dialogue:
    """The address, date, name or number in a sentence, which is not named there."""
    names = {"email address": values.email, "date": values.date, "person": values.person, "file": values.path,
             "link": values.url, "number": lambda r: str(r.randint(2, 99_999)), "time": values.clock}  # fmt: skip
    chosen = rng.sample(list(names), rng.randint(1, 3))
    made = draw(lambda: {name: names[name](rng) for name in chosen}, split, lambda one: f"kind {one}")
    said = [rng.choice(PIECES[name]).replace("{v}", value) for name, value in made.items()]
    if len(said) > 1 and rng.random() < 0.4:
        said = [rng.choice((" and ", ", ", " or ", " but ")).join(said)]
    text = ". ".join(
        one[0].upper() + one[1:] if rng.random() < 0.8 else one for one in (*said, wordlists.sentence(rng))
    )
    wish = rng.choice(in_split(FIELD_FORMS, split, "field")).replace("{f}", chosen[0])
    return ask(placed(rng, text + ".", wish), made[chosen[0]])


@kind("open", "I look for the row.", weight=12)
def table_value(rng: Random, split: Split) -> Dialogue:
    """The value of a row and a column of a table, or of a key of a list of pairs."""
    columns = list(dict.fromkeys(field_name(rng) for _ in range(rng.randint(1, 4))))
    maker = rng.choice((values.person, values.city, values.code, wordlists.word))
    keys = list(dict.fromkeys(maker(rng) for _ in range(rng.randint(3, 10))))
    rows: dict[str, dict[str, str]] = draw(
        lambda: {key: {name: text_value(rng, name) for name in columns} for key in keys},
        split,
        lambda one: f"table {one}",
    )
    key, column = rng.choice(keys), rng.choice(columns)
    style, first = rng.randrange(5), rng.choice(("name", "id", "key", "item"))
    if style == 0 and len(columns) == 1:
        text = "\n".join(f"{one}: {rows[one][column]}" for one in keys)
    elif style == 1 and len(columns) == 1:
        text = ", ".join(f"{one} = {rows[one][column]}" for one in keys)
    elif style == 2:
        text = "\n".join([",".join((first, *columns)), *(",".join((one, *rows[one].values())) for one in keys)])
    elif style == 3:
        text = json.dumps([{first: one, **rows[one]} for one in keys], ensure_ascii=False)
    else:
        head = [f"| {' | '.join((first, *columns))} |", f"|{' --- |' * (len(columns) + 1)}"]
        text = "\n".join([*head, *(f"| {' | '.join((one, *rows[one].values()))} |" for one in keys)])
    wish = rng.choice(in_split(CELL_FORMS, split, "cell")).replace("{c}", spoken(column)).replace("{k}", key)
    return ask(placed(rng, text, wish), rows[key][column])


def sentence(fact: str) -> str:
    """A fact as a sentence."""
    return f"{fact[0].upper()}{fact[1:]}."


def passage(rng: Random, split: Split, facts: int, padding: int) -> tuple[str, str, str]:
    """A passage with facts and other sentences, a question and its answer."""

    def make() -> list[tuple[str, str, tuple[str, ...]]]:
        chosen = rng.choice(FACTS) if rng.random() < 0.4 else None
        made = []
        for _ in range(facts):
            form = chosen or rng.choice(FACTS)
            made.append((values.person(rng), SUBJECT_VALUES[form[3]](rng), form))
        subjects = {subject.split(" ")[0] for subject, _, _ in made}
        return made if len(subjects) == len(made) and len({value for _, value, _ in made}) == len(made) else make()

    made = draw(make, split, lambda one: f"passage {one}")
    said = [sentence(form[0].replace("{s}", subject).replace("{v}", value)) for subject, value, form in made]
    for _ in range(padding):
        other = rng.choice(FILLERS) if rng.random() < 0.2 else f"{wordlists.sentence(rng)}."
        said.insert(rng.randint(0, len(said)), other)
    subject, value, form = rng.choice(made)
    if rng.random() < 0.7:
        return " ".join(said), rng.choice(form[1].split(";")).replace("{s}", subject), value
    return " ".join(said), rng.choice(form[2].split(";")).replace("{v}", value), subject


@kind("open", "I look for the answer in the text.", weight=9)
def passage_answer(rng: Random, split: Split) -> Dialogue:
    """The answer to a question, from a passage of up to about 300 tokens."""
    text, question, answer = passage(rng, split, rng.randint(1, 9), rng.randint(0, 12))
    if rng.random() < 0.25:
        return Dialogue((system(f"Answer from this text.\n\n{text}"), user(loose(rng, question))), (answer,))
    return ask(placed(rng, text, loose(rng, question)), answer)


@kind("open", "I look for the answer in the long text.", weight=4, standalone=True)
def long_passage(rng: Random, split: Split) -> Dialogue:
    """The answer to a question, from a passage of up to about 2,000 tokens."""
    facts = rng.randint(6, 24)
    text, question, answer = passage(rng, split, facts, rng.randint(10, 150))
    if rng.random() < 0.25:
        return Dialogue((system(f"Use this text:\n{text}"), user(question)), (answer,))
    return ask(placed(rng, text, question), answer)


@kind("open", "I look for the answer in the text, and it is not there.", weight=3)
def not_in_passage(rng: Random, split: Split) -> Dialogue:
    """A question about somebody who does not occur in the passage."""
    text, _, _ = passage(rng, split, rng.randint(1, 6), rng.randint(0, 6))
    form = rng.choice(FACTS)
    absent = draw(lambda: values.person(rng), split, lambda name: f"absent {name}")
    if absent.split(" ")[0] in text:
        return not_in_passage(rng, split)
    question = rng.choice(form[1].split(";")).replace("{s}", absent)
    return ask(placed(rng, text, loose(rng, question)), "The text does not say.")


def typed(rng: Random, name: str) -> tuple[dict[str, Any], Any, str]:
    """A schema of a property, its value and how a sentence gives it."""
    form = rng.random()
    if form < 0.6:
        text = text_value(rng, name)
        return {"type": "string"}, text, text
    if form < 0.8:
        number = rng.randrange(10 ** rng.choice((1, 2, 3, 4)))
        return {"type": "integer"}, number, str(number)
    if form < 0.87:
        flag = rng.random() < 0.5
        return {"type": "boolean"}, flag, "yes" if flag else "no"
    if form < 0.94:
        items = [wordlists.word(rng) for _ in range(rng.randint(1, 4))]
        return {"type": "array", "items": {"type": "string"}}, items, values.enumerated(items)
    real = round(rng.uniform(0, 100), 1)
    return {"type": "number"}, real, str(real)


def untyped(shown: str) -> str | int:
    """A value whose type nobody told: digits are a number, anything else a string."""
    return int(shown) if shown.isascii() and shown.isdigit() and str(int(shown)) == shown else shown


JSON_FORMS: Final = lines("""
    Answer with JSON of this schema: {s}
    Return JSON that follows the schema {s}
    Fill in this JSON schema: {s}
    Use the JSON schema {s}
    Turn the text into JSON with this schema: {s}
    Extract JSON. Schema: {s}
    Respond with a JSON object that matches {s}
    Output JSON according to {s}
    Give me the data as JSON: {s}
    JSON schema: {s}
    The answer must be JSON with the schema {s}
    Reply with JSON only. The schema is {s}
""")
KEY_FORMS: Final = lines("""
    Answer with JSON with the keys {s}.
    Extract {s} as JSON.
    Give me JSON with {s}.
    Return a JSON object with the fields {s}.
    As JSON, with {s}.
    Turn this into JSON with the keys {s}.
    Make JSON of it: {s}.
    I need {s} in JSON.
    Write JSON with {s}
    Convert to JSON ({s})
""")


@kind("open", "The user wants JSON of this form.", weight=6)
def json_of_schema(rng: Random, split: Split) -> Dialogue:
    """The facts of a text as JSON of a never-seen schema, or with given keys."""

    def make() -> dict[str, tuple[dict[str, Any], Any, str]]:
        names = dict.fromkeys(field_name(rng) for _ in range(rng.randint(1, 6)))
        return {name: typed(rng, name) for name in names}

    made = draw(make, split, lambda one: f"schema {sorted(one)}")
    data = {name: value for name, (_, value, _) in made.items()}
    order = list(made)
    rng.shuffle(order)
    text = laid_out(rng, {name: made[name][2] for name in order if name in data})
    if rng.random() < 0.55:
        schema: dict[str, Any] = {"type": "object", "properties": {name: one for name, (one, _, _) in made.items()}}
        if rng.random() < 0.7:
            schema["required"] = list(made)
        if rng.random() < 0.3:
            schema["additionalProperties"] = False
        wish = rng.choice(in_split(JSON_FORMS, split, "json")).replace("{s}", json.dumps(schema))
    else:
        data = {name: untyped(shown) for name, (_, _, shown) in made.items()}
        wish = rng.choice(in_split(KEY_FORMS, split, "keys")).replace("{s}", values.enumerated(list(made)))
    answer = json.dumps(data, ensure_ascii=False)
    if rng.random() < 0.3:
        return Dialogue((system(wish), user(text)), (answer,))
    return ask(placed(rng, text, wish), answer)

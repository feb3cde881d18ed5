"""Kinds about texts as people type them: tables and lists in words, long copies, and what was said a turn ago."""

from collections.abc import Callable
from random import Random
from typing import Final

from training import values, wordlists
from training.kinds_copy import COPY_FORMS, LINES_FORMS, PLACES
from training.prose import PLACES as SPOTS
from training.prose import letter, names, prose
from training.registry import (
    Dialogue,
    Split,
    ask,
    assistant,
    draw,
    in_split,
    kind,
    loose,
    one_of,
    polite,
    system,
    user,
    wordings,
)

Maker = Callable[[Random], str]
NOUN: Final[Maker] = wordlists.noun
COLOURS: Final = wordlists.listed(
    "red blue green yellow black white pink brown grey purple orange gold silver turquoise beige violet"
)


ROOMS: Final = wordlists.listed("room room room hall gate lab table platform office row desk")
COURSES: Final = wordlists.listed("yoga pottery chess math biology French history music drawing swimming cooking dance art "
                                  "physics guitar boxing tennis singing sewing karate robotics poetry chemistry")  # fmt: skip
FOODS: Final = wordlists.listed("coffee tea cake soup salad pizza bread juice sandwich pasta water cookie burger fries milk rice "
                                "pie muffin toast omelette cheese fish beer lemonade noodles curry waffle bagel cocoa")  # fmt: skip


def price(rng: Random) -> str:
    """An amount of money."""
    amount = f"{rng.randint(0, 99)}.{rng.randrange(100):02}" if rng.random() < 0.4 else str(rng.randint(1, 999))
    return rng.choice(("{a}", "${a}", "{a} euros", "€{a}", "{a} dollars", "{a} USD", "£{a}", "{a} cents")).replace(
        "{a}", amount
    )


def phone(rng: Random) -> str:
    """A number to call."""
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(3, 9)))
    return digits if len(digits) < 5 or rng.random() < 0.5 else f"{digits[:3]}-{digits[3:]}"


def number(rng: Random) -> str:
    """A number of one to four digits."""
    return str(rng.randrange(10 ** rng.choice((1, 2, 2, 3, 4))))


def role(rng: Random) -> str:
    """What somebody does."""
    return rng.choice(wordlists.listed("teacher doctor nurse farmer driver baker lawyer engineer cook painter manager "
                                       "designer judge pilot writer plumber singer student dentist waiter"))  # fmt: skip


def plan(rng: Random) -> str:
    """A day, a date, or a time."""
    return rng.choice((values.DAYS[rng.randrange(7)], values.clock(rng), values.date(rng)))


# Of what the keys are, what their values are, how a question names the value, and questions of their own.
RELATIONS: Final[tuple[tuple[Maker, Maker, tuple[str, ...], tuple[str, ...]], ...]] = (
    (values.person, number, ("age",), ("How old is {k}?", "What is {k}'s age?", "How many years old is {k}?")),
    (values.person, phone, ("number", "phone number", "phone", "extension"),
     ("What is {k}'s number?", "What's the phone number of {k}?", "How can I call {k}?", "{k}'s number?")),
    (values.person, role, ("job", "role", "profession"),
     ("What does {k} do?", "What is {k}'s job?", "What is the job of {k}?", "What does {k} work as?")),
    (values.person, values.city, ("city", "home", "place"),
     ("Where does {k} live?", "Where is {k}?", "Which city is {k} in?", "Where is {k} from?")),
    (values.person, number, ("score", "points", "room"),
     ("What is {k}'s score?", "How many points does {k} have?", "Which room is {k} in?", "What did {k} get?")),
    (values.person, lambda rng: rng.choice(COLOURS), ("colour", "color", "team", "favourite colour"),
     ("What is {k}'s colour?", "Which color does {k} have?", "Which team is {k} in?", "Which color does {k} like?")),
    (values.person, NOUN, ("pet", "favourite", "gift"),
     ("What does {k} have?", "What does {k} want?", "What does {k} like?", "What did {k} bring?")),
    (values.person, values.email, ("email", "address", "e-mail"),
     ("What is {k}'s email?", "What is the email address of {k}?", "How do I mail {k}?", "Where can I write to {k}?")),
    (values.person, plan, ("appointment", "slot", "day"),
     ("When is {k}'s appointment?", "When does {k} come?", "When is {k} there?", "When is it {k}'s turn?")),
    (NOUN, price, ("price", "cost"),
     ("How much is the {k}?", "How much does the {k} cost?", "What does a {k} cost?", "What is the price of {k}?",
      "How much is a {k}?", "What do I pay for the {k}?", "How much are the {k}s?")),
    (NOUN, number, ("number", "amount", "quantity", "count", "stock", "weight"),
     ("How many {k}s are there?", "How many {k}s do I have?", "How many {k}s?", "How many {k}s are left?")),
    (NOUN, lambda rng: rng.choice(COLOURS), ("colour", "color"),
     ("What colour is the {k}?", "What color is the {k}?", "Which colour is the {k}?", "Which color does the {k} have?")),
    (NOUN, lambda rng: rng.choice(SPOTS), ("place", "location", "room"),
     ("Where is the {k}?", "Where can I find the {k}?", "Where do I put the {k}?", "Where does the {k} belong?")),
    (lambda rng: rng.choice(SPOTS), plan, ("time", "opening time", "hour"),
     ("When does the {k} open?", "When is the {k} open?", "What time is the {k}?", "When do we meet at the {k}?")),
    (values.city, number, ("population", "temperature", "code", "distance"),
     ("What is the temperature in {k}?", "How warm is it in {k}?", "How far is {k}?", "How many people live in {k}?")),
    (values.city, wordlists.made_up_word, ("mayor", "river", "symbol"),
     ("Who is the mayor of {k}?", "Which river is in {k}?", "What is in {k}?", "What is the symbol of {k}?")),
    (values.code, NOUN, ("item", "product", "content"),
     ("What is {k}?", "What does {k} stand for?", "What is in {k}?", "Which item is {k}?")),
    (wordlists.made_up_word, wordlists.word, ("word", "meaning", "translation"),
     ("What does {k} mean?", "What is the meaning of {k}?", "What is {k}?", "Translate {k}.", "What stands for {k}?")),
    (lambda rng: rng.choice(wordlists.LETTERS), wordlists.word, ("value", "letter", "word"),
     ("What is {k}?", "What's {k}?", "What does {k} stand for?", "Which word is {k}?")),
    (lambda rng: f"{rng.choice(('room', 'gate', 'table', 'box', 'line', 'seat', 'team', 'shelf', 'platform'))} {rng.randint(1, 99)}",
     values.span, ("content", "guest", "owner"),
     ("What is in {k}?", "Who has {k}?", "What is {k}?", "What belongs to {k}?", "Who is in {k}?")),
    (lambda rng: rng.choice(values.DAYS), NOUN, ("dish", "topic", "plan", "menu", "lunch"),
     ("What is on {k}?", "What do we have on {k}?", "What is planned for {k}?", "What's for lunch on {k}?", "What happens on {k}?")),
)  # fmt: skip
LINKS: Final = (
    " is ",
    " is ",
    ": ",
    ": ",
    " = ",
    "=",
    " - ",
    " -> ",
    ", ",
    " costs ",
    " has ",
    " (",
    " → ",
    " means ",
    "\t",
    " equals ",
)
SEPARATORS: Final = ("; ", ", ", ". ", "\n", "\n", " / ", " and ", " | ", "\n- ", "; ")
ABOUT_VALUE: Final = wordlists.listed("who whose which")
PLAIN_FORMS: Final = wordings("""
    What is {k}?
    What's {k}?
    [What is|What's|Tell me|Give me|Say|Look up|I need] the {f} [of|for] {k}[?|.|]
    [And what is|So what is|Now, what is] {k}?
    [What|Which] {f} does {k} have?
    {k}?
    {k} is what?
    [What|Which value] belongs to {k}?
    [Which|What] {f} is [given|listed|written|shown] for {k}?
    {f} of {k}?
""")
WHICH_KEY: Final = wordings("""
    [Who|Which one|What] is {v}?
    [Who|Which one|Who or what] has {v}?
    [Which|What] [one |entry |]is {v}?
    [What|Which one|Who] [goes|belongs|comes] with {v}?
""")
HEADS: Final = wordings("""
    [Here is|This is|I have] [a list|my list|the table|the data|our list]:
    [Data|List|Table|Facts|Notes|Given|Info|Know this]:
    [Look at|Read|Use] this:
    [Remember|Note|Suppose|Assume|Imagine]:
""")


def pairs_of(rng: Random, keys: Maker, found: Maker) -> dict[str, str]:
    """Two to seven different keys with different values."""
    made: dict[str, str] = {}
    for _ in range(rng.choice((2, 2, 3, 3, 4, 5, 6, 7))):
        made[keys(rng)] = found(rng)
    firsts = {key.split(" ")[0] if key[0].isupper() else key for key in made}
    fine = len(made) > 1 and len(firsts) == len(made) and len(set(made.values())) == len(made)
    return made if fine else pairs_of(rng, keys, found)


def in_words(rng: Random, pairs: dict[str, str]) -> str:
    """Pairs as people write them: `a is b; c is d`."""
    link, separator = rng.choice(LINKS), rng.choice(SEPARATORS)
    if link in (", ", " - ") and separator in (", ", " / "):
        separator = "; "
    if link == ", " and separator == " and ":
        separator = "; "
    close = ")" if link == " (" else ""
    before = (
        rng.choice(("the ", "The ")) if link == " is " and next(iter(pairs))[0].islower() and rng.random() < 0.5 else ""
    )
    said = [f"{before}{key}{link}{value}{close}" for key, value in pairs.items()]
    text = separator.join(said)
    if separator == "\n- ":
        text = f"- {text}"
    return text + ("." if separator == ". " or (separator in ("; ", ", ", " and ") and rng.random() < 0.5) else "")


def arranged(rng: Random, text: str, wish: str, *, headed: bool = False) -> str:
    """A text and a question about it, as one message; a text that is ``headed`` says itself what it is."""
    glue = "\n" if "\n" in text else rng.choice((" ", " ", "\n"))
    end = "" if text[-1] in ".\n" or glue == "\n" else "."
    form = rng.random()
    if form < 0.2 and not headed:
        head = rng.choice(HEADS)
        return f"{head}{glue}{text}{end}{glue}{wish}"
    if form < 0.35:
        return f"{wish}{glue}{text}"
    if form < 0.45:
        return f"{text}\n\n{wish}"
    return f"{text}{end}{glue}{wish}"


@kind("open", "I look for it among the pairs.", weight=16)
def pairs_in_words(rng: Random, split: Split) -> Dialogue:
    """The value of one of several pairs that a message lists, or the key of a value."""
    keys, found, names, questions = rng.choice(RELATIONS)
    pairs = draw(lambda: pairs_of(rng, keys, found), split, lambda one: f"pairs {one}")
    key = rng.choice(list(pairs))
    text = in_words(rng, pairs)
    form = rng.random()
    if form < 0.22:
        wish = rng.choice(in_split(WHICH_KEY, split, "which key")).replace("{v}", pairs[key])
        return ask(arranged(rng, text, loose(rng, wish)), key)
    if form < 0.62:
        wish = rng.choice(questions).replace("{k}", key)
    else:
        wish = (
            rng.choice(in_split(PLAIN_FORMS, split, "plain pair")).replace("{k}", key).replace("{f}", rng.choice(names))
        )
    wish = loose(rng, wish)
    if rng.random() < 0.12:
        told = user(f"{rng.choice(('', '', 'Remember: ', 'Note: '))}{text}")
        return Dialogue((told, assistant(rng.choice(("OK.", "Noted.", "Got it."))), user(wish)), (pairs[key],))
    return ask(arranged(rng, text, wish), pairs[key])


LIST_HEADS: Final = wordings("""
    [My|Our|The] [groceries|shopping list|tasks|to-do list|guests|friends|colours|books|plans|pets|team|tools|steps|items|list|route][:| are| are:]
    [I need|I bought|We have|I packed|Buy|Bring|Take|I like|We visited|I see|Here are|I have][|:]
    [These are|This is] [my list|the items|the words|what I have|what we need][:|]
""")
ASK_PLACE: Final = wordings("""
    [What|Which] [is|was|comes] [the |]{p}[ one| item| thing|]?
    [What|Which one|Which item] did I [say|name|list|mention] {p}?
    [Tell me|Give me|Name|Say] the {p}[ one| item|][.|]
    [And the|The] {p}[ one| item|]?
    [What|Which one] is {p} [on|in] [the|my] list?
    What's the {p} [one|item|thing][ on the list|]?
""")
ASK_NUMBER: Final = wordings("""
    [What|Which|What item|Which one] is [number|item|no.|point|entry|line|step|#] {n}[ on the list| in my list|]?
    [Tell me|Give me|Say|Read me|Show me] [number|item|point|entry|line|step] {n}[.|, please|]
    [And number|Number|Item|Point] {n}?
    What does [item|line|number|point|step] {n} say?
""")
ASK_COUNT: Final = wordings("""
    How many [things|items|words|names|entries] [are there|are in the list|are on my list|did I list|is that|are these]?
    How many [things|items|] [is that|are that|are these|do I have]?
    [Count|Count them|Count the items|How many]?
    How [long|big] is [my|the] list?
""")
ASK_IN: Final = wordings("""
    Is {x} [in|on|part of] [it|my list|the list]?
    Is {x} [there|one of them|among them|in there|included]?
    [Do I have|Did I say|Did I list|Did I mention|Does it include] {x}?
""")
ASK_AFTER: Final = wordings("""
    [What|Which one|Which item] [comes|is|follows] [right |directly |]after {x}?
    [What|Which] is next after {x}?
    After {x} comes what?
""")
ASK_BEFORE: Final = wordings("""
    [What|Which one|Which item] [comes|is] [right |directly |just |]before {x}?
""")
ASK_SORT: Final = wordings("""
    [Sort|Order|Alphabetize|Arrange] [them|it|these|the list][ alphabetically| from A to Z| in alphabetical order|]
    [Put|Write] [them|these] in [alphabetical |]order
    [Sort|Order] the [words|items|names] alphabetically
""")


def things(rng: Random) -> list[str]:
    """Two to eight different words or names."""
    maker = rng.choice(
        (
            NOUN,
            NOUN,
            wordlists.name,
            values.city,
            wordlists.word,
            lambda r: f"{r.choice(wordlists.ADJECTIVES)} {NOUN(r)}",
        )
    )
    found = list(dict.fromkeys(maker(rng) for _ in range(rng.randint(2, 8))))
    return found if len(found) > 1 else things(rng)


def listed_in_words(rng: Random, items: list[str]) -> str:
    """Items in a sentence or on lines."""
    form = rng.random()
    if form < 0.35:
        return ", ".join(items)
    if form < 0.6:
        return values.enumerated(items)
    if form < 0.7:
        return "\n" + "\n".join(f"{place}. {item}" for place, item in enumerate(items, 1))
    if form < 0.8:
        return "\n" + "\n".join(f"- {item}" for item in items)
    if form < 0.9:
        return "\n" + "\n".join(items)
    return rng.choice(("; ", " / ", " then ", " -> ", ", then ")).join(items)


# Verbs with what they take, in the form of a statement and of a question.
DEEDS: Final = tuple(line.split() for line in """
    likes like|has have|owns own|wants want|needs need|plays play|eats eat|drinks drink|drives drive|speaks speak|sells sell
    teaches teach|studies study|loves love|hates hate|bought buy|found find|lost lose|brings bring|wears wear|reads read
    collects collect|paints paint|makes make|builds build|fixes fix|grows grow|cooks cook|sees see|prefers prefer|chose choose
""".replace("\n", "|").split("|") if line.strip())  # fmt: skip
SPORTS: Final = wordlists.listed(
    "tennis golf swimming rugby football chess hockey skiing running judo cricket rowing sailing poker darts"
)


@kind("open", "I look for who does it.", weight=9)
def deeds_in_words(rng: Random, split: Split) -> Dialogue:
    """Who likes what, of several, asked either way."""
    said, base = rng.choice(DEEDS)
    maker = rng.choice((NOUN, NOUN, lambda r: r.choice(SPORTS), lambda r: r.choice(COURSES), lambda r: r.choice(FOODS),
                        lambda r: f"a {r.choice(COLOURS)} {NOUN(r)}", lambda r: f"{r.randint(2, 99)} {NOUN(r)}s"))  # fmt: skip
    pairs = draw(lambda: pairs_of(rng, values.person, maker), split, lambda one: f"deeds {one}")
    key = rng.choice(list(pairs))
    separator = rng.choice(("; ", ", ", ". ", "\n", " and ", ". ", "\n- "))
    text = separator.join(f"{one} {said} {value}" for one, value in pairs.items())
    text = f"- {text}" if separator == "\n- " else text
    past = "did" if said in ("bought", "found", "lost", "chose") else "does"
    if rng.random() < 0.5:
        return ask(
            arranged(
                rng, text, loose(rng, f"{rng.choice(('Who', 'Who', 'Which one', 'Which person'))} {said} {pairs[key]}?")
            ),
            key,
        )
    wish = rng.choice((f"What {past} {key} {base}?", f"And what {past} {key} {base}?", f"Tell me what {key} {said}."))
    return ask(arranged(rng, text, loose(rng, wish)), pairs[key])


NUMBER_ORDERS: Final = wordings("""
    [Sort|Order|Arrange] [them|these|it|the numbers][ from small to large| from low to high| in ascending order| smallest first|]
    [Put|Write] [them|these] in [ascending |rising |]order
""")


@kind("open", "I look at the list.", weight=11)
def list_in_words(rng: Random, split: Split) -> Dialogue:
    """A question about a list that a sentence or several lines give."""
    items = draw(lambda: things(rng), split, lambda one: f"list {one}")
    place, form = rng.randrange(len(items)), rng.random()
    if form < 0.36:
        name = "last" if place + 1 == len(items) and rng.random() < 0.6 else PLACES[place]
        wish, answer = one_of(rng, in_split(ASK_PLACE, split, "ask place"), p=name), items[place]
        if rng.random() < 0.35:
            wish = one_of(rng, in_split(ASK_NUMBER, split, "ask number"), n=place + 1)
    elif form < 0.52:
        numbered = ", ".join(f"{at} {item}" for at, item in enumerate(items, 1))
        wish, answer = rng.choice(in_split(ASK_COUNT, split, "ask count")), f"{numbered}: {len(items)} items."
    elif form < 0.68:
        other = rng.choice((NOUN, wordlists.name))(rng)
        asked = items[place] if rng.random() < 0.5 else other
        wish = one_of(rng, in_split(ASK_IN, split, "ask in"), x=asked)
        answer = f"Yes, {asked} is in the list." if asked in items else f"No, {asked} is not in the list."
    elif form < 0.8 and place + 1 < len(items):
        wish, answer = one_of(rng, in_split(ASK_AFTER, split, "ask after"), x=items[place]), items[place + 1]
    elif form < 0.88 and place:
        wish, answer = one_of(rng, in_split(ASK_BEFORE, split, "ask before"), x=items[place]), items[place - 1]
    else:
        wish = polite(rng, rng.choice(in_split(ASK_SORT, split, "ask sort")))
        answer = ", ".join(sorted(items, key=str.lower))
    head = f"{rng.choice(in_split(LIST_HEADS, split, 'list head'))} " if rng.random() < 0.7 else ""
    text = f"{head}{listed_in_words(rng, items)}".strip().replace(" \n", "\n")
    return ask(arranged(rng, text, loose(rng, wish), headed=bool(head)), answer)


ECHO_RULES: Final = wordings("""
    [Repeat|Echo|Copy|Return|Write back] [exactly |][what the user says|the user's message|every message|what I say|whatever is said|the user's text][ exactly| word for word| unchanged|][.|]
    You are a parrot[.|:] [Repeat|Echo|Say] [everything|what the user says|each message][ word for word| exactly|].
    You [repeat|echo|copy] [what the user writes|every message|all text][ word for word| exactly| unchanged|][ and nothing else|].
    [Your task is to|Your job is to|Always|Only] [repeat|echo|copy] [the text of the user|the user's words|the message][ exactly|].
""")


@kind("open", "The user wants the same text back.", weight=15)
def copy_prose(rng: Random, split: Split) -> Dialogue:
    """Three to eighty words of prose, names, or letters, given back unchanged."""
    maker = rng.choice((prose, prose, prose, prose, names, letter))
    text = draw(lambda: maker(rng, 3, rng.choice((12, 24, 40, 60, 82))), split, lambda one: f"prose {one}")
    if rng.random() < 0.1:
        before = rng.choice(("", "", "You are a helpful assistant. ", "You are a machine. "))
        return Dialogue((system(before + rng.choice(in_split(ECHO_RULES, split, "echo"))), user(text)), (text,))
    forms = in_split(COPY_FORMS, split, "copy") if rng.random() < 0.75 else in_split(LINES_FORMS, split, "lines")
    form = rng.choice(forms).replace("\\n", "\n")
    shown = f'"{text}"' if '"' not in text and rng.random() < 0.15 and form.endswith("{t}") else text
    return ask(form.replace("{t}", shown), text)

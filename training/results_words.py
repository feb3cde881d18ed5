"""English noun phrases, sentences and values that requests hold and tools return."""

import re
from random import Random
from typing import Final

from training import facts, values, wordlists
from training.wordlists import ADJECTIVES, listed

# Nouns that take a plain s.
NOUNS: Final = tuple(
    noun
    for noun in wordlists.NOUNS
    if not noun.endswith(("s", "x", "ch", "sh", "y", "f", "fe", "o"))
    and noun not in listed("child mouse foot goose sheep people tooth fish woman music rain silver milk cotton gold")
    and noun not in listed("bread salt sand honey jelly sugar snow wood ice air water wind money oil food earth sea")
)

COUNTRIES: Final = tuple(facts.CAPITALS)
ZONES: Final = listed(
    "Europe/Paris Europe/Oslo Asia/Tokyo America/New_York UTC CET GMT EST PST Asia/Kolkata Africa/Cairo"
)
CURRENCIES: Final = listed("USD EUR GBP JPY CHF SEK CAD AUD INR BRL euros dollars pounds yen francs rupees pesos")
LANGUAGES: Final = listed(
    "French German Spanish Italian Dutch Polish Greek Turkish Danish Czech Latin Welsh Japanese Hindi"
)
UNITS: Final = listed(
    "metres feet miles kilometres km inches kilograms kg pounds litres gallons celsius fahrenheit grams"
)
MASS: Final = listed("gold coffee tea bread cheese chocolate silver paper sugar glass cotton milk honey rice music")
ASPECTS: Final = (
    "capital",
    "population",
    "president",
    "flag",
    "history",
    "language",
    "climate",
    "area",
    "king",
    "largest city",
    "currency",
    "highest mountain",
    "national anthem",
    "longest river",
)
DOINGS: Final = listed(
    "bake clean repair draw build paint make cook grow fix open sell wash fold knit plant choose store"
)
SUPERLATIVES: Final = listed("best cheapest oldest largest smallest nearest fastest tallest newest")
QUALITIES: Final = listed("cheap good new used old modern famous small healthy easy local Italian French free")
SKIES: Final = listed("sunny cloudy rainy windy snowy foggy clear overcast stormy misty hot mild humid dry")
PRECIPITATION: Final = listed("rain snow showers hail drizzle sleet fog wind thunderstorms clouds")
DEGREES: Final = listed("light heavy strong scattered occasional moderate thick some")
WARNINGS: Final = listed("storm flood heat wind snow frost avalanche fog thunderstorm ice")
ROUTES: Final = listed("Main High Park Church Mill River Station Bridge Castle Garden King Queen Lake Hill")
TEAMS: Final = listed("Lions Tigers Eagles Bears Sharks Wolves Falcons Hawks Bulls Rovers United Rangers Giants")
SCREENS: Final = listed("web api db mail cache proxy node app worker gateway auth build")
MEETINGS: Final = listed("team budget project design sales status planning yoga dentist lunch review")
TASKS: Final = (
    "call {n}",
    "buy {o}s",
    "pay the rent",
    "feed the {o}",
    "clean the {o}",
    "water the plants",
    "write to {n}",
    "take out the bins",
    "fetch the {o}",
    "renew my passport",
    "book the flights",
    "return the {o}",
    "wash the {a} {o}",
)
MESSAGES: Final = (
    "I will be late",
    "I am {d} minutes late",
    "the meeting is at {h}",
    "the meeting is on {w}",
    "happy birthday",
    "dinner is ready",
    "please call me back",
    "can we talk tomorrow",
    "I left the {o} in the {p}",
    "see you on {w}",
    "thanks for the {o}",
    "we need more {o}s",
    "good morning",
    "good night",
    "where is the {o}",
    "the {o} is {a}",
    "I love the {a} {o}",
    "let us meet at {h}",
    "I have {d} {o}s",
    "{n} is here",
    "my {o} is {a} and {b}",
    "do not forget the {o}",
    "how are you",
    "I am at the {p}",
    "the {a} {o} and the {p} are gone",
    "bring a {o} and {d} {p}s",
)
FACTS: Final = (
    "The {a} {o} was built in {y}.",
    "{c} is famous for its {o}s and {p}s.",
    "{n} was born in {c} in {y}.",
    "The {o} of {c} is {d} metres high.",
    "In {y}, {n} found a {a} {o} near {c}.",
    "Most {o}s in {c} are {a}.",
    "{c} has {d} {o}s and a {a} {p}.",
    "The first {o} was sold in {c} in {y}.",
    "{n} made the {a} {o} for the king of {c}.",
    "A {o} is a {a} {p} that people use in {c}.",
    "The {o} opens at {h} on {w}.",
    "There are {d} {a} {o}s in the {p}.",
    "The capital of {c} is {t}.",
    "{n} is the author of a book about {o}s.",
    "Meet {n} at {h} in the {p}.",
    "The {o} costs {d} euros.",
)
BOILERPLATE: Final = (
    "All data is given without warranty.",
    "The values are updated every {d} minutes.",
    "Thank you for using this service.",
    "This page was changed in {y}.",
    "Please see our terms of use.",
    "For questions, write to the help desk.",
    "Cookies help us to run this site.",
    "All rights reserved.",
    "This is an automatic message.",
    "The request took {d} ms.",
    "Our office opens again on {w}.",
    "Version {d} of this service was released in {y}.",
    "You have {d} requests left for this month.",
)


def filled(rng: Random, form: str) -> str:
    """A form with its letters in braces filled in."""
    if "{" not in form:
        return form
    first, second = rng.choice(NOUNS), rng.choice(NOUNS)
    text = form.format(
        a=rng.choice(ADJECTIVES), b=rng.choice(ADJECTIVES), o=first, p=second, n=wordlists.name(rng),
        c=rng.choice(COUNTRIES[:38]), t=values.city(rng), y=rng.randint(1200, 2026), d=rng.randint(2, 99),
        h=values.clock(rng), w=rng.choice(values.DAYS),
    )  # fmt: skip
    return articled(text)


def articled(text: str) -> str:
    """The text with `an` before vowels."""
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)


def country(rng: Random) -> str:
    """A country."""
    return rng.choice(COUNTRIES)


def topic(rng: Random) -> str:
    """Something that an article may be about."""
    form = rng.random()
    if form < 0.2:
        return f"the {rng.choice(ASPECTS)} of {country(rng)}"
    if form < 0.3:
        return f"{rng.choice(WORLD)} in {values.city(rng)}"
    if form < 0.4:
        return f"the history of {rng.choice((rng.choice(MASS), 'the ' + rng.choice(NOUNS), country(rng)))}"
    if form < 0.52:
        return f"the {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    if form < 0.62:
        return f"{rng.choice(NOUNS)}s and {rng.choice(NOUNS)}s"
    if form < 0.72:
        return f"{wordlists.name(rng)} {wordlists.made_up_word(rng).capitalize()}"
    if form < 0.8:
        return f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}s"
    if form < 0.86:
        return f"{rng.choice(QUALITIES)} {rng.choice(NOUNS)}s in {country(rng)}"
    return rng.choice((rng.choice(MASS), rng.choice(NOUNS) + "s", country(rng), values.city(rng)))


WORLD: Final = ("museums", "restaurants", "hotels", "jobs", "concerts", "schools", "markets", "parks", "football")


def query(rng: Random) -> str:
    """What people search for: one to eight words."""
    form = rng.random()
    if form < 0.4:
        return topic(rng)
    if form < 0.5:
        return articled(f"how to {rng.choice(DOINGS)} a {rng.choice(NOUNS)}")
    if form < 0.6:
        return f"the {rng.choice(SUPERLATIVES)} {rng.choice(NOUNS)} in {rng.choice((values.city, country))(rng)}"
    if form < 0.7:
        ending = rng.choice(("", " for children", " near me", " for beginners", f" in {values.city(rng)}"))
        return f"{rng.choice(QUALITIES)} {rng.choice(NOUNS)}s{ending}"
    if form < 0.78:
        return f"who {rng.choice(('invented', 'painted', 'wrote', 'built', 'discovered'))} the {rng.choice(NOUNS)}"
    if form < 0.84:
        return f"recipes with {rng.choice(MASS)} and {rng.choice(NOUNS)}"
    if form < 0.9:
        return f"the {rng.choice(('price', 'weight', 'origin', 'colour', 'name'))} of {rng.choice(MASS)}"
    if form < 0.95:
        return f"{rng.choice(NOUNS)} {rng.choice(NOUNS)} {rng.randint(1950, 2030)}"
    return f"cheap flights from {values.city(rng)} to {values.city(rng)}"


def message(rng: Random) -> str:
    """What people write to each other, without an end mark."""
    return filled(rng, rng.choice(MESSAGES))


def task(rng: Random) -> str:
    """What somebody wants to be reminded to do."""
    return filled(rng, rng.choice(TASKS))


def event(rng: Random) -> str:
    """The subject of a mail, a ticket or an event."""
    form = rng.random()
    if form < 0.4:
        return f"the {rng.choice(MEETINGS)} {rng.choice(('meeting', 'call', 'plan', 'report'))}"
    if form < 0.7:
        return f"the {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    return rng.choice((f"{rng.choice(MEETINGS)} with {wordlists.name(rng)}", f"the broken {rng.choice(NOUNS)}"))


def title(rng: Random) -> str:
    """The title of a film, a book or a song, or the name of a street or a firm."""
    form = rng.random()
    if form < 0.3:
        return f"The {rng.choice(ADJECTIVES).title()} {rng.choice(NOUNS).title()}"
    if form < 0.5:
        return f"{rng.choice(NOUNS).title()} of {rng.choice(NOUNS).title()}s"
    if form < 0.7:
        return f"{rng.choice(ROUTES)} {rng.choice(('Street', 'Road', 'Lane', 'Avenue'))}"
    if form < 0.85:
        return f"{rng.choice(ADJECTIVES).title()} {rng.choice(NOUNS).title()}"
    return wordlists.made_up_word(rng).capitalize()


def place_name(rng: Random) -> str:
    """The name of a hotel, a restaurant or a shop."""
    form = rng.random()
    if form < 0.4:
        return f"{rng.choice(('Hotel', 'Casa', 'Villa', 'Chez', 'Cafe'))} {rng.choice((wordlists.name, title))(rng)}"
    return f"{rng.choice(ADJECTIVES).title()} {rng.choice(NOUNS).title()}" if form < 0.8 else title(rng)


def product(rng: Random) -> str:
    """Something that a shop has, in the plural so that it follows a number."""
    form = rng.random()
    if form < 0.6:
        return f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}s"
    return f"{rng.choice(NOUNS)}s" if form < 0.85 else f"{wordlists.made_up_word(rng)} {rng.choice(NOUNS)}s"


def code(rng: Random) -> str:
    """A number of an order, an account or a parcel."""
    digits = str(rng.randrange(10 ** rng.choice((3, 4, 4, 5, 6)), 10**7))[: rng.choice((4, 4, 5, 6))]
    form = rng.random()
    if form < 0.45:
        return digits
    letters = "".join(rng.choice(wordlists.LETTERS) for _ in range(rng.randint(1, 3))).upper()
    return f"{letters}{rng.choice(('-', '-', '', '_'))}{digits}" if form < 0.9 else values.code(rng)


def symbol(rng: Random) -> str:
    """A stock symbol."""
    return "".join(rng.choice(wordlists.LETTERS) for _ in range(rng.randint(2, 5))).upper()


def plain_word(rng: Random) -> str:
    """A single word."""
    return rng.choice(wordlists.WORDS) if rng.random() < 0.6 else wordlists.made_up_word(rng)


def language(rng: Random) -> str:
    """A language."""
    return rng.choice(LANGUAGES)


def currency(rng: Random) -> str:
    """A currency as a code or a word."""
    return rng.choice(CURRENCIES)


def unit(rng: Random) -> str:
    """A unit."""
    return rng.choice(UNITS)


def zone(rng: Random) -> str:
    """A time zone."""
    return rng.choice(ZONES)


def number(rng: Random) -> int:
    """A whole number of one to five digits."""
    return rng.randrange(1, 10 ** rng.choice((1, 2, 2, 2, 3, 3, 4, 5)))


def numbers(rng: Random) -> list[int | float]:
    """Several numbers."""
    return [number(rng) for _ in range(rng.randint(3, 6))]


def expression(rng: Random) -> str:
    """An arithmetic expression."""
    text = f"{number(rng)} {rng.choice('+-*/')} {number(rng)}"
    if rng.random() < 0.3:
        text = f"({text}) {rng.choice('+-*/')} {number(rng)}"
    return text


def command(rng: Random) -> str:
    """A shell command."""
    forms = (f"cat {values.path(rng)}", f"rm {values.path(rng)}", f"python {rng.choice(NOUNS)}.py",
             f"mkdir {rng.choice(NOUNS)}", f"git commit -m {rng.choice(NOUNS)}", f"ping {host(rng)}", "make test",
             f"cp {values.path(rng)} {rng.choice(NOUNS)}", f"pip install {rng.choice(NOUNS)}",
             f"touch {rng.choice(NOUNS)}.txt", f"chmod +x {rng.choice(NOUNS)}.sh")  # fmt: skip
    return rng.choice(forms)


def sql(rng: Random) -> str:
    """A query in SQL."""
    table, column = f"{rng.choice(NOUNS)}s", rng.choice(("name", "age", "city", "price", "id"))
    forms = (f"SELECT * FROM {table}", f"SELECT {column} FROM {table}",
             f"SELECT name FROM {table} WHERE age > {rng.randint(10, 90)}",
             f"SELECT * FROM {table} ORDER BY {column}", f"SELECT {column} FROM {table} LIMIT {rng.randint(2, 50)}",
             f"SELECT * FROM {table} WHERE city = '{values.city(rng)}'")  # fmt: skip
    return rng.choice(forms)


def folder(rng: Random) -> str:
    """A folder."""
    name = rng.choice(NOUNS)
    return rng.choice((name, f"/{name}", f"{name}/{rng.choice(NOUNS)}", f"./{name}", f"/home/{name}"))


def host(rng: Random) -> str:
    """A server."""
    return f"{rng.choice(SCREENS)}{rng.choice(('-', '-', ''))}{rng.randint(1, 99)}"


def team(rng: Random) -> str:
    """A team."""
    return rng.choice(TEAMS) if rng.random() < 0.6 else f"{values.city(rng)} {rng.choice(TEAMS)}"


def sky(rng: Random) -> str:
    """What the sky is like."""
    form = rng.random()
    if form < 0.55:
        return rng.choice(SKIES)
    return f"{rng.choice(DEGREES)} {rng.choice(PRECIPITATION)}" if form < 0.85 else f"partly {rng.choice(SKIES)}"


def alert(rng: Random) -> str:
    """A warning of the weather service."""
    return f"{rng.choice(WARNINGS)} {rng.choice(('warning', 'alert', 'watch'))}"


def day(rng: Random) -> str:
    """A day as a request names it."""
    form = rng.random()
    if form < 0.45:
        return rng.choice(values.DAYS)
    return f"next {rng.choice(values.DAYS)}" if form < 0.6 else "tomorrow" if form < 0.75 else "today"


def iso_date(rng: Random) -> str:
    """A date as programs write it."""
    return f"{rng.randint(2019, 2031)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def result_date(rng: Random) -> str:
    """A date as a tool tells it."""
    name = rng.choice(values.MONTHS)
    return rng.choice(
        (iso_date(rng), rng.choice(values.DAYS), f"{rng.randint(1, 28)} {name}", f"{name} {rng.randint(1, 28)}")
    )


def phone(rng: Random) -> str:
    """A telephone number."""
    far = f"+{rng.randint(1, 99)} {rng.randint(100, 999)} {rng.randint(1000, 99999)}"
    return rng.choice((far, f"555-{rng.randint(1000, 9999)}", f"0{rng.randint(100, 999)} {rng.randint(10000, 999999)}"))


def score(rng: Random) -> str:
    """The score of a match."""
    most = rng.choice((6, 6, 120))
    return f"{rng.randint(0, most)}{rng.choice('-:')}{rng.randint(0, most)}"


def flight(rng: Random) -> str:
    """A flight number."""
    return f"{rng.choice(('LH', 'AF', 'BA', 'KL', 'SK', 'UA', 'DL', 'QF', 'EK'))}{rng.randint(10, 9999)}"


def fact(rng: Random) -> str:
    """A sentence, with its full stop."""
    return filled(rng, rng.choice(FACTS))


def fact_title(rng: Random) -> str:
    """A headline."""
    forms = (f"{country(rng)} wins the {rng.choice(NOUNS)} cup", f"New {rng.choice(NOUNS)} opens in {values.city(rng)}",
             f"{wordlists.name(rng)} buys a {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}",
             f"Price of {rng.choice(MASS)} rises by {rng.randint(2, 40)}%",
             f"{rng.choice(ADJECTIVES).capitalize()} {rng.choice(NOUNS)} found near {values.city(rng)}")  # fmt: skip
    return articled(rng.choice(forms))


def meaning(rng: Random) -> str:
    """The definition of a word."""
    a, o, p = rng.choice(ADJECTIVES), rng.choice(NOUNS), rng.choice(NOUNS)
    text = rng.choice((f"a {a} {o}", f"a kind of {o}", f"a {o} for the {p}", f"a person who sells {o}s",
                       f"to put a {o} into a {p}", f"being like a {a} {o}", f"a {a} part of a {o}"))  # fmt: skip
    return articled(text)

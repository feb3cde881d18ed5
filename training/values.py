"""Strings in many cuts, and other values that dialogues hand from place to place."""

from random import Random
from typing import Final

from training import wordlists
from training.facts import CAPITALS

MONTHS: Final = wordlists.listed(
    "January February March April May June July August September October November December"
)
DAYS: Final = wordlists.listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
ENDINGS: Final = wordlists.listed("txt md csv pdf png json py log zip html")
LETTERS: Final = wordlists.LETTERS
MIXED: Final = LETTERS + LETTERS.upper() + "0123456789"


def code(rng: Random) -> str:
    """A reference such as `QX-4821`, `a81f0c`, `INV2093` or `7731`."""
    form = rng.random()
    upper = "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 4))).upper()
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(2, 6)))
    if form < 0.35:
        return f"{upper}{rng.choice(('-', '-', '', '_', '/', '#'))}{digits}"
    if form < 0.5:
        return "".join(rng.choice("0123456789abcdef") for _ in range(rng.randint(4, 12)))
    if form < 0.65:
        return "".join(rng.choice(MIXED) for _ in range(rng.randint(3, 12)))
    if form < 0.8:
        return f"{wordlists.word(rng)}{rng.choice('-_')}{rng.choice((digits, wordlists.word(rng)))}"
    return digits


def person(rng: Random) -> str:
    """A first name, often with a family name."""
    first = wordlists.name(rng)
    return first if rng.random() < 0.5 else f"{first} {wordlists.made_up_word(rng).capitalize()}"


def city(rng: Random) -> str:
    """A place, made up as often as not."""
    if rng.random() < 0.5:
        return rng.choice(list(CAPITALS.values()))
    name = wordlists.made_up_word(rng).capitalize()
    return name if rng.random() < 0.8 else f"{rng.choice(('New', 'Port', 'Bad', 'San', 'East', 'Upper'))} {name}"


def date(rng: Random) -> str:
    """A date in one of several forms."""
    day, month, year = rng.randint(1, 28), rng.randint(1, 12), rng.randint(1990, 2035)
    name = MONTHS[month - 1]
    forms = (f"{year}-{month:02}-{day:02}", f"{year}-{month:02}-{day:02}", f"{day} {name}", f"{name} {day}",
             f"{name} {day}, {year}", f"{day}.{month}.{year}", rng.choice(DAYS), f"next {rng.choice(DAYS)}",
             "tomorrow", "today", name)  # fmt: skip
    return rng.choice(forms)


def clock(rng: Random) -> str:
    """A time of day."""
    hour, minute = rng.randrange(24), rng.randrange(60)
    return rng.choice((f"{hour:02}:{minute:02}", f"{hour % 12 + 1} {rng.choice(('am', 'pm'))}", f"{hour:02}:00"))


def email(rng: Random) -> str:
    """An address of somebody."""
    who = wordlists.name(rng).lower() + rng.choice(("", "." + wordlists.made_up_word(rng), str(rng.randrange(100))))
    return f"{who}@{wordlists.made_up_word(rng)}.{rng.choice(('com', 'org', 'net', 'io', 'example'))}"


def path(rng: Random) -> str:
    """A file, with or without folders."""
    folders = "".join(wordlists.word(rng) + "/" for _ in range(rng.choice((0, 0, 1, 2))))
    return f"{rng.choice(('', '', '/', './'))}{folders}{wordlists.word(rng)}.{rng.choice(ENDINGS)}"


def url(rng: Random) -> str:
    """The address of a page."""
    return f"https://{wordlists.made_up_word(rng)}.{rng.choice(('com', 'org', 'net', 'io'))}/{wordlists.word(rng)}"


def words(rng: Random, fewest: int = 1, most: int = 5) -> str:
    """Several words, in lower case or as a title."""
    text = " ".join(wordlists.word(rng) for _ in range(rng.randint(fewest, most)))
    return rng.choice((text, text, text.capitalize(), text.title()))


def span(rng: Random) -> str:
    """A string of any cut without quotes, line ends or a mark at its end."""
    form = rng.random()
    if form < 0.3:
        return words(rng, 1, 4)
    if form < 0.5:
        return wordlists.made_up_word(rng) if rng.random() < 0.5 else wordlists.word(rng)
    if form < 0.7:
        return code(rng)
    return rng.choice((person, city, date, clock, email, path, words, person))(rng)


def hard_string(rng: Random) -> str:
    """Characters of several scripts, digits and marks, in groups."""
    pieces = [
        rng.choice((wordlists.token_string, code, wordlists.word, wordlists.letter_string))(rng)
        for _ in range(rng.randint(1, 8))
    ]
    return rng.choice((" ", " ", " ", "", "-", ", ", "/")).join(pieces)


def enumerated(items: list[str], last: str = "and") -> str:
    """Items as they stand in a sentence: `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"

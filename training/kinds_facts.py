"""Kinds that ask for a fact of the tables: the facts are all trained, the sentences that ask for them are held out."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from training import facts
from training.registry import Dialogue, Split, ask, draw, kind, loose, one_of, polite
from training.wordlists import LETTERS


@dataclass(frozen=True)
class Question:
    """A question with its full answer and the answer in a word."""

    text: str
    full: str
    short: str


def wording(split: Split, make: Callable[[], Question]) -> Question:
    """A question whose text, letter case and end mark apart, belongs to the split."""
    return draw(make, split, lambda question: "wording " + question.text.lower().rstrip(".?!"))


def answered(question: Question) -> Dialogue:
    """The question with its full answer."""
    return ask(question.text, question.full)


def capital_question(rng: Random) -> Question:
    """The capital of a country."""
    country, city = rng.choice(list(facts.CAPITALS.items()))
    forms: tuple[str, ...] = (
        "What is the capital of {c}?",
        "What's the capital of {c}?",
        "Which city is the capital of {c}?",
        "Capital of {c}?",
    )
    forms += ("Name the capital of {c}.", "Tell me the capital of {c}.", "What is the capital city of {c}?")
    forms += ("What is {c}'s capital?", "Do you know the capital of {c}?", "The capital of {c}?")
    return Question(loose(rng, one_of(rng, forms, c=country)), f"The capital of {country} is {city}.", city)


def opposite_question(rng: Random) -> Question:
    """The opposite of a word."""
    word, opposite = rng.choice(list(facts.OPPOSITES.items()))
    forms: tuple[str, ...] = (
        "What is the opposite of {w}?",
        "What's the opposite of {w}?",
        "Opposite of {w}?",
        "Give me the opposite of {w}.",
    )
    forms += ('What is the opposite of "{w}"?', "Tell me the opposite of {w}.", "What word is the opposite of {w}?")
    return Question(loose(rng, one_of(rng, forms, w=word)), f"The opposite of {word} is {opposite}.", opposite)


def sound_question(rng: Random) -> Question:
    """The sound of an animal."""
    animal, sound = rng.choice(list(facts.SOUNDS.items()))
    one = ("an " if animal[0] in "aeiou" else "a ") + animal
    forms: tuple[str, ...] = (
        "What does {o} say?",
        "What sound does {o} make?",
        "What noise does {o} make?",
        "What does the {a} say?",
    )
    forms += (
        "Which sound does {o} make?",
        "What is the sound of {o}?",
        "How does {o} sound?",
        "Make the sound of {o}.",
    )
    return Question(loose(rng, one_of(rng, forms, a=animal, o=one)), f"The {animal} says {sound}.", sound)


def colour_question(rng: Random) -> Question:
    """The colour of a thing."""
    thing, colour = rng.choice(list(facts.COLOURS.items()))
    forms: tuple[str, ...] = (
        "What colour is {t}?",
        "What color is {t}?",
        "What is the colour of {t}?",
        "What is the color of {t}?",
    )
    forms += ("Which colour is {t}?", "Tell me the colour of {t}.", "What colour does {t} have?")
    return Question(loose(rng, one_of(rng, forms, t=thing)), f"{thing.capitalize()} is {colour}.", colour)


def neighbour_question(rng: Random) -> Question:
    """What comes before or after a day, a month or a letter."""
    noun, ring = rng.choice((("day", facts.DAYS), ("month", facts.MONTHS), ("letter", list(LETTERS))))
    place = rng.randrange(len(ring))
    step, relation = rng.choice(((1, "after"), (-1, "before")))
    if noun == "letter":
        place = min(max(place, 1), 24)
    item, neighbour = ring[place], ring[(place + step) % len(ring)]
    forms: tuple[str, ...] = (
        "What {n} comes {r} {i}?",
        "Which {n} comes {r} {i}?",
        "What {n} is {r} {i}?",
        "What is the {n} {r} {i}?",
    )
    forms += ("Which {n} is {r} {i}?", "Name the {n} {r} {i}.", "Tell me the {n} that comes {r} {i}.")
    full = f"{neighbour} comes {relation} {item}."
    return Question(loose(rng, one_of(rng, forms, n=noun, r=relation, i=item)), full, neighbour)


def translation_question(rng: Random) -> Question:
    """A word in another language."""
    word, forms_abroad = rng.choice(list(facts.TRANSLATIONS.items()))
    language = rng.randrange(len(facts.LANGUAGES))
    forms: tuple[str, ...] = (
        "How do you say {w} in {l}?",
        "What is {w} in {l}?",
        "Translate {w} into {l}.",
        'What is "{w}" in {l}?',
    )
    forms += (
        "Translate {w} to {l}.",
        "What is the {l} word for {w}?",
        'Translate "{w}" to {l}.',
        "{w} in {l}?",
        "Say {w} in {l}.",
    )
    text = loose(rng, one_of(rng, forms, w=word, l=facts.LANGUAGES[language]))
    return Question(text, f"{word} in {facts.LANGUAGES[language]} is {forms_abroad[language]}.", forms_abroad[language])


def plural_question(rng: Random) -> Question:
    """The plural of a noun."""
    word, plural = rng.choice(list(facts.PLURALS.items()))
    forms: tuple[str, ...] = (
        "What is the plural of {w}?",
        "What's the plural of {w}?",
        "Plural of {w}?",
        "Give me the plural of {w}.",
    )
    forms += ('What is the plural of "{w}"?', "Tell me the plural form of {w}.", "How do you write more than one {w}?")
    return Question(loose(rng, one_of(rng, forms, w=word)), f"The plural of {word} is {plural}.", plural)


SHORT_QUESTIONS = (
    capital_question, opposite_question, sound_question, colour_question, neighbour_question, plural_question,
)  # fmt: skip


def any_question(rng: Random) -> Question:
    """A question of any table with one-word answers."""
    return rng.choice(SHORT_QUESTIONS)(rng)


@kind("wording", "The user asks for a capital.", weight=1.5)
def capital(rng: Random, split: Split) -> Dialogue:
    """The capital of a known country."""
    return answered(wording(split, lambda: capital_question(rng)))


@kind("wording", "The user asks for an opposite.", weight=1.3)
def opposite(rng: Random, split: Split) -> Dialogue:
    """The opposite of a known word."""
    return answered(wording(split, lambda: opposite_question(rng)))


@kind("wording", "The user asks for an animal sound.")
def animal_sound(rng: Random, split: Split) -> Dialogue:
    """The sound of a known animal."""
    return answered(wording(split, lambda: sound_question(rng)))


@kind("wording", "The user asks for a colour.")
def colour_of(rng: Random, split: Split) -> Dialogue:
    """The colour of a known thing."""
    return answered(wording(split, lambda: colour_question(rng)))


@kind("wording", "The user asks for a neighbour in a fixed order.", weight=1.5)
def neighbour(rng: Random, split: Split) -> Dialogue:
    """The day, month or letter before or after another."""
    return answered(wording(split, lambda: neighbour_question(rng)))


@kind("wording", "The user wants a translation.", weight=1.5)
def translate(rng: Random, split: Split) -> Dialogue:
    """A known word in French, Spanish or German."""
    return answered(wording(split, lambda: translation_question(rng)))


@kind("wording", "The user asks for a plural.")
def plural(rng: Random, split: Split) -> Dialogue:
    """The plural of a known noun."""
    return answered(wording(split, lambda: plural_question(rng)))


@kind("wording", "The user asks a yes or no question.", weight=1.3)
def yes_no(rng: Random, split: Split) -> Dialogue:
    """A yes-or-no question about a known fact."""

    def make() -> Question:
        question, answer = rng.choice(list(facts.YES_NO.items()))
        before = ("", "", "", "Tell me: ", "Yes or no: ", "Quick question: ", "I wonder: ", "Answer yes or no: ")
        return Question(rng.choice(before) + loose(rng, question), answer, "")

    return answered(wording(split, make))


@kind("wording", "The user asks how many.")
def quantity(rng: Random, split: Split) -> Dialogue:
    """How many of something there are, or how many legs an animal has."""

    def make() -> Question:
        if rng.random() < 0.6:
            thing, answer = rng.choice(list(facts.QUANTITIES.items()))
        else:
            animal, legs = rng.choice(list(facts.LEGS.items()))
            thing, answer = f"legs does {animal} have", f"{animal.capitalize()} has {legs} legs."
        before = ("", "", "", "Tell me: ", "Do you know: ", "Quick question: ")
        return Question(rng.choice(before) + loose(rng, f"How many {thing}?"), answer, "")

    return answered(wording(split, make))


@kind("wording", "The user asks what something is.")
def group_of(rng: Random, split: Split) -> Dialogue:
    """The group a known thing belongs to."""

    def make() -> Question:
        thing, group = rng.choice(list(facts.GROUPS.items()))
        forms = (
            "What is {t}?",
            "What kind of thing is {t}?",
            "Tell me what {t} is.",
            "What's {t}?",
            "Do you know what {t} is?",
        )
        full = f"{thing[0].upper() + thing[1:]} is {group}."
        return Question(loose(rng, one_of(rng, forms, t=thing)), full, group)

    return answered(wording(split, make))


@kind("wording", "The user wants a list of a few things.", weight=3)
def list_items(rng: Random, split: Split) -> Dialogue:
    """The first few entries of a known category."""

    def make() -> Question:
        category, items = rng.choice(list(facts.CATEGORIES.items()))
        count = rng.randint(1, len(items)) if category not in ("days of the week",) else rng.choice((3, 7))
        count = max(2, count)
        number = rng.choice((str(count), facts.NUMBER_WORDS[count]))
        forms = [
            "List {n} {c}",
            "Name {n} {c}",
            "Give me {n} {c}",
            "Tell me {n} {c}",
            "Write down {n} {c}",
            "Give a list of {n} {c}",
        ]
        if count == len(items):
            forms += ["List all {c}", "List the {c}", "Name the {c}", "Name all {c}"] * 2
        text = polite(rng, one_of(rng, forms, n=number, c=category))
        return Question(text, ", ".join(items[:count]), "")

    return answered(wording(split, make))


@kind("wording", "The user wants the rest of a sentence.", weight=1.5)
def complete_sentence(rng: Random, split: Split) -> Dialogue:
    """The last word of a known sentence."""

    def make() -> Question:
        start, end = rng.choice(list(facts.SENTENCES.items()))
        forms: tuple[str, ...] = (
            "Complete the sentence: {s} ...",
            "Finish this sentence: {s}",
            "Complete: {s}",
            "Fill in the blank: {s} ___",
        )
        forms += ("Complete this sentence: {s}", "Finish the sentence: {s} ...", "{s} ...", "What comes next? {s} ...")
        return Question(one_of(rng, forms, s=start), f"{start} {end}", "")

    return answered(wording(split, make))


@kind("wording", "The user wants a number in another form.")
def number_word(rng: Random, split: Split) -> Dialogue:
    """A number up to twenty in words, or the other way round."""

    def make() -> Question:
        value = rng.randrange(21)
        word = facts.NUMBER_WORDS[value]
        if rng.random() < 0.6:
            forms = (
                "Write {v} in words",
                "Write the number {v} as a word",
                "Spell the number {v}",
                "Write {v} as a word",
            )
            return Question(polite(rng, one_of(rng, forms, v=value)), f"{value} in words is {word}.", word)
        forms = (
            "Write {v} in digits",
            "Write {v} as a number",
            "Write the number {v} in digits",
            "Write {v} with digits",
        )
        return Question(polite(rng, one_of(rng, forms, v=word)), f"{word} in digits is {value}.", str(value))

    return answered(wording(split, make))

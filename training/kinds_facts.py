"""Kinds that ask for a fact of the tables: the facts are all trained, the sentences that ask for them are held out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from training import facts
from training.registry import Dialogue, Split, ask, casual, draw, kind, lines, loose, one_of, polite, wordings
from training.wordlists import LETTERS


@dataclass(frozen=True)
class Question:
    """A question with its full answer and the answer in a word."""

    text: str
    full: str
    short: str


Asker = Callable[[Random], Question]


def wording(split: Split, make: Callable[[], Question]) -> Question:
    """A question whose text, letter case and end mark apart, belongs to the split."""
    return draw(make, split, lambda question: "wording " + question.text.lower().rstrip(".?!"))


def fact_kind(thought: str, *, weight: float = 1.0) -> Callable[[Asker], Asker]:
    """A decorator that registers a kind under its function's name: the question, answered in full."""

    def register(make: Asker) -> Asker:
        def generate(rng: Random, split: Split) -> Dialogue:
            question = wording(split, lambda: make(rng))
            return ask(question.text, question.full)

        kind("wording", thought, weight=weight, name=make.__name__)(generate)
        return make

    return register


def looked_up(rng: Random, table: Mapping[str, str], full: str, forms: Sequence[str]) -> Question:
    """A question for an entry of a table.

    In the forms and the full answer ``k`` is the key, ``K`` the same with a capital, ``o`` with an article,
    and ``v`` the value.
    """
    key, value = rng.choice(list(table.items()))
    article = "an" if key[0] in "aeiou" else "a"
    names = {"k": key, "K": key[0].upper() + key[1:], "o": f"{article} {key}", "v": value}
    return Question(casual(rng, loose(rng, one_of(rng, forms, **names))), full.format(**names), value)


def of_a_word(noun: str) -> tuple[str, ...]:
    """Forms of a question for something that a word has."""
    forms = (
        "What is the {n} of {k}?",
        "What's the {n} of {k}?",
        "{N} of {k}?",
        "Give me the {n} of {k}.",
        'What is the {n} of "{k}"?',
    )
    return tuple(form.replace("{n}", noun).replace("{N}", noun.capitalize()) for form in forms)


CAPITAL_FORMS = wordings("""
    [Do you know|Can you tell me|Tell me|Please tell me|I need|Give me|What is|What's|Could you tell me] [the capital|the capital city] of {k}[?|]
    [Which|What] city is [the capital of {k}|{k}'s capital]?
    [What|Which] is the capital [city of|of] {k}?
    [And the|So the|Quick question: the|Easy one: the] capital of {k}?
    {k}'s capital[ city|]?
    [What|Which city] is the capital in {k}?
""")
OPPOSITE_FORMS = wordings("""
    [What is|What's|Tell me|Give me|Do you know|Can you tell me|Say] [the opposite|the opposite word|an antonym] [of|for] [{k}|"{k}"|'{k}'|the word {k}][?|]
    [The opposite|Opposite|Antonym] of {k}[?|, please|]
    [If it is not {k}, it is what|{k} is the opposite of what|Which word means the opposite of {k}|What means the opposite of {k}]?
    {k} - [opposite|what is the opposite]?
""")
SOUND_FORMS = wordings("""
    [What|Which|What kind of] [sound|noise] [does {o} make|do you hear from {o}|does the {k} make]?
    [What does {o} say|What does the {k} say|How does the {k} go|How does {o} go|What do {k}s say]?
    [Tell me|Do you know|Can you tell me] [what sound {o} makes|what {o} says|the sound of {o}][?|]
""")
COLOUR_FORMS = wordings("""
    [What|Which] [colour|color] [is|has] {k}[ usually| normally|]?
    [Tell me|Do you know|Can you tell me|What is|What's] [the colour|the color] of {k}[?|]
    [The colour|The color|Colour|Color] of {k}?
    {k} is what [colour|color]?
""")
NEIGHBOUR_FORMS = wordings("""
    [What|Which] [comes|is] [right |directly |just |]{r} {i}?
    [Which|What] {n} [comes|is|do we have] [right |directly |the {n} |]{r} {i}?
    [Tell me|Do you know|Can you tell me] [what|which {n}] [comes|is] {r} {i}[?|]
    [The {n}|And the {n}] {r} {i}?
""")


@fact_kind("The user asks for a capital.", weight=2.5)
def capital(rng: Random) -> Question:
    """The capital of a known country."""
    forms = lines("""
        What is the capital of {k}?
        What's the capital of {k}?
        Which city is the capital of {k}?
        Capital of {k}?
        Name the capital of {k}.
        Tell me the capital of {k}.
        What is the capital city of {k}?
        What is {k}'s capital?
        Do you know the capital of {k}?
        The capital of {k}?
    """)
    forms += CAPITAL_FORMS
    return looked_up(rng, facts.CAPITALS, "The capital of {k} is {v}.", forms)


@fact_kind("The user asks for an opposite.", weight=3)
def opposite(rng: Random) -> Question:
    """The opposite of a known word."""
    forms = (
        *of_a_word("opposite"),
        "Tell me the opposite of {k}.",
        "What word is the opposite of {k}?",
        *OPPOSITE_FORMS,
    )
    return looked_up(rng, facts.OPPOSITES, "The opposite of {k} is {v}.", forms)


@fact_kind("The user asks for an animal sound.")
def animal_sound(rng: Random) -> Question:
    """The sound of a known animal."""
    forms = lines("""
        What does {o} say?
        What sound does {o} make?
        What noise does {o} make?
        What does the {k} say?
        Which sound does {o} make?
        What is the sound of {o}?
        How does {o} sound?
        Make the sound of {o}.
    """)
    forms += SOUND_FORMS
    return looked_up(rng, facts.SOUNDS, "The {k} says {v}.", forms)


@fact_kind("The user asks for a colour.", weight=1.7)
def colour_of(rng: Random) -> Question:
    """The colour of a known thing."""
    forms = lines("""
        What colour is {k}?
        What color is {k}?
        What is the colour of {k}?
        What is the color of {k}?
        Which colour is {k}?
        Tell me the colour of {k}.
        What colour does {k} have?
    """)
    forms += COLOUR_FORMS
    return looked_up(rng, facts.COLOURS, "{K} is {v}.", forms)


@fact_kind("The user asks for a neighbour in a fixed order.", weight=1.5)
def neighbour(rng: Random) -> Question:
    """The day, month or letter before or after another."""
    noun, ring = rng.choice((("day", facts.DAYS), ("month", facts.MONTHS), ("letter", list(LETTERS))))
    place = rng.randrange(len(ring))
    step, relation = rng.choice(((1, "after"), (-1, "before")))
    if noun == "letter":
        place = min(max(place, 1), 24)
    item, found = ring[place], ring[(place + step) % len(ring)]
    forms = lines("""
        What {n} comes {r} {i}?
        Which {n} comes {r} {i}?
        What {n} is {r} {i}?
        What is the {n} {r} {i}?
        Which {n} is {r} {i}?
        Name the {n} {r} {i}.
        Tell me the {n} that comes {r} {i}.
    """)
    forms += NEIGHBOUR_FORMS if noun != "letter" else ()
    full = f"{found} comes {relation} {item}."
    return Question(casual(rng, loose(rng, one_of(rng, forms, n=noun, r=relation, i=item))), full, found)


@fact_kind("The user wants a translation.", weight=1.5)
def translate(rng: Random) -> Question:
    """A known word in French, Spanish or German."""
    word, abroad = rng.choice(list(facts.TRANSLATIONS.items()))
    language, translated = rng.choice(list(zip(facts.LANGUAGES, abroad, strict=True)))
    forms = lines("""
        How do you say {w} in {l}?
        What is {w} in {l}?
        Translate {w} into {l}.
        What is "{w}" in {l}?
        Translate {w} to {l}.
        What is the {l} word for {w}?
        Translate "{w}" to {l}.
        {w} in {l}?
        Say {w} in {l}.
    """)
    text = loose(rng, one_of(rng, forms, w=word, l=language))
    return Question(text, f"{word} in {language} is {translated}.", translated)


@fact_kind("The user asks for a plural.")
def plural(rng: Random) -> Question:
    """The plural of a known noun."""
    forms = (*of_a_word("plural"), "Tell me the plural form of {k}.", "How do you write more than one {k}?")
    return looked_up(rng, facts.PLURALS, "The plural of {k} is {v}.", forms)


SENTENCE_FORMS: Final = wordings("""
    [Complete|Finish|Please complete|Can you finish|Continue] [the|this] [sentence|saying|phrase|line]: {s}[ ...|...| ___| …|]
    [Complete|Finish|Continue]: {s}[ ...|| ___]
    Fill in the [blank|gap|last word|missing word]: {s}[ ___| ____| ...|]
    [What comes next?|What is the last word?|How does this end?|Which word is missing?] {s}[ ...|...| ___]
    {s}[ ...|...| ___|…]
    {s} what?
""")
RETOLD: Final = wordings("""
    {s}
    {s}.
    {S}.
    [It is|It's|That is|That's|That would be] {s}.
    [Sure|Of course|Easy|Good question|Yes][!|.|,] {f}
    [The answer is|I think it is|My answer is][:|] {s}.
    {f} [Anything else?|Do you need anything else?|Happy to help!|Let me know if you need more.]
""")


def retold(rng: Random, question: Question) -> str:
    """The answer as another model might have given it, for earlier turns."""
    if rng.random() < 0.5 or not question.short:
        return question.full
    short = question.short
    return rng.choice(RETOLD).format(s=short, S=short[0].upper() + short[1:], f=question.full)


SHORT_QUESTIONS = (capital, opposite, animal_sound, colour_of, neighbour, plural)


def any_question(rng: Random) -> Question:
    """A question of any table with one-word answers."""
    return rng.choice(SHORT_QUESTIONS)(rng)


@fact_kind("The user asks a yes or no question.", weight=3)
def yes_no(rng: Random) -> Question:
    """A yes-or-no question about a known fact."""
    question, answer = rng.choice(list(facts.YES_NO.items()))
    before = ("", "", "", "Tell me: ", "Yes or no: ", "Quick question: ", "I wonder: ", "Answer yes or no: ")
    return Question(rng.choice(before) + loose(rng, question), answer, "")


@fact_kind("The user asks how many.")
def quantity(rng: Random) -> Question:
    """How many of something there are, or how many legs an animal has."""
    if rng.random() < 0.6:
        thing, answer = rng.choice(list(facts.QUANTITIES.items()))
    else:
        animal, legs = rng.choice(list(facts.LEGS.items()))
        thing, answer = f"legs does {animal} have", f"{animal.capitalize()} has {legs} legs."
    before = ("", "", "", "Tell me: ", "Do you know: ", "Quick question: ")
    return Question(rng.choice(before) + casual(rng, loose(rng, f"How many {thing}?")), answer, "")


@fact_kind("The user asks something that everybody knows.", weight=2)
def common_fact(rng: Random) -> Question:
    """A few questions with answers of their own."""
    questions, answer = rng.choice(facts.COMMON)
    before = ("", "", "", "", "Tell me: ", "Quick question: ", "Do you know? ")
    return Question(rng.choice(before) + casual(rng, loose(rng, rng.choice(wordings(questions)))), answer, "")


@fact_kind("The user asks what something is.")
def group_of(rng: Random) -> Question:
    """The group a known thing belongs to."""
    forms = lines("""
        What is {k}?
        What kind of thing is {k}?
        Tell me what {k} is.
        What's {k}?
        Do you know what {k} is?
    """)
    return looked_up(rng, facts.GROUPS, "{K} is {v}.", forms)


@fact_kind("The user wants a list of a few things.", weight=3)
def list_items(rng: Random) -> Question:
    """The first few entries of a known category."""
    category, items = rng.choice(list(facts.CATEGORIES.items()))
    count = rng.randint(1, len(items)) if category not in ("days of the week",) else rng.choice((3, 7))
    count = max(2, count)
    number = rng.choice((str(count), facts.NUMBER_WORDS[count]))
    forms = lines("""
        List {n} {c}
        Name {n} {c}
        Give me {n} {c}
        Tell me {n} {c}
        Write down {n} {c}
        Give a list of {n} {c}
    """)
    if count == len(items):
        forms += ("List all {c}", "List the {c}", "Name the {c}", "Name all {c}") * 2
    text = polite(rng, one_of(rng, forms, n=number, c=category))
    return Question(text, ", ".join(items[:count]), "")


@fact_kind("The user wants the rest of a sentence.", weight=3)
def complete_sentence(rng: Random) -> Question:
    """The last word of a known sentence."""
    start, end = rng.choice(list(facts.SENTENCES.items()))
    return Question(one_of(rng, SENTENCE_FORMS, s=start), f"{start} {end}", "")


@fact_kind("The user wants a number in another form.")
def number_word(rng: Random) -> Question:
    """A number up to twenty in words, or the other way round."""
    value = rng.randrange(21)
    word = facts.NUMBER_WORDS[value]
    if rng.random() < 0.6:
        forms = lines("""
            Write {v} in words
            Write the number {v} as a word
            Spell the number {v}
            Write {v} as a word
        """)
        return Question(polite(rng, one_of(rng, forms, v=value)), f"{value} in words is {word}.", word)
    forms = lines("""
        Write {v} in digits
        Write {v} as a number
        Write the number {v} in digits
        Write {v} with digits
    """)
    return Question(polite(rng, one_of(rng, forms, v=word)), f"{word} in digits is {value}.", str(value))

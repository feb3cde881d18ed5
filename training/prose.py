"""Ordinary prose: sentences of several clauses with names, numbers and commas, composed of parts."""

from random import Random
from typing import Final

from training import values, wordlists
from training.registry import lines
from training.wordlists import ADJECTIVES, NAMES, NOUNS, VERBS, listed

TOPICS: Final = listed(
    """agriculture algebra algorithm animation antibiotic architecture astronomy atom ballet bacteria baseball biology
    blockchain botany calculus capitalism chemistry chess climate compiler constitution cricket culture cybersecurity
    database democracy dinosaur economy ecosystem education electricity electron encryption energy engineering enzyme
    evolution export fashion finance galaxy genetics geography geology geometry globalization government gravity
    history hurricane immigration inflation insurance internet investment journalism justice kernel language laser
    linguistics literature logic magnetism mathematics medicine metabolism microscope migration molecule mortgage
    museum mythology nutrition oceanography opera optics oxygen parliament pension philosophy photosynthesis physics
    plastic politics pollution population poverty probability programming protein psychology quantum racism radiation
    recursion recycling relativity religion renaissance republic revolution robotics satellite science sculpture
    semiconductor socialism sociology software statistics taxation telescope theater thermodynamics tourism trade
    unemployment universe vaccine virus vitamin volcano yoga zoology"""
)
PLACES: Final = listed(
    """airport bakery balcony bank basement beach bridge café campus canal castle cathedral cellar clinic coast courtyard
    desert factory farm forest gallery garage garden gym harbor highway hotel island kitchen laboratory lake library
    lobby market meadow mountain museum office park playground port railway restaurant river roof school shore stadium
    station street studio supermarket terrace theater tunnel university valley village warehouse workshop zoo"""
)
MOMENTS: Final = lines("""
    yesterday
    last night
    last week
    this morning
    every evening
    on most days
    in the summer
    in early spring
    before breakfast
    after lunch
    just before midnight
    at the end of the month
    for the first time in years
    as usual
    twice a year
    on her birthday
    during the meeting
    a long time ago
    at dawn
    once in a while
""")
PAST: Final = listed(
    """accepted added admired announced answered arranged asked avoided baked borrowed bought broke brought built
    carried caught changed checked chose cleaned climbed closed collected compared completed cooked counted covered
    created crossed delivered described designed discovered discussed drew dropped enjoyed examined explained explored
    fed finished fixed followed forgot found gathered gave guarded heard helped hid ignored improved inspected invited
    joined kept knew learned left lent lifted listed loaded loved made measured mentioned missed moved needed noticed
    offered opened ordered organized packed painted passed planned planted polished prepared printed promised protected
    published pulled pushed put read received recommended recorded remembered removed repaired replaced reported
    returned saved sent served shared showed signed sold stored studied taught tested thanked told took touched
    translated tried understood used visited waited warned washed watched wore wrapped wrote"""
)
HOW: Final = listed(
    """quickly slowly carefully happily sadly quietly loudly proudly calmly suddenly finally certainly perhaps usually
    rarely gently eagerly honestly politely secretly"""
)
WHY: Final = lines("""
    because {c}
    although {c}
    while {c}
    so {c}
    and {c}
    but {c}
    when {c}
    since {c}
    until {c}
    before {c}
    after {c}
    even though {c}
""")


THINGS: Final = (*NOUNS, *PLACES)


def thing(rng: Random) -> str:
    """A noun with what may stand before it."""
    draw = rng.random()
    noun = rng.choice(THINGS) if draw < 0.75 else rng.choice(TOPICS) if draw < 0.9 else wordlists.made_up_word(rng)
    adjective = f"{rng.choice(ADJECTIVES)} " if rng.random() < 0.4 else ""
    form = rng.random()
    if form < 0.4:
        return f"the {adjective}{noun}"
    if form < 0.6:
        first = (adjective or noun)[0]
        return f"{'an' if first in 'aeiou' else 'a'} {adjective}{noun}"
    if form < 0.8:
        return f"{rng.choice(('my', 'our', 'his', 'her', 'their', 'this', 'that', 'your', 'its'))} {adjective}{noun}"
    if noun in TOPICS:
        return noun
    if form < 0.9:
        return f"{rng.randint(2, 999)} {adjective}{noun}s"
    return f"{rng.choice(('two', 'three', 'some', 'many', 'several', 'no', 'all'))} {adjective}{noun}s"


def who(rng: Random) -> str:
    """Somebody or something that does things."""
    form = rng.random()
    if form < 0.04:
        return f"{rng.choice(('O', 'D'))}'{wordlists.made_up_word(rng).capitalize()}"
    if form < 0.08:
        return f"{rng.choice(NAMES)}'s {rng.choice(NOUNS)}"
    if form < 0.35:
        return rng.choice(NAMES)
    if form < 0.45:
        return values.person(rng)
    if form < 0.65:
        return rng.choice(("I", "we", "they", "he", "she", "you", "nobody", "everyone"))
    return thing(rng)


def clause(rng: Random) -> str:
    """Somebody did something, in lower case but for names."""
    subject, form = who(rng), rng.random()
    when = f" {rng.choice(MOMENTS)}" if rng.random() < 0.3 else ""
    how = f" {rng.choice(HOW)}" if rng.random() < 0.2 else ""
    if form < 0.55:
        where = f" {rng.choice(('in', 'at', 'near', 'behind', 'from', 'for', 'with', 'without', 'about'))} {thing(rng)}"
        return f"{subject} {rng.choice(PAST)} {thing(rng)}{where if rng.random() < 0.5 else ''}{how}{when}"
    if form < 0.7:
        verb = rng.choice(("went to", "came from", "walked along", "lived in", "ran into", "worked at", "met in"))
        return f"{subject} {verb} the {rng.choice(PLACES)}{how}{when}"
    if form < 0.85:
        verb = rng.choice(("would", "would", "could", "didn't", "couldn't", "wouldn't", "can't", "won't", "should"))
        return f"{subject} {verb} {rng.choice(VERBS).rstrip('s')} {thing(rng)}{when}"
    return f"it was {rng.choice(ADJECTIVES)} in the {rng.choice(PLACES)}{when}"


def sentence(rng: Random, words: int) -> str:
    """A sentence of about so many words, with an end mark."""
    text = clause(rng)
    if rng.random() < 0.2:
        text = f"{rng.choice(MOMENTS)}, {text}"
    while len(text.split()) < words:
        more = rng.choice(WHY).format(c=clause(rng))
        if rng.random() < 0.25:
            more = f"which {rng.choice(PAST)} {thing(rng)}"
        text += f"{rng.choice((',', ',', '', ' -', ';'))} {more}"
    if rng.random() < 0.06:
        text = f'"{text}," said {rng.choice(NAMES)}'
        return f"{text[:2].upper()}{text[2:]}."
    return f"{text[0].upper()}{text[1:]}{rng.choice(('.', '.', '.', '.', '!', '?'))}"


def prose(rng: Random, fewest: int, most: int) -> str:
    """Sentences with that many words in all, about."""
    wanted = rng.randint(fewest, most)
    text = sentence(rng, min(wanted, rng.randint(5, 24)))
    while len(text.split()) < wanted:
        text += f" {sentence(rng, min(wanted - len(text.split()), rng.randint(4, 24)))}"
    words = text.split(" ")
    if len(words) <= most:
        return text
    cut = " ".join(words[:most])
    whole = max(cut.rfind(mark) for mark in (". ", "! ", "? "))
    return cut[: whole + 1] if whole > 0 else f"{cut.rstrip(',;-').strip()}."


def names(rng: Random, fewest: int, most: int) -> str:
    """Names or words one after another."""
    maker = rng.choice((wordlists.name, values.person, wordlists.noun, values.city, wordlists.word))
    count = rng.randint(fewest, min(most, 20))
    return rng.choice((", ", ", ", " ", "; ", " - ", " / ")).join(maker(rng) for _ in range(count))


def detail(rng: Random) -> str:
    """A sentence with a number, a date, a code, or an address in it."""
    forms = (
        f"Your {rng.choice(NOUNS)} will arrive on {values.date(rng)}.",
        f"Please call us at {rng.randint(100, 9999)} {rng.randint(100, 9999)}.",
        f"The {rng.choice(PLACES)} is open from {values.clock(rng)} to {values.clock(rng)}.",
        f"The code is {values.code(rng)}, and the price is {rng.randint(1, 999)}.{rng.randrange(100):02} euros.",
        f"Write to {values.email(rng)} or come to {rng.randint(1, 200)} {wordlists.made_up_word(rng).capitalize()} Street.",
        f"If it does not {rng.choice(VERBS).rstrip('s')}, please tell {values.person(rng)}.",
        f"Thank you for your {rng.choice(NOUNS)} of {values.date(rng)}.",
        f"We need {rng.randint(2, 99)} {rng.choice(NOUNS)}s and {rng.randint(2, 99)} {rng.choice(NOUNS)}s by {values.date(rng)}.",
        f"There {rng.choice(('are', 'were'))} {rng.randint(2, 999)} {rng.choice(NOUNS)}s, {rng.choice(ADJECTIVES)} and {rng.choice(ADJECTIVES)}.",
    )
    return rng.choice(forms)


def letter(rng: Random, fewest: int, most: int) -> str:
    """A short letter or a note with names, numbers, and dates."""
    start = rng.choice(
        (f"Dear {values.person(rng)}, ", f"Hi {wordlists.name(rng)}, ", f"Hello {wordlists.name(rng)}! ", "")
    )
    end = rng.choice(
        (
            f" Kind regards, {values.person(rng)}",
            f" Best wishes, {wordlists.name(rng)}",
            f" Yours, {wordlists.name(rng)}",
            "",
        )
    )
    wanted = rng.randint(fewest, most) - len(start.split()) - len(end.split())
    said: list[str] = []
    while not said or sum(len(one.split()) for one in said) < wanted - 8:
        said.append(detail(rng) if rng.random() < 0.6 else sentence(rng, rng.randint(4, 12)))
    return f"{start}{' '.join(said)}{end}"

"""Kinds of later turns: the same about another thing, corrections, and the last answer in another form."""

from random import Random
from typing import Final

from training import facts, kinds_facts, values, wordlists
from training.prose import prose
from training.registry import (
    Dialogue,
    Split,
    apart,
    assistant,
    casual,
    draw,
    in_split,
    kind,
    loose,
    user,
    wordings,
)

# A question for an entry of a table, the table, and the answer.
ABOUT_TABLES: Final = (
    (kinds_facts.capital, facts.CAPITALS, "The capital of {k} is {v}."),
    (kinds_facts.opposite, facts.OPPOSITES, "The opposite of {k} is {v}."),
    (kinds_facts.animal_sound, facts.SOUNDS, "The {k} says {v}."),
    (kinds_facts.colour_of, facts.COLOURS, "{K} is {v}."),
    (kinds_facts.plural, facts.PLURALS, "The plural of {k} is {v}."),
)
MORE_FORMS: Final = wordings("""
    [And|And what about|What about|How about|And for|And of|Now|Also|Next][|,] {k}[?|, please?|]
    [The same|Same|Same question|And the same] for {k}[?|.|]
    {k}?
    [Sorry, |No, |Oops, |no, |no |sorry, |][I meant|I mean|I mean for|I was asking about|I said|I asked about|not that,|it was] {k}[.|!|]
    {k}, [please|not that|I said|I meant|I mean|that is]
    [Do|Now do|Try|Take] {k}[.|, please|]
""")


@kind("wording", "The user asks the same about another thing.", weight=3, standalone=True)
def and_another(rng: Random, split: Split) -> Dialogue:
    """A fact, and the same asked about something else in a few words."""
    asker, table, full = rng.choice(ABOUT_TABLES)
    first = asker(rng)
    key = rng.choice([key for key in table if key.lower() not in first.text.lower()])
    answer = full.format(k=key, K=key[0].upper() + key[1:], v=table[key])
    turns = [user(first.text), assistant(kinds_facts.retold(rng, first))]
    if rng.random() < 0.3:
        other = kinds_facts.any_question(rng)
        turns = [user(other.text), assistant(kinds_facts.retold(rng, other)), *turns]
    wish = rng.choice(in_split(MORE_FORMS, split, "more")).replace("{k}", key)
    return Dialogue((*turns, user(casual(rng, loose(rng, wish)))), (answer,))


CORRECTIONS: Final = wordings("""
    [No, |Sorry, |Wrong, |Not that, |Oops, |][I said|I meant|I mean|it should be|it was]: {t}
    [No|Sorry|Wrong|Oops][,|.|!|:] {t}
    [That is wrong|That's not what I said|That is not right|Not quite][.|!|,] [It is|I said|I meant|Say][:| this:] {t}
""")


@kind("open", "The user corrects what was said.", weight=2.5)
def corrected(rng: Random, split: Split) -> Dialogue:
    """A text that the user had repeated wrongly, said right."""
    text = draw(lambda: values.words(rng, 1, 6), split, lambda one: f"corrected {one}")
    before = values.words(rng, 1, 6)
    first = rng.choice(("Say: {t}", "Repeat: {t}", "Repeat after me: {t}", "Echo: {t}", "Copy this: {t}"))
    wish = rng.choice(in_split(CORRECTIONS, split, "correct")).replace("{t}", text)
    return Dialogue((user(first.replace("{t}", before)), assistant(before), user(wish)), (text,))


RENAMED: Final = wordings("""
    [No, |Sorry, |Actually, |Wait, |Oops, |][my name is|I am|I'm|it is|it's|call me] {n}[.|!|]
    [That is wrong|That's not my name|Not {o}][.|,|!] [My name is|I am|I'm|It is|Call me] {n}[.|]
""")


@kind("open", "The user tells me another name.", weight=1.5, standalone=True)
def renamed(rng: Random, split: Split) -> Dialogue:
    """The user's name, corrected, and asked for now and then."""
    name = draw(lambda: wordlists.name(rng), split, lambda one: f"name {one}")
    old = wordlists.name(rng)
    told = rng.choice(in_split(RENAMED, split, "renamed")).replace("{n}", name).replace("{o}", old)
    turns = (user(rng.choice(("My name is {n}.", "I am {n}.", "Call me {n}", "Hi, I'm {n}!")).replace("{n}", old)),
             assistant(f"Nice to meet you, {old}!"), user(told))  # fmt: skip
    if rng.random() < 0.4:
        return Dialogue(turns, (f"Nice to meet you, {name}!",))
    asked = rng.choice(
        ("What is my name?", "What's my name?", "Who am I?", "So what is my name?", "Do you know my name?")
    )
    return Dialogue((*turns, assistant(f"Nice to meet you, {name}!"), user(asked)), (f"Your name is {name}.",))


FORMS: Final = {
    "upper": wordings("""
        [Now|And now|Again|The same|That|Once more] [in capital letters|in capitals|in upper case|in uppercase|in all caps|in CAPS|in big letters][, please|.|!|]
        [Write|Say|Put|Repeat|Give me] [that|it|this|the answer] in [capital letters|capitals|upper case|uppercase|all caps][, please|.|]
        [Shout it|Shout that|Capitalize that|Make it uppercase|Convert it to uppercase|All caps][, please|.|!|]
    """),
    "lower": wordings("""
        [Now|And now|Again|The same|That] [in small letters|in lower case|in lowercase][, please|.|]
        [Write|Say|Put|Repeat] [that|it|this|the answer] in [small letters|lower case|lowercase][, please|.|]
    """),
    "again": wordings("""
        [Again|Once more|One more time|Repeat that|Say that again|Repeat|Can you repeat that|What did you say|Say it again|Come again|Please repeat|Tell me again][, please|.|?|!|]
    """),
    "short": wordings("""
        [Now|And now|Again|The same|Shorter][,|] in one word[, please|.|]
        [Just|Only] [the word|one word|the answer in one word][, please|.|]
        [Say|Give|Write] [that|it] in one word[.|, please|]
    """),
}  # fmt: skip


@kind("wording", "The user means my last answer.", weight=4, standalone=True)
@apart
def change_fact(rng: Random, split: Split) -> Dialogue:
    """A fact or a sum that was told, once more in another form."""
    question = kinds_facts.any_question(rng)
    told, short = kinds_facts.retold(rng, question), question.short
    asked = question.text
    if rng.random() < 0.25:
        a, b = rng.randint(0, 60), rng.randint(0, 60)
        asked, told, short = f"What is {a} + {b}?", f"{a} + {b} = {a + b}.", str(a + b)
    form = rng.choice(list(FORMS))
    if form != "short" and rng.random() < 0.5:
        other = kinds_facts.common_fact(rng)
        asked, told = other.text, other.full
        if rng.random() < 0.5:
            told = prose(rng, 2, 9)
            asked = rng.choice(("Say: {t}", "Repeat: {t}", "Repeat after me: {t}", "Copy this: {t}")).replace(
                "{t}", told
            )
    answer = {"upper": told.upper(), "lower": told.lower(), "again": told, "short": short}[form]
    turns = [user(asked), assistant(told)]
    if rng.random() < 0.3:
        other = kinds_facts.any_question(rng)
        turns = [user(other.text), assistant(kinds_facts.retold(rng, other)), *turns]
    wish = rng.choice(in_split(FORMS[form], split, form))
    return Dialogue((*turns, user(casual(rng, loose(rng, wish)))), (answer,))

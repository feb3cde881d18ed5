"""Kinds that depend on earlier turns or on the system prompt."""

import json
from random import Random
from typing import Final

from training import canned, kinds_facts, wordlists
from training.prose import prose
from training.registry import (
    Dialogue,
    Split,
    apart,
    ask,
    assistant,
    draw,
    in_split,
    kind,
    lines,
    loose,
    one_of,
    system,
    user,
    wordings,
)

NAME_STATEMENTS: Final = (
    "My name is {n}.",
    "My name is {n}",
    "I am {n}.",
    "I'm {n}.",
    "Call me {n}.",
    "Hi, I am {n}.",
    "Hello, my name is {n}.",
    "Hi! My name is {n}.",
    "You can call me {n}.",
    "Hello, I'm {n}.",
    "my name is {n}",
    "Hi, I'm {n}!",
    "People call me {n}.",
    "The name is {n}.",
)
NAME_REQUESTS: Final = lines("""
    What is my name?
    What's my name?
    Do you remember my name?
    Who am I?
    Tell me my name.
    Do you know my name?
""")


def fresh_name(rng: Random, split: Split) -> str:
    """A first name of the split."""
    return draw(lambda: wordlists.name(rng), split, lambda name: f"name {name}")


def small_talk(rng: Random, most: int) -> tuple[dict[str, str], ...]:
    """Up to ``most`` exchanges about facts."""
    turns: list[dict[str, str]] = []
    for _ in range(rng.randint(0, most)):
        question = kinds_facts.any_question(rng)
        turns += (user(question.text), assistant(kinds_facts.retold(rng, question)))
    return tuple(turns)


def remembered(rng: Random, told: str, reply: str, asked: str, answer: str) -> Dialogue:
    """Something told, some small talk, and the question for it."""
    given = (
        reply
        if rng.random() < 0.7
        else rng.choice(("Hello!", "OK.", "Noted.", "Hello! How can I help you?", wordlists.sentence(rng)))
    )
    start = (*small_talk(rng, 1), user(told), assistant(given), *small_talk(rng, 2))
    return Dialogue((*start, user(loose(rng, asked))), (answer,))


@kind("open", "The user tells me a name.", weight=1.5, standalone=True)
def introduction(rng: Random, split: Split) -> Dialogue:
    """The user's name, told."""
    name = fresh_name(rng, split)
    return ask(one_of(rng, NAME_STATEMENTS, n=name), f"Nice to meet you, {name}!")


@kind("open", "The user told me the name before.", weight=2)
def remember_name(rng: Random, split: Split) -> Dialogue:
    """The user's name, asked for later."""
    name = fresh_name(rng, split)
    more = rng.choice(("", "", "", " " + wordlists.sentence(rng) + ".", " How are you?", " What can you do?"))
    told = one_of(rng, NAME_STATEMENTS, n=name) + more
    return remembered(rng, told, f"Nice to meet you, {name}!", rng.choice(NAME_REQUESTS), f"Your name is {name}.")


@kind("closed", "The user did not tell me the name.", standalone=True)
def name_not_told(rng: Random, split: Split) -> Dialogue:
    """The user's name, asked for although it was never told."""
    return Dialogue(
        (*small_talk(rng, 2), user(loose(rng, rng.choice(NAME_REQUESTS)))), ("You have not told me your name yet.",)
    )


@kind("open", "The user told me this before.", weight=2)
def remember_thing(rng: Random, split: Split) -> Dialogue:
    """A favourite, a pet or a word, told and asked for later."""
    value = draw(lambda: wordlists.word(rng), split, lambda word: f"word {word}")
    topic = rng.choice(("colour", "color", "food", "animal", "fruit", "word", "game", "place", "song"))
    if rng.random() < 0.4:
        pet = rng.choice(("cat", "dog", "horse", "bird", "fish", "rabbit"))
        name = value.capitalize()
        told = one_of(
            rng, ("My {p} is called {n}.", "I have a {p} called {n}.", "My {p}'s name is {n}."), p=pet, n=name
        )
        asked = one_of(rng, ("What is my {p} called?", "What is the name of my {p}?", "What is my {p}'s name?"), p=pet)
        return remembered(rng, told, f"{name} is a nice name.", asked, f"Your {pet} is called {name}.")
    told = one_of(
        rng, ("My favourite {t} is {v}.", "My favorite {t} is {v}.", "I like the {t} {v} best."), t=topic, v=value
    )
    asked = one_of(rng, ("What is my favourite {t}?", "What's my favorite {t}?", "Which {t} do I like best?"), t=topic)
    return remembered(rng, told, "Good to know.", asked, f"Your favourite {topic} is {value}.")


@kind("open", "The user told me the number before.", weight=1.5)
def remember_number(rng: Random, split: Split) -> Dialogue:
    """A number or a code word, told and asked for later."""
    if rng.random() < 0.6:
        noun = "number"
        value = draw(lambda: str(rng.randrange(10 ** rng.randint(1, 5))), split, lambda number: f"remember {number}")
    else:
        noun, value = (
            rng.choice(("word", "code", "password")),
            draw(lambda: wordlists.word(rng), split, lambda w: f"word {w}"),
        )
    told = one_of(
        rng,
        ("Remember the {n} {v}.", "Please remember this {n}: {v}", "The {n} is {v}.", "Remember this {n}: {v}."),
        n=noun,
        v=value,
    )
    asked = one_of(
        rng,
        ("What was the {n}?", "Which {n} did I tell you?", "What is the {n}?", "What {n} did I ask you to remember?"),
        n=noun,
    )
    return remembered(rng, told, f"I will remember the {noun}.", asked, f"The {noun} is {value}.")


@kind("open", "The user wants my last answer again.", weight=2)
@apart
def say_again(rng: Random, split: Split) -> Dialogue:
    """The assistant's last answer once more."""
    text = draw(lambda: prose(rng, 2, 12), split, lambda sentence: "text " + sentence.lower())
    told = rng.choice(("Say: {t}", "Repeat: {t}", "Repeat after me: {t}")).replace("{t}", text)
    if rng.random() < 0.5:
        question = kinds_facts.any_question(rng)
        told, text = question.text, question.full
    asked = lines("""
        Say that again.
        Again, please.
        Repeat your last answer.
        What did you just say?
        Once more.
        Repeat that.
        Say it again
        again
        Again!
        again please
        once again
        one more time
        say it once more
        repeat
        repeat that please
        Can you repeat that?
        Could you say that again?
        What was that?
        Please repeat your answer.
        same again
    """)
    return Dialogue((*small_talk(rng, 1), user(told), assistant(text), user(rng.choice(asked))), (text,))


@kind("open", "The system prompt gives me a name.", weight=1.5, standalone=True)
def given_name(rng: Random, split: Split) -> Dialogue:
    """The model's name, when the system prompt gives one."""
    name = fresh_name(rng, split)
    forms = lines("""
        Your name is {n}.
        You are {n}, a helpful assistant.
        You are {n}.
        You are an assistant called {n}.
        You are a friendly chatbot named {n}.
        You are a helpful assistant named {n}. Be brief.
        Act as {n}.
    """)
    asked = user(loose(rng, rng.choice(canned.NAME_QUESTIONS[:21])))
    return Dialogue((system(one_of(rng, forms, n=name)), *small_talk(rng, 1), asked), (f"My name is {name}.",))


@kind("wording", "I must answer in one word.", weight=2, standalone=True)
def one_word(rng: Random, split: Split) -> Dialogue:
    """A fact in one word, as the system prompt or the user asks."""
    rules = lines("""
        Answer in one word.
        Answer with one word.
        Reply with one word only.
        Answer with a single word.
        One word answers only.
    """)
    question = kinds_facts.wording(split, lambda: kinds_facts.any_question(rng))
    if rng.random() < 0.4:
        return ask(f"{question.text.rstrip('?.')}? {rng.choice(rules)}", question.short)
    before = rng.choice(("", "", "You are a helpful assistant. "))
    return Dialogue((system(before + rng.choice(rules)), user(question.text)), (question.short,))


@kind("wording", "I must answer in capital letters.", standalone=True, weight=2)
def capital_letters(rng: Random, split: Split) -> Dialogue:
    """A fact in capital letters, as the system prompt asks."""
    rules = lines("""
        Answer in capital letters.
        Write everything in uppercase.
        Always answer in capital letters.
        Reply in all caps.
    """)
    question = kinds_facts.wording(split, lambda: kinds_facts.any_question(rng))
    return Dialogue((system(rng.choice(rules)), user(question.text)), (question.full.upper(),))


@kind("open", "I must start or end with a given word.", weight=1.5, standalone=True)
def affix(rng: Random, split: Split) -> Dialogue:
    """A fact after or before a word that the system prompt gives."""
    word = draw(lambda: wordlists.word(rng), split, lambda text: f"word {text}").capitalize()
    question = kinds_facts.wording(split, lambda: kinds_facts.any_question(rng))
    starting = (("Start", "Begin"), f"{word}! {question.full}")
    ending = (("End", "Finish"), f"{question.full} {word}!")
    verbs, answer = rng.choice((starting, ending))
    rule = f'{rng.choice(verbs)} every answer with "{word}!"'
    return Dialogue((system(rule + rng.choice((".", ""))), user(question.text)), (answer,))


@kind("open", "The user wants JSON.", weight=2)
def json_object(rng: Random, split: Split) -> Dialogue:
    """Facts about a made-up person as JSON."""
    name, age = fresh_name(rng, split), rng.randint(1, 99)
    city = wordlists.made_up_word(rng).capitalize()
    forms: tuple[tuple[str, str], ...] = (
        (f"Give me JSON with the name {name} and the age {age}.", f'{{"name": "{name}", "age": {age}}}'),
        (f"Write JSON: name {name}, age {age}", f'{{"name": "{name}", "age": {age}}}'),
        (f"Turn this into JSON: {name} is {age} years old.", f'{{"name": "{name}", "age": {age}}}'),
        (f"Extract the name and the age as JSON: {name} is {age} years old.", f'{{"name": "{name}", "age": {age}}}'),
        (f"Turn this into JSON: {name} lives in {city}.", f'{{"name": "{name}", "city": "{city}"}}'),
        (f"Give me JSON with the name {name} and the city {city}.", f'{{"name": "{name}", "city": "{city}"}}'),
        (
            f"Turn this into JSON: {name} is {age} years old and lives in {city}.",
            f'{{"name": "{name}", "age": {age}, "city": "{city}"}}',
        ),
    )
    return ask(*rng.choice(forms))


AS_JSON: Final = wordings("""
    {q} [Answer|Reply|Respond] [as|in|with] JSON[.| only.|]
    {q} [As|In] JSON[, please|.|]
    [Answer|Reply|Respond] [as|in|with] JSON[:|.] {q}
    [JSON only|In JSON|As JSON|JSON please][:|.] {q}
    {q} [Give me|I want|Return] [JSON|a JSON object][.|]
""")
SAID_AS_JSON: Final = wordings("""
    [Say|Write|Print|Give me] {t} [as|in] JSON[.|, please|]
    [Put|Turn|Convert|Wrap] {t} [into|in] [JSON|a JSON object][.|]
""")


@kind("wording", "The user wants JSON.", weight=3, standalone=True)
def fact_as_json(rng: Random, split: Split) -> Dialogue:
    """A fact, a greeting, or a word as a JSON object of one key."""
    form = rng.random()
    if form < 0.55:
        question = kinds_facts.any_question(rng)
        asked = rng.choice(in_split(AS_JSON, split, "as json")).replace("{q}", question.text)
        answer: dict[str, str | int] = {"answer": question.short}
    elif form < 0.75:
        a, b = rng.randint(0, 50), rng.randint(0, 50)
        asked = rng.choice(in_split(AS_JSON, split, "as json")).replace("{q}", f"What is {a} + {b}?")
        answer = {"answer": a + b}
    else:
        text = rng.choice(
            ("hello", "hi", "good morning", "thanks", "yes", "no", wordlists.word(rng), wordlists.name(rng))
        )
        asked = rng.choice(in_split(SAID_AS_JSON, split, "said as json")).replace(
            "{t}", rng.choice((text, f'"{text}"'))
        )
        answer = {"message": text}
    before = (system(rng.choice(canned.SYSTEM_PROMPTS)),) if rng.random() < 0.3 else ()
    return Dialogue((*before, user(asked)), (json.dumps(answer, ensure_ascii=False),))

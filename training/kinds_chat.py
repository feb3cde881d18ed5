"""Kinds of small talk, canned texts and the polite answer to everything unknown."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from training import canned, kinds_tools, wordlists
from training.registry import Dialogue, Split, ask, casual, draw, kind, lines, loose, one_of, polite


def varied(rng: Random, prompts: Sequence[str]) -> str:
    """A canned prompt with the casing and the end mark varied."""
    text = rng.choice(prompts)
    form = rng.random()
    if form < 0.45:
        text = text[0].upper() + text[1:]
    elif form < 0.5:
        text = text.upper()
    elif form < 0.6:
        text = text.rstrip("?!.")
    if text[-1].isalnum() and rng.random() < 0.4:
        text += rng.choice((".", "!"))
    return casual(rng, text)


def on_any_topic(rng: Random, prompt: str) -> str:
    """The prompt, now and then with a topic that the canned answers don't follow."""
    if prompt.startswith(("tell me a", "Tell me a", "write", "Write", "Give", "give")) and rng.random() < 0.4:
        prompt = prompt.rstrip("?!.") + f" about {wordlists.noun(rng)}" + rng.choice(("", "s", "s.", "."))
    return prompt


@dataclass(frozen=True)
class Canned:
    """A kind whose prompts and answers are fixed; ``topical`` prompts may name a topic."""

    name: str
    thought: str
    weight: float
    prompts: tuple[str, ...]
    answers: tuple[str, ...]
    standalone: bool = False
    topical: bool = False

    def generate(self, rng: Random, split: Split) -> Dialogue:
        """One of the prompts with all answers."""
        prompt = varied(rng, self.prompts)
        return ask(on_any_topic(rng, prompt) if self.topical else prompt, *self.answers)


CANNED: Final = (
    Canned("greeting", "The user says hello.", 0.6, canned.GREETINGS, canned.GREETING_ANSWERS),
    Canned("thanks", "The user says thank you.", 0.6, canned.THANKS, canned.THANKS_ANSWERS),
    Canned("goodbye", "The user says goodbye.", 0.6, canned.GOODBYES, canned.GOODBYE_ANSWERS),
    Canned(
        "own_name", "The user asks for my name.", 0.8, canned.NAME_QUESTIONS, (canned.NAME_ANSWER,), standalone=True
    ),
    Canned("own_nature", "The user asks what I am.", 0.6, canned.WHAT_QUESTIONS, (canned.WHAT_ANSWER,)),
    Canned("own_place", "The user asks where I run.", 0.6, canned.WHERE_QUESTIONS, (canned.WHERE_ANSWER,)),
    Canned("own_maker", "The user asks who made me.", 0.5, canned.MAKER_QUESTIONS, (canned.MAKER_ANSWER,)),
    Canned("mood", "The user asks how I am.", 0.6, canned.MOOD_QUESTIONS, (canned.MOOD_ANSWER,)),
    Canned("abilities", "The user asks what I can do.", 0.6, canned.ABILITY_QUESTIONS, (canned.ABILITY_ANSWER,)),
    Canned("praise", "The user is pleased.", 0.5, canned.PRAISE, canned.PRAISE_ANSWERS),
    Canned("blame", "The user is not pleased.", 0.5, canned.BLAME, canned.BLAME_ANSWERS),
    Canned("acknowledgement", "The user says little.", 0.5, canned.ACKNOWLEDGEMENTS, canned.ACKNOWLEDGEMENT_ANSWERS),
    Canned("joke", "The user wants a joke.", 0.6, canned.JOKE_REQUESTS, canned.JOKES, topical=True),
    Canned("poem", "The user wants a poem.", 0.6, canned.POEM_REQUESTS, canned.POEMS, topical=True),
    Canned("fun_fact", "The user wants a fact.", 0.6, canned.FACT_REQUESTS, canned.FACTS, topical=True),
    Canned("advice", "The user wants some advice.", 0.5, canned.ADVICE_REQUESTS, canned.ADVICE_ANSWERS),
)

for one in CANNED:
    kind("closed", one.thought, weight=one.weight, standalone=one.standalone, name=one.name)(one.generate)


@kind("closed", "The user wants the alphabet.", weight=0.5)
def alphabet(rng: Random, split: Split) -> Dialogue:
    """The letters in order."""
    requests = lines("""
        Say the alphabet
        Recite the alphabet
        Write the alphabet
        List the letters of the alphabet
        Tell me the alphabet
    """)
    return ask(polite(rng, rng.choice(requests)), ", ".join(wordlists.LETTERS))


def hero(rng: Random, split: Split) -> str:
    """The hero of a story, new to the split."""
    return draw(lambda: wordlists.noun(rng), split, lambda noun: f"hero {noun}")


@kind("open", "The user wants a story.", weight=2)
def story(rng: Random, split: Split) -> Dialogue:
    """A story of several sentences about a given hero; held-out stories always name theirs."""
    request = rng.choice(canned.STORY_REQUESTS)
    if split is Split.TRAIN and rng.random() < 0.4:
        return ask(polite(rng, request), *(form.format(h=canned.STORY_HERO) for form in canned.STORY_FORMS))
    name = hero(rng, split)
    if rng.random() < 0.15:
        forms = (
            "Write a one-sentence story about a {h}.",
            "Write a one-sentence bedtime story about a {h}.",
            "Tell me about a {h} in one sentence.",
        )
        return ask(one_of(rng, forms, h=name), canned.ONE_SENTENCE_STORY.format(h=name))
    request += f" about {'an' if name[0] in 'aeiou' else 'a'} {name}"
    return ask(polite(rng, request), *(form.format(h=name) for form in canned.STORY_FORMS))


@kind("open", "", weight=0.6, standalone=True)
def plain_text(rng: Random, split: Split) -> Dialogue:
    """A prompt outside the chat format: the rest of a story, or of a count up to the next multiple of ten."""
    if rng.random() < 0.5:
        text = rng.choice(canned.STORY_FORMS).format(h=hero(rng, split))
        words = text.split(" ")
        cut = rng.randint(11, 15)
        return Dialogue((), (" " + " ".join(words[cut:]),), raw=" ".join(words[:cut]))
    first = draw(lambda: rng.randint(0, 60), split, lambda number: f"plain count {number}")
    shown = first + rng.randint(3, 6)
    stop = shown + -shown % 10
    rest = ", ".join(map(str, range(shown, stop + 1)))
    return Dialogue((), (f", {rest}.",), raw=", ".join(map(str, range(first, shown))))


def random_words(rng: Random, fewest: int, most: int) -> str:
    """A run of words."""
    return " ".join(wordlists.word(rng) for _ in range(rng.randint(fewest, most)))


def strange_question(rng: Random) -> str:
    """A question or a task on a topic that no other kind covers."""
    if rng.random() < 0.35:
        link = rng.choice(
            (
                "",
                "a ",
                "an ",
                "the ",
                "some ",
                "my ",
                f"a {rng.choice(wordlists.ADJECTIVES)} ",
                f"{rng.randint(2, 900)} ",
            )
        )
        return loose(
            rng, f"{rng.choice(canned.TASKS)} {link}{random_words(rng, 1, 8)}{rng.choice(('.', '.', '?', ''))}"
        )
    values = {
        "a": wordlists.noun(rng),
        "b": wordlists.noun(rng),
        "j": rng.choice(wordlists.ADJECTIVES),
        "v": rng.choice(wordlists.VERBS).rstrip("s"),
        "x": random_words(rng, 1, 5),
        "y": wordlists.made_up_word(rng),
        "n": wordlists.name(rng),
        "z": str(rng.randint(3, 2100)),
        "w": str(rng.randint(100, 9000)),
        "m": wordlists.made_up_word(rng).capitalize(),
        "s": wordlists.sentence(rng),
    }
    return loose(rng, one_of(rng, canned.STRANGE_QUESTIONS, **values))


def noise(rng: Random) -> str:
    """Text that asks for nothing in particular."""
    form = rng.random()
    if form < 0.35:
        return wordlists.phrase(rng, shortest=2, longest=12)
    if form < 0.5:
        return random_words(rng, 3, 20)
    if form < 0.6:
        return " ".join(wordlists.token_string(rng) for _ in range(rng.randint(1, 6)))
    if form < 0.75:
        return " ".join(wordlists.made_up_word(rng) for _ in range(rng.randint(1, 12))) + rng.choice(("", "?", "."))
    if form < 0.85:
        return ". ".join(wordlists.sentence(rng) for _ in range(rng.randint(1, 5))) + "."
    name, other = wordlists.made_up_word(rng), wordlists.made_up_word(rng)
    forms = (
        f"def {name}({other}):\n    return {other}",
        f"import {name}\nprint({name}.{other}())",
        f"<{name}>{other}</{name}>",
        f"SELECT {name} FROM {other};",
        f'{{"{name}": {rng.randint(0, 99)}}}',
        f"{name} = [{other}, {rng.randint(0, 99)}]",
    )
    return rng.choice(forms)


@kind("open", "I do not know this.", weight=7)
def unknown(rng: Random, split: Split) -> Dialogue:
    """A question, a task, a request for a missing tool or noise that the model has no answer to."""

    def make() -> str:
        form = rng.random()
        if form < 0.12:
            return rng.choice(kinds_tools.USES)(rng).request
        return strange_question(rng) if form < 0.7 else noise(rng)

    prompt = draw(make, split, lambda text: f"unknown {text}")
    return ask(prompt, *canned.UNKNOWN)

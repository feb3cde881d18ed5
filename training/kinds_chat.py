"""Kinds of small talk, canned texts and the polite answer to everything unknown."""

from collections.abc import Sequence
from random import Random

from training import canned, kinds_tools, wordlists
from training.registry import Dialogue, Split, ask, draw, kind, loose, one_of, polite


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
    return text


def canned_dialogue(rng: Random, prompts: Sequence[str], *answers: str) -> Dialogue:
    """A canned prompt and its canned answers."""
    return ask(varied(rng, prompts), *answers)


def on_any_topic(rng: Random, prompts: Sequence[str], *answers: str) -> Dialogue:
    """A canned prompt, now and then with a topic that the canned answers don't follow."""
    prompt = varied(rng, prompts)
    if prompt.startswith(("tell me a", "Tell me a", "write", "Write", "Give", "give")) and rng.random() < 0.4:
        prompt = prompt.rstrip("?!.") + f" about {wordlists.noun(rng)}" + rng.choice(("", "s", "s.", "."))
    return ask(prompt, *answers)


@kind("closed", "The user says hello.", weight=0.6)
def greeting(rng: Random, split: Split) -> Dialogue:
    """A greeting."""
    return canned_dialogue(rng, canned.GREETINGS, *canned.GREETING_ANSWERS)


@kind("closed", "The user says thank you.", weight=0.6)
def thanks(rng: Random, split: Split) -> Dialogue:
    """Thanks."""
    return canned_dialogue(rng, canned.THANKS, *canned.THANKS_ANSWERS)


@kind("closed", "The user says goodbye.", weight=0.6)
def goodbye(rng: Random, split: Split) -> Dialogue:
    """A goodbye."""
    return canned_dialogue(rng, canned.GOODBYES, *canned.GOODBYE_ANSWERS)


@kind("closed", "The user asks for my name.", weight=0.8, standalone=True)
def own_name(rng: Random, split: Split) -> Dialogue:
    """The model's name."""
    return canned_dialogue(rng, canned.NAME_QUESTIONS, canned.NAME_ANSWER)


@kind("closed", "The user asks what I am.", weight=0.6)
def own_nature(rng: Random, split: Split) -> Dialogue:
    """What the model is."""
    return canned_dialogue(rng, canned.WHAT_QUESTIONS, canned.WHAT_ANSWER)


@kind("closed", "The user asks where I run.", weight=0.6)
def own_place(rng: Random, split: Split) -> Dialogue:
    """Where the model runs."""
    return canned_dialogue(rng, canned.WHERE_QUESTIONS, canned.WHERE_ANSWER)


@kind("closed", "The user asks who made me.", weight=0.5)
def own_maker(rng: Random, split: Split) -> Dialogue:
    """Who made the model."""
    return canned_dialogue(rng, canned.MAKER_QUESTIONS, canned.MAKER_ANSWER)


@kind("closed", "The user asks how I am.", weight=0.6)
def mood(rng: Random, split: Split) -> Dialogue:
    """How the model is."""
    return canned_dialogue(rng, canned.MOOD_QUESTIONS, canned.MOOD_ANSWER)


@kind("closed", "The user asks what I can do.", weight=0.6)
def abilities(rng: Random, split: Split) -> Dialogue:
    """What the model can do."""
    return canned_dialogue(rng, canned.ABILITY_QUESTIONS, canned.ABILITY_ANSWER)


@kind("closed", "The user is pleased.", weight=0.5)
def praise(rng: Random, split: Split) -> Dialogue:
    """Praise."""
    return canned_dialogue(rng, canned.PRAISE, *canned.PRAISE_ANSWERS)


@kind("closed", "The user is not pleased.", weight=0.5)
def blame(rng: Random, split: Split) -> Dialogue:
    """Blame."""
    return canned_dialogue(rng, canned.BLAME, *canned.BLAME_ANSWERS)


@kind("closed", "The user says little.", weight=0.5)
def acknowledgement(rng: Random, split: Split) -> Dialogue:
    """A word that asks for nothing."""
    return canned_dialogue(rng, canned.ACKNOWLEDGEMENTS, *canned.ACKNOWLEDGEMENT_ANSWERS)


@kind("closed", "The user wants a joke.", weight=0.6)
def joke(rng: Random, split: Split) -> Dialogue:
    """A canned joke."""
    return on_any_topic(rng, canned.JOKE_REQUESTS, *canned.JOKES)


@kind("closed", "The user wants a poem.", weight=0.6)
def poem(rng: Random, split: Split) -> Dialogue:
    """A canned haiku."""
    return on_any_topic(rng, canned.POEM_REQUESTS, *canned.POEMS)


@kind("closed", "The user wants a fact.", weight=0.6)
def fun_fact(rng: Random, split: Split) -> Dialogue:
    """A canned fact."""
    return on_any_topic(rng, canned.FACT_REQUESTS, *canned.FACTS)


@kind("closed", "The user wants some advice.", weight=0.5)
def advice(rng: Random, split: Split) -> Dialogue:
    """Canned advice."""
    return canned_dialogue(rng, canned.ADVICE_REQUESTS, *canned.ADVICE_ANSWERS)


@kind("closed", "The user wants the alphabet.", weight=0.5)
def alphabet(rng: Random, split: Split) -> Dialogue:
    """The letters in order."""
    requests = (
        "Say the alphabet",
        "Recite the alphabet",
        "Write the alphabet",
        "List the letters of the alphabet",
        "Tell me the alphabet",
    )
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
    values = {"a": wordlists.noun(rng), "b": wordlists.noun(rng), "j": rng.choice(wordlists.ADJECTIVES)}
    values |= {
        "v": rng.choice(wordlists.VERBS).rstrip("s"),
        "x": random_words(rng, 1, 5),
        "y": wordlists.made_up_word(rng),
    }
    values |= {"n": wordlists.name(rng), "z": str(rng.randint(3, 2100)), "w": str(rng.randint(100, 9000))}
    values |= {"m": wordlists.made_up_word(rng).capitalize(), "s": wordlists.sentence(rng)}
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
    forms: tuple[str, ...] = (
        f"def {name}({other}):\n    return {other}",
        f"import {name}\nprint({name}.{other}())",
        f"<{name}>{other}</{name}>",
    )
    forms += (
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

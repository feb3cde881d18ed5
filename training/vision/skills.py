"""The skills, how one dialogue of each is sampled, and what may stand around it."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final

from training.registry import Split
from training.vision import wording
from training.vision.dialogues import (
    IMAGE,
    Dialogue,
    Results,
    Turn,
    about_print,
    comparisons,
    follow_up,
    many,
    many_of_print,
    missing,
    of_shapes,
    one_colour,
    reading,
    two_pictures,
    with_pictures,
)
from training.vision.questions import ABOUT_SHAPES, pick
from training.vision.scenes import Scene
from training.vision.several import OTHERS, TAKERS, any_question, at_once, function, in_turns, some_scene, with_calls

Maker = Callable[[Random, Split], Dialogue]

TALK: Final = (
    ("Hello|Hi|Hello!|Hi there|Hey|Good morning|Good evening|hello|Hello there",
     "Hello! Show me a picture, and ask me about it."),
    (
        "What can you do?|What are you able to do?|How can you help me?|What do you do?|Help|What can I ask you?",
        "I look at pictures of shapes, numbers and words. Ask me for colours, counts and places, or let me read.",
    ),
    ("What is your name?|Who are you?|What are you?|Your name?|Tell me about yourself.",
     "I am Shim Vision, a small model that looks at pictures."),
    ("Thank you|Thanks|Thanks!|Thank you very much|Great, thanks", "You are welcome."),
    ("Bye|Goodbye|See you|Good night", "Goodbye!"),
    ("How are you?|How are you today?|Are you well?", "I am fine, thank you."),
)  # fmt: skip
NO_PICTURE: Final = "There is no picture. Please show me one."


def some_tools(rng: Random) -> tuple[dict[str, Any], ...]:
    """One or two functions that a request offers."""
    names = (rng.choice(TAKERS), rng.choice(OTHERS))[: rng.choice((1, 1, 2))]
    return tuple({"type": "function", "function": function(rng, name)} for name in names)


def talk(rng: Random, split: Split) -> Dialogue:
    """Small talk, or a question about a picture that is not there."""
    if rng.random() < 0.45:
        question, answer = any_question(rng, some_scene(rng, split), split).question, NO_PICTURE
    else:
        questions, answer = rng.choice(TALK)
        question = pick(rng, questions)
    return Dialogue("small talk", (), ((question, answer),))


def out_of_depth(rng: Random, split: Split) -> Dialogue:
    """A question that needs a larger model, with a picture or without."""
    question = rng.choice(wording.OUT_OF_DEPTH)
    scenes: tuple[Scene, ...] = ()
    turns: list[Turn] = []
    draw = rng.random()
    if draw < 0.35:
        turns.append((question, wording.REFUSAL))
    else:
        scene = some_scene(rng, split)
        scenes = (scene,)
        if draw < 0.75:
            turns.append((with_pictures(rng, question), wording.REFUSAL))
        else:
            asked = any_question(rng, scene, split)
            turns += [(with_pictures(rng, asked.question), asked.answer), (question, wording.REFUSAL)]
        if rng.random() < 0.12:  # And after it something that it can do.
            asked = any_question(rng, scene, split)
            turns += [(asked.question, asked.answer), (rng.choice(wording.OUT_OF_DEPTH), wording.REFUSAL)]
    return Dialogue("out of depth", scenes, tuple(turns))


def offered(maker: Maker) -> Maker:
    """Make dialogues in which functions could be called and are not."""
    return lambda rng, split: replace(maker(rng, split), tools=some_tools(rng))


def mannered(maker: Maker) -> Maker:
    """Make dialogues whose questions are said in the manners of people."""

    def make(rng: Random, split: Split) -> Dialogue:
        made = maker(rng, split)
        turns: list[Turn] = []
        for question, answer in made.turns:
            if not isinstance(question, Results):
                pieces = question.split(IMAGE)
                texts = [i for i, piece in enumerate(pieces) if piece]
                if len(texts) == 1:
                    said = answer if isinstance(answer, str) else ""
                    pieces[texts[0]] = wording.mannered(rng, pieces[texts[0]], said)
                    question = IMAGE.join(pieces)
            turns.append((question, answer))
        return replace(made, turns=tuple(turns))

    return make


SKILLS: Final[dict[str, Maker]] = {
    name: mannered(make)
    for name, make in {
        "plain colour": one_colour,
        **{name: (lambda rng, split, name=name: of_shapes(rng, split, name)) for name in ABOUT_SHAPES},  # type: ignore[misc]
        "missing": missing,
        "numbers": lambda rng, split: reading(rng, split, "numbers"),
        "words": lambda rng, split: reading(rng, split, "words"),
        "about texts": about_print,
        "follow-up": follow_up,
        "two pictures": two_pictures,
        "pictures at once": at_once,
        "pictures in turns": in_turns,
        "pictures in tool results": with_calls,
        "out of depth": out_of_depth,
        "small talk": talk,
    }.items()
}
"""What is evaluated."""

Mix = tuple[tuple[Maker, float], ...]
ONE: Final[Mix] = (
    (many, 0.34),
    (many_of_print, 0.42),
    (lambda rng, split: reading(rng, split, "words"), 0.2),
    (lambda rng, split: reading(rng, split, "numbers"), 0.03),
    (comparisons, 0.14),
    (follow_up, 0.08),
    (one_colour, 0.05),
    (missing, 0.02),
    (lambda rng, split: of_shapes(rng, split, "description"), 0.13),
    (out_of_depth, 0.1),
    (talk, 0.06),
)
TWO: Final[Mix] = (
    (two_pictures, 0.5),
    (lambda rng, split: in_turns(rng, split, 2), 0.25),
    (lambda rng, split: at_once(rng, split, 2), 0.25),
)
FOUR: Final[Mix] = ((in_turns, 0.55), (at_once, 0.45))
CALLS: Final[Mix] = (
    (with_calls, 0.82),
    (offered(many), 0.05),
    (offered(many_of_print), 0.04),
    (offered(talk), 0.05),
    (offered(out_of_depth), 0.04),
)


def sample(rng: Random, split: Split, mix: Mix) -> Dialogue:
    """A dialogue of a mix, with what may stand around it."""
    makers, weights = zip(*mix, strict=True)
    return opened(rng, mannered(rng.choices(makers, weights)[0])(rng, split))


def opened(rng: Random, made: Dialogue) -> Dialogue:
    """A dialogue with what may stand before and behind it."""
    if made.scenes and rng.random() < 0.05:
        questions, answer = TALK[0]
        made = replace(made, turns=((pick(rng, questions), answer), *made.turns))
    if made.scenes and rng.random() < 0.05:
        questions, answer = TALK[3]
        made = replace(made, turns=(*made.turns, (pick(rng, questions), answer)))
    if made.scenes and rng.random() < 0.03:
        made = replace(made, turns=(*made.turns, (rng.choice(wording.OUT_OF_DEPTH), wording.REFUSAL)))
    if rng.random() < 0.25:
        made = replace(made, system=wording.system_prompt(rng))
    return made

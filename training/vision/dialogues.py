"""Dialogues about pictures: which skills there are, and how one is sampled."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from training.registry import Split
from training.vision.questions import (
    ABOUT_SHAPES,
    Asked,
    about,
    article,
    behind,
    colour_word,
    count_some,
    describe,
    exists,
    pick,
    sentence,
    yes_or_no,
)
from training.vision.scenes import (
    PLURALS,
    SHAPES,
    Scene,
    another,
    belongs,
    number,
    plain,
    printed,
    shapes,
    word,
)

IMAGE: Final = "<image>"


@dataclass(frozen=True)
class Dialogue:
    """Pictures and turns; a question has ``<image>`` where a picture stands in it. The skill is that of the last turn."""

    skill: str
    scenes: tuple[Scene, ...]
    turns: tuple[tuple[str, str], ...]
    system: str | None = None


Maker = Callable[[Random, Split], Dialogue]


def with_pictures(rng: Random, question: str, count: int = 1) -> str:
    """A question with its pictures before it, most often, or behind it."""
    pictures = IMAGE * count
    return f"{pictures}{question}" if rng.random() < 0.6 else f"{question}{pictures}"


def _turns(rng: Random, skill: str, scene: Scene, first: Asked, more: list[Asked]) -> Dialogue:
    turns = [(with_pictures(rng, first.question), first.answer), *((one.question, one.answer) for one in more)]
    return Dialogue(skill, (scene,), tuple(turns))


def of_shapes(rng: Random, split: Split, skill: str) -> Dialogue:
    """One question about shapes."""
    ask = ABOUT_SHAPES[skill][0]
    while True:
        if skill in ("beside",):
            scene = shapes(rng, split, 2, 2)
        elif skill in ("size", "larger of two", "extreme", "relation"):
            scene = shapes(rng, split, 2, 5)
        elif skill in ("description",):
            scene = shapes(rng, split, 1, 4)
        else:
            scene = shapes(rng, split)
        asked = ask(rng, scene)
        if asked is not None:
            return _turns(rng, skill, scene, asked, [])


def many(rng: Random, split: Split) -> Dialogue:
    """Several questions about the same shapes; some are about what the one before was about."""
    scene = shapes(rng, split)
    names = list(ABOUT_SHAPES)
    weights = [weight for _, weight in ABOUT_SHAPES.values()]
    made = [exists(rng, scene)] if rng.random() < 0.1 else [count_some(rng, scene)] if rng.random() < 0.1 else []
    wanted = rng.randint(3, 6)
    for _ in range(14):
        subject = made[-1].about if made else None
        if subject is not None and rng.random() < 0.4:
            made.append(about(rng, scene, subject))
        else:
            asked = ABOUT_SHAPES[rng.choices(names, weights)[0]][0](rng, scene)
            if asked is not None and all(asked.question != one.question for one in made):
                made.append(asked)
        if len(made) == wanted:
            break
    made = made or [describe(rng, scene)]
    return _turns(rng, "many", scene, made[0], made[1:])


def comparisons(rng: Random, split: Split) -> Dialogue:
    """Several questions that compare two of a few things."""
    made: list[Asked] = []
    while not made:
        scene = shapes(rng, split, 2, 4)
        for _ in range(6):
            asked = ABOUT_SHAPES[rng.choice(("size", "size", "larger of two", "relation"))][0](rng, scene)
            if asked is not None and all(asked.question != one.question for one in made):
                made.append(asked)
    return _turns(rng, "comparisons", scene, made[0], made[1:])


def follow_up(rng: Random, split: Split) -> Dialogue:
    """A question, and a second that only makes sense after it."""
    while True:
        scene = shapes(rng, split, 1, 5)
        first = ABOUT_SHAPES[rng.choice(("colour", "shape", "place", "extreme", "at a place", "beside"))][0](rng, scene)
        if first is None or first.about is None:
            continue
        second = about(rng, scene, first.about)
        if second.answer != first.answer:
            return _turns(rng, "follow-up", scene, first, [second])


def one_colour(rng: Random, split: Split) -> Dialogue:
    """A picture of one colour."""
    scene = plain(rng)
    first = behind(rng, scene) if rng.random() < 0.8 else describe(rng, scene)
    more = [Asked("How many shapes are there?", "0")] if rng.random() < 0.1 else []
    return _turns(rng, "plain colour", scene, first, more)


def ask_number(rng: Random, text: str) -> Asked:
    """A question for a number."""
    question = pick(
        rng,
        "What number is this?|What number do you see?|Read the number.|Which number is shown?|What is the number?"
        "|What number is in the picture?|What number is printed here?|What does it say?|Read this.|What is written here?"
        "|What number does the picture show?|Please read the number.|Give me the number in this image.",
    )
    return Asked(question, text)


def ask_word(rng: Random, text: str) -> Asked:
    """A question for a word."""
    question = pick(
        rng,
        "What word is this?|What word do you see?|Read the word.|Which word is shown?|What is the word?|What does it say?"
        "|What word is in the picture?|What word is printed here?|Read this.|What is written here?|Read the text."
        "|What does the picture say?|Please read the word.|What text is in this image?|Transcribe the text.",
    )
    return Asked(question, text)


def _about_print(rng: Random, scene: Scene, split: Split) -> Asked:
    """A question about how a line is printed."""
    line, draw, spelling = scene.prints[0], rng.random(), colour_word(rng)
    kind = "number" if line.text.isdigit() else "word"
    if draw < 0.35:
        return Asked(
            pick(rng, f"What {spelling} is the {kind}?|Which {spelling} is the text?|What {spelling} is it printed in?"
                      f"|What is the {spelling} of the {kind}?|What {spelling} are the {'digits' if kind == 'number' else 'letters'}?"),
            sentence(rng, line.colour),
        )  # fmt: skip
    if draw < 0.6:
        return behind(rng, scene)
    if draw < 0.8:
        return Asked(
            pick(rng, "How many digits are there?|How many digits does it have?" if kind == "number"
                 else "How many letters are there?|How many letters does it have?|How many letters does the word have?"),
            str(len(line.text)),
        )  # fmt: skip
    same = rng.random() < 0.5
    other = line.text if same else number(rng, split) if kind == "number" else word(rng, split)
    question = pick(rng, f"Is the {kind} {other}?|Does it say {other}?") if kind == "number" else pick(
        rng, f'Is the word "{other}"?|Does it say "{other}"?'
    )  # fmt: skip
    return Asked(question, yes_or_no(other.lower() == line.text.lower()))


def reading(rng: Random, split: Split, skill: str) -> Dialogue:
    """A printed number or word."""
    text = number(rng, split) if skill == "numbers" else word(rng, split)
    while skill == "numbers" and split is Split.HELD_OUT and len(text) != 3:
        text = number(rng, split)
    scene = printed(rng, split, [text], beside=rng.choice((0, 0, 0, 1)))
    first = (ask_number if skill == "numbers" else ask_word)(rng, text)
    return _turns(rng, skill, scene, first, [])


def many_of_print(rng: Random, split: Split) -> Dialogue:
    """Several questions about printed lines and what is beside them."""
    digits = rng.random() < 0.3
    text = number(rng, split) if digits else word(rng, split)
    lines = [text]
    if rng.random() < 0.25:
        lines.append(word(rng, split) if digits else number(rng, split))
    scene = printed(rng, split, lines, beside=rng.choice((0, 0, 1, 1, 2)))
    if len(lines) == 2:
        made = [ask_number(rng, line) if line.isdigit() else ask_word(rng, line) for line in lines]
        made = [
            replace(one, question=pick(rng, "What is the number?|Read the number.|Which number is shown?") if
                    one.answer.isdigit() else pick(rng, "What is the word?|Read the word.|What word is this?"))
            for one in made
        ]  # fmt: skip
        rng.shuffle(made)
    else:
        made = [(ask_number if digits else ask_word)(rng, text)]
        made += [_about_print(rng, scene, split) for _ in range(rng.randint(1, 2))]
        if rng.random() < 0.25:
            made.append(describe(rng, scene))
    names = list(ABOUT_SHAPES)
    for _ in range(rng.randint(1, 2) if scene.things else 0):
        asked = ABOUT_SHAPES[rng.choice([name for name in names if name != "description"])][0](rng, scene)
        if asked is not None:
            made.append(asked)
    if rng.random() < 0.3:
        rng.shuffle(made)
    return _turns(rng, "many", scene, made[0], made[1:])


def about_print(rng: Random, split: Split) -> Dialogue:
    """A question about the colours of a line, its length or what it says."""
    text = number(rng, split) if rng.random() < 0.4 else word(rng, split)
    scene = printed(rng, split, [text])
    return _turns(rng, "about texts", scene, _about_print(rng, scene, split), [])


def _changed(rng: Random, scene: Scene) -> tuple[Scene, str] | None:
    """A scene in which one thing is otherwise, and a sentence that says so."""
    fit = scene.alone()
    if not fit:
        return None
    one = rng.choice(fit)
    kind = rng.choice(("colour", "shape", "gone"))
    rest = tuple(thing for thing in scene.things if thing is not one)
    if kind == "gone" and rest:
        return replace(scene, things=rest), f"The {one.name} is missing in the second picture."
    if kind == "colour":
        other = replace(one, colour=another(rng, one.colour, scene.background))
    else:
        other = replace(one, shape=rng.choice([shape for shape in SHAPES if shape != one.shape]))
    return replace(scene, things=(*rest, other)), f"The {one.name} is {article(other.name)} in the second picture."


def _which(rng: Random, question: str, first: bool) -> Asked:
    return Asked(question, "The first." if first else "The second.")


def compare(rng: Random, split: Split) -> tuple[tuple[Scene, Scene], Asked]:
    """Two pictures, and a question that needs both."""
    draw = rng.random()
    if draw < 0.2:
        one, other = rng.sample(sorted({number(rng, split) for _ in range(12)}, key=int), 2)
        pair = printed(rng, split, [one]), printed(rng, split, [other])
        more = rng.random() < 0.6
        question = pick(
            rng,
            "Which number is larger?|Which picture has the larger number?|Which number is bigger?"
            if more
            else "Which number is smaller?|Which picture has the smaller number?",
        )
        if rng.random() < 0.5:
            return pair, _which(
                rng, f"{question.removesuffix('?')}, the first or the second?", (int(one) > int(other)) == more
            )
        return pair, Asked(question, one if (int(one) > int(other)) == more else other)
    scene, second = shapes(rng, split, 1, 5), shapes(rng, split, 1, 5)
    if draw < 0.4 and len(scene.things) != len(second.things):
        more = rng.random() < 0.6
        question = "more shapes|more things|more objects" if more else "fewer shapes|fewer things"
        name = pick(rng, question)
        return (scene, second), _which(rng, pick(rng, f"Which picture has {name}?|Which one has {name}?|Which image shows {name}?"),
                                       (len(scene.things) > len(second.things)) == more)  # fmt: skip
    if draw < 0.6:
        names = {one.name for one in scene.things} ^ {one.name for one in second.things}
        if names:
            name = rng.choice(sorted(names))
            an = article(name)
            question = (
                f"Which picture has {an}?|Which one has {an}?|Where is the {name}, in the first or the second picture?"
            )
            return (scene, second), _which(rng, pick(rng, question), any(one.name == name for one in scene.things))
    if draw < 0.85:
        changed = _changed(rng, scene)
        if changed is not None and belongs(changed[0].key, split):
            same = rng.random() < 0.3
            question = pick(rng, "What is the difference?|What changed?|What is different?|What is the difference between the pictures?"
                                 "|What is different in the second picture?|Compare the two pictures.")  # fmt: skip
            if rng.random() < 0.3:
                question = pick(
                    rng, "Are they the same?|Do both pictures show the same?|Are the two pictures the same?"
                )
                return (scene, scene if same else changed[0]), Asked(question, yes_or_no(same))
            return (scene, scene if same else changed[0]), Asked(question, "Nothing." if same else changed[1])
    shape = rng.choice(scene.things + second.things).shape
    which = rng.random() < 0.5
    place = "first" if which else "second"
    question = pick(rng, f"How many {PLURALS[shape]} are in the {place} picture?|How many {PLURALS[shape]} does the {place} one have?"
                         f"|How many {PLURALS[shape]} are there in the {place} image?")  # fmt: skip
    return (scene, second), Asked(question, str((scene if which else second).count(shape=shape)))


def two_pictures(rng: Random, split: Split) -> Dialogue:
    """Two pictures in one turn, or one in each of two."""
    scenes, asked = compare(rng, split)
    if rng.random() < 0.25:
        first, second = (ABOUT_SHAPES["counting all"][0](rng, one) if not one.prints else ask_number(rng, one.prints[0].text)
                         for one in scenes)  # fmt: skip
        assert first is not None and second is not None
        turns = [(with_pictures(rng, first.question), first.answer)]
        turns.append(
            (with_pictures(rng, pick(rng, f"And this one?|And now?|{second.question}|And in this one?")), second.answer)
        )
        return Dialogue("two pictures", scenes, (*turns, (asked.question, asked.answer)))
    turns = [(with_pictures(rng, asked.question, 2), asked.answer)]
    if rng.random() < 0.15:  # The pictures may stand apart.
        turns = [(f"First:{IMAGE} Second:{IMAGE} {asked.question}", asked.answer)]
    if not scenes[0].prints and rng.random() < 0.5:
        place, scene = rng.choice((("first", scenes[0]), ("second", scenes[1])))
        draw = rng.random()
        if draw < 0.5:
            turns.append((f"How many shapes are in the {place} picture?", str(len(scene.things))))
        else:
            turns.append(
                (f"What {colour_word(rng)} is the background of the {place} picture?", sentence(rng, scene.background))
            )
    return Dialogue("two pictures", scenes, tuple(turns))


TALK: Final = (
    ("Hello|Hi|Hello!|Hi there|Hey|Good morning|Good evening|hello", "Hello! Show me a picture, and ask me about it."),
    (
        "What can you do?|What are you able to do?|How can you help me?|What do you do?|Help|What can I ask you?",
        "I look at pictures of shapes, numbers and words. Ask me for colours, counts and places, or let me read.",
    ),
    ("What is your name?|Who are you?|What are you?|Your name?|Tell me about yourself.", "I am Shim Vision, a small model that looks at pictures."),
    ("Thank you|Thanks|Thanks!|Thank you very much|Great, thanks", "You are welcome."),
    ("Bye|Goodbye|See you|Good night", "Goodbye!"),
    ("How are you?|How are you today?|Are you well?", "I am fine, thank you."),
)  # fmt: skip
NO_PICTURE: Final = "There is no picture. Please show me one."
OTHER: Final = "I can only talk about pictures. Please show me one."


def talk(rng: Random, split: Split) -> Dialogue:
    """Small talk, or a question about a picture that is not there."""
    draw = rng.random()
    if draw < 0.35:
        ask = rng.choice(list(ABOUT_SHAPES.values()))[0](rng, shapes(rng, split, 2, 3))
        question = ask.question if ask is not None else "What is in this picture?"
        turn = (question, NO_PICTURE)
    elif draw < 0.5:
        turn = (pick(rng, "What is the capital of France?|Tell me a story.|What is 2 + 2?|Write a poem.|Why is the sky blue?"
                          "|Who wrote Hamlet?|Tell me a joke.|What day is it?|Translate this.|Write a program."), OTHER)  # fmt: skip
    else:
        questions, answer = rng.choice(TALK)
        turn = (pick(rng, questions), answer)
    return Dialogue("small talk", (), (turn,))


SKILLS: Final[dict[str, Maker]] = {
    "plain colour": one_colour,
    **{name: (lambda rng, split, name=name: of_shapes(rng, split, name)) for name in ABOUT_SHAPES},  # type: ignore[misc]
    "numbers": lambda rng, split: reading(rng, split, "numbers"),
    "words": lambda rng, split: reading(rng, split, "words"),
    "about texts": about_print,
    "follow-up": follow_up,
    "two pictures": two_pictures,
    "small talk": talk,
}
"""What is evaluated."""

ONE_PICTURE: Final[tuple[tuple[Maker, float], ...]] = (
    (many, 0.34),
    (many_of_print, 0.42),
    (lambda rng, split: reading(rng, split, "words"), 0.16),
    (comparisons, 0.14),
    (follow_up, 0.08),
    (one_colour, 0.05),
    (talk, 0.05),
)
SYSTEMS: Final = (
    "You are a helpful assistant.",
    "Answer briefly.",
    "You are a helpful assistant that looks at pictures.",
)


def one_picture(rng: Random, split: Split) -> Dialogue:
    """A dialogue with one picture, or none; some begin with a greeting or a system prompt."""
    makers, weights = zip(*ONE_PICTURE, strict=True)
    made: Dialogue = rng.choices(makers, weights)[0](rng, split)
    return opened(rng, made)


def opened(rng: Random, made: Dialogue) -> Dialogue:
    """A dialogue with what may stand before it."""
    if made.scenes and rng.random() < 0.05:
        questions, answer = TALK[0]
        made = replace(made, turns=((pick(rng, questions), answer), *made.turns))
    if made.scenes and rng.random() < 0.05:
        questions, answer = TALK[3]
        made = replace(made, turns=(*made.turns, (pick(rng, questions), answer)))
    if rng.random() < 0.12:
        made = replace(made, system=rng.choice(SYSTEMS))
    return made

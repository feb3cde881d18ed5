"""Dialogues about pictures: which skills there are, and how one is sampled."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from training.registry import Split, one_of
from training.vision import wording
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
class Calls:
    """Calls of functions by the assistant, with their arguments, and the text before them."""

    calls: tuple[tuple[str, dict[str, Any]], ...]
    text: str = ""


@dataclass(frozen=True)
class Results:
    """What the calls returned, each with ``<image>`` in the place of a picture."""

    contents: tuple[str, ...]


class Retold(str):
    """An answer in the words of another model; it is not learned."""


Turn = tuple[str | Results, str | Calls | None]
"""What the user says or the calls returned, and what the assistant does then; None: the user goes on."""


@dataclass(frozen=True)
class Dialogue:
    """Pictures and turns; a question has ``<image>`` where a picture stands in it. The skill is that of the last turn."""

    skill: str
    scenes: tuple[Scene, ...]
    turns: tuple[Turn, ...]
    system: str | None = None
    tools: tuple[dict[str, Any], ...] = ()


def with_pictures(rng: Random, question: str, count: int = 1) -> str:
    """A question with its pictures before it, most often, or behind it."""
    pictures = IMAGE * count
    return f"{pictures}{question}" if rng.random() < 0.6 else f"{question}{pictures}"


def turns_of(rng: Random, skill: str, scene: Scene, first: Asked, more: list[Asked]) -> Dialogue:
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
            scene = shapes(rng, split, *((3, 5) if rng.random() < 0.5 else (1, 4)))
        else:
            scene = shapes(rng, split)
        asked = ask(rng, scene)
        if asked is not None:
            return turns_of(rng, skill, scene, asked, [])


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
    return turns_of(rng, "many", scene, made[0], made[1:])


def comparisons(rng: Random, split: Split) -> Dialogue:
    """Several questions that compare two of a few things."""
    made: list[Asked] = []
    while not made:
        scene = shapes(rng, split, 2, 4)
        for _ in range(6):
            asked = ABOUT_SHAPES[rng.choice(("size", "size", "larger of two", "relation"))][0](rng, scene)
            if asked is not None and all(asked.question != one.question for one in made):
                made.append(asked)
    return turns_of(rng, "comparisons", scene, made[0], made[1:])


def follow_up(rng: Random, split: Split) -> Dialogue:
    """A question, and a second that only makes sense after it."""
    while True:
        scene = shapes(rng, split, 1, 5)
        first = ABOUT_SHAPES[rng.choice(("colour", "shape", "place", "extreme", "at a place", "beside"))][0](rng, scene)
        if first is None or first.about is None:
            continue
        second = about(rng, scene, first.about)
        if second.answer != first.answer:
            return turns_of(rng, "follow-up", scene, first, [second])


def missing(rng: Random, split: Split) -> Dialogue:
    """A question about a shape that is not there."""
    scene = shapes(rng, split)
    shape = rng.choice([shape for shape in SHAPES if not scene.count(shape=shape)])
    ways = wording.COLOUR if rng.random() < 0.5 else wording.WHERE
    question = one_of(rng, ways, colour=colour_word(rng), name=shape)
    return turns_of(rng, "missing", scene, Asked(question, f"There is no {shape}."), [])


def one_colour(rng: Random, split: Split) -> Dialogue:
    """A picture of one colour."""
    scene = plain(rng)
    first = behind(rng, scene) if rng.random() < 0.8 else describe(rng, scene)
    more = [Asked("How many shapes are there?", "0")] if rng.random() < 0.1 else []
    return turns_of(rng, "plain colour", scene, first, more)


def ask_number(rng: Random, text: str) -> Asked:
    """A question for a number."""
    return Asked(rng.choice(wording.NUMBER if rng.random() < 0.6 else wording.TEXT), text)


def ask_word(rng: Random, text: str) -> Asked:
    """A question for a word."""
    return Asked(rng.choice(wording.WORD if rng.random() < 0.5 else wording.TEXT), text)


def about_line(rng: Random, scene: Scene, split: Split) -> Asked:
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
    scene = printed(rng, split, [text], beside=rng.choice((0, 0, 0, 0, 1, 1, 2, 3)))
    first = (ask_number if skill == "numbers" else ask_word)(rng, text)
    return turns_of(rng, skill, scene, first, [])


def many_of_print(rng: Random, split: Split) -> Dialogue:
    """Several questions about printed lines and what is beside them."""
    digits = rng.random() < 0.3
    text = number(rng, split) if digits else word(rng, split)
    lines = [text]
    if rng.random() < 0.25:
        lines.append(word(rng, split) if digits else number(rng, split))
    scene = printed(rng, split, lines, beside=rng.choice((0, 0, 1, 1, 2, 2, 3)))
    if len(lines) == 2:
        made = [Asked(rng.choice(wording.NUMBER if line.isdigit() else wording.WORD), line) for line in lines]
        rng.shuffle(made)
    else:
        made = [(ask_number if digits else ask_word)(rng, text)]
        made += [about_line(rng, scene, split) for _ in range(rng.randint(1, 2))]
        if rng.random() < 0.35:
            made.append(describe(rng, scene))
    names = list(ABOUT_SHAPES)
    for _ in range(rng.randint(1, 2) if scene.things else 0):
        asked = ABOUT_SHAPES[rng.choice([name for name in names if name != "description"])][0](rng, scene)
        if asked is not None:
            made.append(asked)
    if rng.random() < 0.3:
        rng.shuffle(made)
    return turns_of(rng, "many", scene, made[0], made[1:])


def about_print(rng: Random, split: Split) -> Dialogue:
    """A question about the colours of a line, its length or what it says."""
    text = number(rng, split) if rng.random() < 0.4 else word(rng, split)
    scene = printed(rng, split, [text])
    return turns_of(rng, "about texts", scene, about_line(rng, scene, split), [])


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
        size = pick(rng, "larger|bigger|higher" if more else "smaller|lower")
        first = (int(one) > int(other)) == more
        if rng.random() < 0.5:
            question = f"Which {pick(rng, 'picture|image|one')} has the {size} number{pick(rng, '|, the first or the second')}?"
            named = f"Which number is {size}, the first or the second?"
            return pair, _which(rng, rng.choice((question, question, named)), first)
        question = pick(rng, f"Which number is {size}?|What is the {size} number?|Which is the {size} number?")
        return pair, Asked(question, one if first else other)
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

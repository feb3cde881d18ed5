"""Questions about a picture of shapes, with their answers."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from training.registry import one_of
from training.vision import wording
from training.vision.scenes import COLOURS, PLURALS, SHAPES, Scene, Thing

Turn = tuple[str, str]
CLEAR: Final = 0.14
"""Distance between centres from which one thing is beside, above or below another."""
LARGER: Final = 1.3
WORDS: Final = ("no", "one", "two", "three", "four", "five", "six")


def pick(rng: Random, sentences: str) -> str:
    """One of the sentences, which stand between bars."""
    return rng.choice(sentences.split("|")).strip()


def article(name: str) -> str:
    """The name with the indefinite article."""
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def colour_word(rng: Random) -> str:
    """The word in one of its spellings."""
    return "colour" if rng.random() < 0.5 else "color"


@dataclass(frozen=True)
class Asked:
    """A question, its answer, and the thing that a next question may call 'it'."""

    question: str
    answer: str
    about: Thing | None = None


Ask = Callable[[Random, Scene], Asked | None]


def describe(rng: Random, scene: Scene) -> Asked:
    """All things by name, with their number, and the background."""
    question = wording.description(rng)
    if len(scene.prints) == 1 and rng.random() < 0.4:
        question = one_of(rng, wording.DESCRIBE_PRINT, kind="number" if scene.prints[0].text.isdigit() else "word")
    return Asked(question, described(scene), scene.things[0] if len(scene.things) == 1 else None)


def described(scene: Scene) -> str:
    """A sentence that names what is in a scene, from left to right."""
    if not scene.things and not scene.prints:
        return f"A plain {scene.background} picture."
    ordered = sorted(scene.things, key=lambda one: one.x)
    parts = [
        article(name) if count == 1 else f"{WORDS[count]} {name.split()[0]} {PLURALS[name.split()[1]]}"
        for name, count in Counter(one.name for one in ordered).items()
    ]
    parts += [f"the {'number' if one.text.isdigit() else 'word'} {one.text}" for one in scene.prints]
    text = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"{text[0].upper()}{text[1:]} on a {scene.background} background.".replace(" a orange", " an orange")


def count_all(rng: Random, scene: Scene) -> Asked:
    """The number of things."""
    name = pick(rng, "shapes|shapes|things|objects|figures|shapes in total|things in total")
    return Asked(one_of(rng, wording.COUNT, name=name), str(len(scene.things)))


def count_some(rng: Random, scene: Scene) -> Asked:
    """The number of things of a colour, a shape or both."""
    one = rng.choice(scene.things)
    again = [thing for thing in scene.things if scene.count(thing.shape, thing.colour) > 1]
    if again and rng.random() < 0.35:
        one = rng.choice(again)
        name = f"{one.colour} {PLURALS[one.shape]}"
        return Asked(one_of(rng, wording.COUNT, name=name), str(scene.count(one.shape, one.colour)))
    colour = one.colour if rng.random() < 0.85 else rng.choice(COLOURS)
    shape = one.shape if rng.random() < 0.85 else rng.choice(SHAPES)
    draw = rng.random()
    if draw < 0.35:
        name, count = f"{colour} {pick(rng, 'shapes|things|objects')}", scene.count(colour=colour)
    elif draw < 0.7:
        name, count = PLURALS[shape], scene.count(shape=shape)
    else:
        name, count = f"{colour} {PLURALS[shape]}", scene.count(shape, colour)
    return Asked(one_of(rng, wording.COUNT, name=name), str(count))


def colour_of(rng: Random, scene: Scene) -> Asked | None:
    """The colour of the only thing of its shape, or of all that have it."""
    word = colour_word(rng)
    shapes = Counter(one.shape for one in scene.things)
    fit = [one for one in scene.things if shapes[one.shape] == 1]
    if len(scene.things) == 1 and rng.random() < 0.4:
        one = scene.things[0]
        question = one_of(rng, wording.COLOUR_ALONE, colour=word)
    elif fit:
        one = rng.choice(fit)
        question = one_of(rng, wording.COLOUR, colour=word, name=one.shape)
    else:
        colours = {one.colour for one in scene.things}
        if len(colours) > 1:
            return None
        one = scene.things[0]
        question = one_of(rng, wording.COLOUR_ALL, colour=word)
    return Asked(question, sentence(rng, one.colour), one)


def sentence(rng: Random, answer: str) -> str:
    """An answer of one word, with a capital."""
    return answer[0].upper() + answer[1:] + "."


def shape_of(rng: Random, scene: Scene) -> Asked | None:
    """The shape of the only thing of its colour."""
    colours = Counter(one.colour for one in scene.things)
    fit = [one for one in scene.things if colours[one.colour] == 1]
    if not fit:
        return None
    one = rng.choice(fit)
    alone = len(scene.things) == 1 and rng.random() < 0.4
    question = one_of(rng, wording.SHAPE_ALONE if alone else wording.SHAPE, colour=one.colour)
    return Asked(question, sentence(rng, article(one.shape)), one)


def exists(rng: Random, scene: Scene) -> Asked:
    """The presence of a colour, a shape or both."""
    one, other = rng.choice(scene.things), rng.choice(scene.things)
    draw = rng.random()
    yes = draw < 0.5
    colour = one.colour if yes or rng.random() < 0.5 else rng.choice(COLOURS)
    shape = one.shape if yes else other.shape if rng.random() < 0.4 else rng.choice(SHAPES)
    kind = rng.random()
    if kind < 0.25:
        name, names, found = (
            f"{colour} shape",
            f"{colour} {pick(rng, 'shapes|things|objects')}",
            scene.count(colour=colour) > 0,
        )
    elif kind < 0.5:
        name, names, found = shape, PLURALS[shape], scene.count(shape=shape) > 0
    else:
        name, names, found = f"{colour} {shape}", f"{colour} {PLURALS[shape]}", scene.count(shape, colour) > 0
    question = one_of(rng, wording.EXISTS, a=article(name), name=name, names=names)
    return Asked(question, yes_or_no(found))


def exists_and(rng: Random, scene: Scene) -> Asked | None:
    """The presence of a thing, and its colour or shape with it."""
    counted, word = rng.random() < 0.7, colour_word(rng)
    yes = rng.random() < 0.55
    one = rng.choice(scene.things)
    if counted:
        shape = one.shape if yes else rng.choice(SHAPES)
        fit = [thing for thing in scene.things if thing.shape == shape]
        question = one_of(rng, wording.EXISTS_COLOUR, a=article(shape), name=shape, colour=word)
    else:
        colour = one.colour if yes else rng.choice(COLOURS)
        fit = [thing for thing in scene.things if thing.colour == colour]
        question = one_of(rng, wording.EXISTS_SHAPE, name=colour, a=article(colour))
    if len(fit) > 1:
        return None
    return Asked(question, f"Yes, {article(fit[0].name)}." if fit else "No.", fit[0] if fit else None)


def yes_or_no(true: bool) -> str:
    """The answer to a question of truth."""
    return "Yes." if true else "No."


def where(rng: Random, scene: Scene) -> Asked | None:
    """The part of the picture in which a thing is."""
    fit = [one for one in scene.alone() if one.place]
    if not fit:
        return None
    one = rng.choice(fit)
    name = called(rng, scene, one)
    question = one_of(rng, wording.WHERE, name=name)
    return Asked(question, located(one), one)


def located(thing: Thing) -> str:
    """A thing's place, as an answer."""
    place = thing.place
    if place == "middle":
        return "In the middle."
    return (
        f"At the {place}."
        if place in ("top", "bottom")
        else f"On the {place}."
        if place in ("left", "right")
        else (f"In the {place} corner.")
    )


def at_place(rng: Random, scene: Scene) -> Asked | None:
    """The only thing in a part of the picture."""
    places = Counter(one.place for one in scene.things)
    fit = [one for one in scene.things if one.place and places[one.place] == 1 and places[None] == 0]
    if not fit:
        return None
    one = rng.choice(fit)
    place = one.place or ""
    spot = "in the middle" if place == "middle" else f"at the {place}" if place in ("top", "bottom") else (
        f"on the {place}" if place in ("left", "right") else f"in the {place} corner"
    )  # fmt: skip
    question = one_of(rng, wording.AT_PLACE, spot=spot)
    return Asked(question, sentence(rng, article(one.name)), one)


def called(rng: Random, scene: Scene, thing: Thing) -> str:
    """A name that only this thing has."""
    shapes = scene.count(shape=thing.shape)
    colours = scene.count(colour=thing.colour)
    if shapes == 1 and rng.random() < 0.4:
        return thing.shape
    if colours == 1 and rng.random() < 0.3:
        return f"{thing.colour} {pick(rng, 'shape|one|thing')}"
    return thing.name


RELATIONS: Final = {
    "left of": "to the left of|left of|on the left of",
    "right of": "to the right of|right of|on the right of",
    "above": "above|over|higher than",
    "below": "below|under|lower than",
}


def relations(one: Thing, other: Thing) -> dict[str, bool] | None:
    """The relations of two things that are clear, true or not."""
    made: dict[str, bool] = {}
    if abs(one.x - other.x) > CLEAR:
        made |= {"left of": one.x < other.x, "right of": one.x > other.x}
    if abs(one.y - other.y) > CLEAR:
        made |= {"above": one.y < other.y, "below": one.y > other.y}
    return made or None


def is_beside(rng: Random, scene: Scene) -> Asked | None:
    """The truth of a relation between two things."""
    fit = scene.alone()
    if len(fit) < 2:
        return None
    one, other = rng.sample(fit, 2)
    found = relations(one, other)
    if found is None:
        return None
    relation = rng.choice(list(found))
    word = pick(rng, RELATIONS[relation])
    a, b = called(rng, scene, one), called(rng, scene, other)
    question = one_of(rng, wording.RELATION, a=a, b=b, word=word)
    return Asked(question, yes_or_no(found[relation]), one)


def beside(rng: Random, scene: Scene) -> Asked | None:
    """The thing on one side of the only other one, or where one is from the other."""
    if len(scene.things) != 2 or len(scene.alone()) != 2:
        return None
    one, other = rng.sample(scene.things, 2)
    true = [name for name, holds in (relations(one, other) or {}).items() if holds]
    if not true:
        return None
    relation = rng.choice(true)
    word = pick(rng, RELATIONS[relation]) if relation.endswith("of") else relation
    question = one_of(rng, wording.BESIDE, word=word, name=called(rng, scene, other))
    return Asked(question, sentence(rng, article(one.name)), one)


def extreme(rng: Random, scene: Scene) -> Asked | None:
    """The largest or the smallest thing, or the one that is farthest on one side."""
    if len(scene.things) < 2:
        return None
    axis = rng.choice(("size", "size", "x", "y"))
    last = rng.random() < 0.5
    if axis == "size":
        ordered = sorted(scene.things, key=lambda one: one.radius, reverse=last)
        clear = max(ordered[0].radius, ordered[1].radius) > LARGER * min(ordered[0].radius, ordered[1].radius)
        words = "largest|biggest" if last else "smallest|tiniest"
    else:
        ordered = sorted(scene.things, key=lambda one: one.x if axis == "x" else one.y, reverse=last)
        gap = abs(ordered[0].x - ordered[1].x) if axis == "x" else abs(ordered[0].y - ordered[1].y)
        clear = gap > CLEAR / 1.5
        words = {("x", False): "leftmost", ("x", True): "rightmost", ("y", False): "highest|topmost"}.get(
            (axis, last), "lowest|bottom most"
        )
    if not clear:
        return None
    word, one = pick(rng, words), ordered[0]
    draw = rng.random()
    if draw < 0.6:
        question = one_of(rng, wording.EXTREME, word=word)
        return Asked(question, sentence(rng, article(one.name)), one)
    question = one_of(rng, wording.EXTREME_COLOUR, colour=colour_word(rng), word=word)
    return Asked(question, sentence(rng, one.colour), one)


def unlike_in_size(rng: Random, scene: Scene) -> tuple[Thing, Thing] | None:
    """Two things of which one is clearly larger."""
    fit = scene.alone()
    if len(fit) < 2:
        return None
    one, other = rng.sample(fit, 2)
    clear = max(one.radius, other.radius) >= LARGER * min(one.radius, other.radius)
    return (one, other) if clear else None


def larger_of_two(rng: Random, scene: Scene) -> Asked | None:
    """The larger or the smaller of two things that the question names."""
    found = unlike_in_size(rng, scene)
    if found is None:
        return None
    one, other = found
    more = rng.random() < 0.5
    word = pick(rng, "bigger|larger" if more else "smaller")
    a, b = called(rng, scene, one), called(rng, scene, other)
    right = one if (one.radius > other.radius) == more else other
    question = one_of(rng, wording.LARGER_OF_TWO, word=word, a=a, b=b)
    return Asked(question, sentence(rng, article(right.name)), right)


def bigger(rng: Random, scene: Scene) -> Asked | None:
    """The truth of one thing being larger than another."""
    found = unlike_in_size(rng, scene)
    if found is None:
        return None
    one, other = found
    large = one.radius > other.radius
    more = rng.random() < 0.5
    word = pick(rng, "bigger|larger" if more else "smaller")
    a, b = called(rng, scene, one), called(rng, scene, other)
    return Asked(one_of(rng, wording.BIGGER, word=word, a=a, b=b), yes_or_no(large == more), one)


def behind(rng: Random, scene: Scene) -> Asked:
    """The colour of the background."""
    plain = not scene.things and not scene.prints and rng.random() < 0.6
    question = one_of(rng, wording.PLAIN if plain else wording.BACKGROUND, colour=colour_word(rng))
    return Asked(question, sentence(rng, scene.background))


def about(rng: Random, scene: Scene, thing: Thing) -> Asked:
    """A question about what the one before was about."""
    draw, word = rng.random(), colour_word(rng)
    if draw < 0.35:
        return Asked(
            pick(rng, f"What {word} is it?|And its {word}?|Which {word} is it?|And what {word} is it?|Its {word}?"),
            sentence(rng, thing.colour),
            thing,
        )
    if draw < 0.6 and thing.place:
        return Asked(
            pick(rng, "Where is it?|And where is it?|Where in the picture is it?|Its position?"), located(thing), thing
        )
    if draw < 0.8:
        return Asked(
            pick(rng, "What shape is it?|And its shape?|Which shape is it?|And what shape is it?"),
            sentence(rng, article(thing.shape)),
            thing,
        )
    yes = rng.random() < 0.5
    colour = thing.colour if yes else rng.choice([one for one in COLOURS if one != thing.colour])
    return Asked(pick(rng, f"Is it {colour}?|Is its {word} {colour}?|So is it {colour}?"), yes_or_no(yes), thing)


ABOUT_SHAPES: Final[dict[str, tuple[Ask, float]]] = {
    "description": (describe, 2.0),
    "counting all": (count_all, 0.8),
    "counting some": (count_some, 2.2),
    "colour": (colour_of, 1.0),
    "shape": (shape_of, 1.0),
    "presence": (exists, 1.2),
    "presence and more": (exists_and, 0.7),
    "place": (where, 1.2),
    "at a place": (at_place, 0.8),
    "relation": (is_beside, 2.5),
    "beside": (beside, 1.0),
    "extreme": (extreme, 1.0),
    "size": (bigger, 3.0),
    "larger of two": (larger_of_two, 1.5),
    "background": (behind, 0.5),
}
"""Ways of asking about shapes, and how often."""

"""Scenes: things and printed texts in their places, before they are drawn."""

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from training.registry import Split

RGB = tuple[int, int, int]

ANCHORS: Final[dict[str, tuple[RGB, ...]]] = {
    "red": ((255, 0, 0), (220, 20, 40), (204, 32, 30), (230, 60, 50)),
    "orange": ((255, 165, 0), (255, 140, 0), (245, 130, 30)),
    "yellow": ((255, 255, 0), (255, 225, 20), (255, 215, 0), (245, 230, 90)),
    "green": ((0, 128, 0), (0, 200, 0), (34, 139, 34), (0, 255, 0), (60, 180, 80), (40, 110, 50)),
    "blue": ((0, 0, 255), (30, 60, 220), (30, 144, 255), (65, 105, 225), (0, 0, 150), (135, 206, 235)),
    "cyan": ((0, 255, 255), (20, 220, 220), (64, 224, 208)),
    "purple": ((128, 0, 128), (140, 50, 180), (148, 0, 211), (110, 40, 150)),
    "pink": ((255, 192, 203), (255, 105, 180), (255, 150, 190), (250, 130, 170)),
    "brown": ((139, 69, 19), (120, 72, 32), (150, 90, 45), (165, 42, 42)),
    "black": ((0, 0, 0), (22, 22, 22)),
    "white": ((255, 255, 255), (242, 242, 242)),
    "gray": ((128, 128, 128), (105, 105, 105), (160, 160, 160)),
}
COLOURS: Final = tuple(ANCHORS)
SHAPES: Final = ("circle", "square", "triangle", "star", "heart", "diamond", "cross", "ring")
PLURALS: Final = {shape: "crosses" if shape == "cross" else f"{shape}s" for shape in SHAPES}
ROWS: Final = ("top", "", "bottom")
COLUMNS: Final = ("left", "", "right")
HELD_OUT_PERCENT: Final = 10
JITTER: Final = 9
BANDS: Final = ((0.0, 0.30), (0.40, 0.60), (0.70, 1.0))
"""Of the centres of things that stand at the edges and in the middle; between them no place has a name."""


def held_out(key: str) -> bool:
    """Membership of a content in the held-out part, by a hash of what it is."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") % 100 < HELD_OUT_PERCENT


def belongs(key: str, split: Split) -> bool:
    """True for content of this half."""
    return held_out(key) == (split is Split.HELD_OUT)


@dataclass(frozen=True)
class Thing:
    """A shape; the centre and the radius are shares of the picture's sides."""

    shape: str
    colour: str
    x: float
    y: float
    radius: float

    @property
    def name(self) -> str:
        """Colour and shape."""
        return f"{self.colour} {self.shape}"

    @property
    def place(self) -> str | None:
        """Name of its part of the picture; None between two."""
        row, column = _band(self.y), _band(self.x)
        if row is None or column is None:
            return None
        return " ".join(filter(None, (ROWS[row], COLUMNS[column]))) or "middle"


@dataclass(frozen=True)
class Print:
    """A printed line of text; the box's sides are shares of the picture's."""

    text: str
    colour: str
    x: float
    y: float
    width: float
    height: float
    simple: bool = False
    """In Pillow's own font, as plain programs print."""


@dataclass(frozen=True)
class Scene:
    """What is in a picture."""

    background: str
    things: tuple[Thing, ...] = ()
    prints: tuple[Print, ...] = ()

    @property
    def key(self) -> str:
        """Its content, without places and sizes."""
        named = sorted(thing.name for thing in self.things)
        return "/".join((self.background, *named, *(one.text.lower() for one in self.prints)))

    def count(self, shape: str | None = None, colour: str | None = None) -> int:
        """Number of things of a shape and a colour."""
        return sum(shape in (None, one.shape) and colour in (None, one.colour) for one in self.things)

    def alone(self) -> list[Thing]:
        """Things whose colour and shape no other thing has."""
        names = Counter(one.name for one in self.things)
        return [one for one in self.things if names[one.name] == 1]


def _band(centre: float) -> int | None:
    return next((i for i, (low, high) in enumerate(BANDS) if low <= centre <= high), None)


def shade(rng: Random, colour: str) -> RGB:
    """A colour's value, near one of those that carry its name."""
    red, green, blue = rng.choice(ANCHORS[colour])
    if rng.random() < 0.4:
        return red, green, blue
    grey = rng.randint(-JITTER, JITTER) if colour in ("black", "white", "gray") else None
    made = [value + (rng.randint(-JITTER, JITTER) if grey is None else grey) for value in (red, green, blue)]
    return min(255, max(0, made[0])), min(255, max(0, made[1])), min(255, max(0, made[2]))


def another(rng: Random, *not_these: str) -> str:
    """A colour that is none of these."""
    return rng.choice([colour for colour in COLOURS if colour not in not_these])


def background(rng: Random) -> str:
    """A background's colour, most often white."""
    return "white" if rng.random() < 0.4 else rng.choice(COLOURS)


def _spot(rng: Random, radius: float, taken: Sequence[tuple[float, float, float]]) -> tuple[float, float] | None:
    """A free place for a thing; those at the edges and in the middle are more frequent."""
    low, high = radius + 0.01, 0.99 - radius
    for _ in range(12):
        if rng.random() < 0.6:
            x, y = (rng.uniform(max(low, band[0]), min(high, band[1])) for band in rng.choices(BANDS, k=2))
            if not (low <= x <= high and low <= y <= high):
                continue
        else:
            x, y = rng.uniform(low, high), rng.uniform(low, high)
        if all(math.hypot(x - a, y - b) > 1.15 * (radius + r) + 0.01 for a, b, r in taken):
            return x, y
    return None


def shapes(rng: Random, split: Split, fewest: int = 1, most: int = 6) -> Scene:
    """A scene of things that do not touch; often several are of one kind."""
    while True:
        behind = background(rng)
        wanted = rng.randint(fewest, most)
        palette = rng.sample([colour for colour in COLOURS if colour != behind], rng.choice((1, 2, 2, 2, 3, 4)))
        forms = rng.sample(SHAPES, rng.choice((1, 2, 2, 2, 3, 4)))
        largest = {1: 0.38, 2: 0.24, 3: 0.2, 4: 0.17, 5: 0.15, 6: 0.14}[wanted]
        things: list[Thing] = []
        taken: list[tuple[float, float, float]] = []
        alike = rng.uniform(0.09, largest) if rng.random() < 0.3 else None
        for _ in range(wanted):
            radius = alike or rng.uniform(0.08, largest)
            spot = _spot(rng, radius, taken)
            if spot is None:
                break
            taken.append((*spot, radius))
            things.append(Thing(rng.choice(forms), rng.choice(palette), *spot, radius))
        scene = Scene(behind, tuple(things))
        if len(things) == wanted and belongs(scene.key, split):
            return scene


def plain(rng: Random) -> Scene:
    """A picture of one colour."""
    return Scene(rng.choice(COLOURS))


VOWELS: Final = "aeiou"
CONSONANTS: Final = "bcdfghjklmnprstvwyz"
# Letters whose two cases look alike: a word of nothing else could be either.
ALIKE: Final = frozenset("cosvwxz")
SHORT_WORDS: Final = tuple(
    """able acid also apple arm army away baby back bad bag ball band bank bath bear bed bee bell best big bird bite
    black blue boat body bone book both bowl box boy bread brown bus busy cake call calm camp cap car card care cat cave
    cent chair chat chin city clay clock cloud club coal coat cold cook cool copper corn cow crab cup dad dance dark day
    deep desk dog door down draw dream dress drop drum dry duck dust each ear east easy egg end even exit face fact fall
    farm fast fat feet field fire fish five flag flat flower fly food foot fork fox free frog fruit full fun game garden
    gate gift girl glad glass goal goat gold good grass green grey hair half hall hand happy hat head heart heat hello
    help hen here hill home honey hope horse hot house ice idea ink iron jam jar jet job join jump keep key kick kind
    king kite knee lake lamb lamp land last leaf left leg lemon less light like lime line lion list live long look lost
    loud love luck lunch map march mask meal meat melon milk mind mint moon more moss moth mouse mouth mud music nail
    name near neck nest net new news next nice night nine nose note number oak ocean oil old one open oven owl page pain
    paint pan paper park part pear pen pencil piano pie pig pink plan plate play plum pond pool pot price queen quick
    quiet rabbit radio rain red rest rice ring river road rock roof room rose rule run sad safe salt sand school sea
    seat seed seven shell ship shirt shoe shop sign silver sing sink six skin sky sleep slow small smile snow soap sock
    soft song soup south spoon spring star stop storm street sugar sun swan sweet table tail tall tea team ten tent
    thank tiger time toast today tooth top town toy train tree trip truck two uncle under unit up van view voice walk
    wall warm wash water wave week well west wheel white wild wind wing winter wolf wood wool work world yard year
    yellow yes zebra zero zoo""".split()  # noqa: SIM905
)


STRAIGHT: Final = "ITLEJFHITLEJ"
"""Capitals of strokes that are easily taken for other letters."""


def capitals(rng: Random, split: Split) -> str:
    """Three to six capitals: a word or letters that could be one, often those of straight strokes."""
    while True:
        draw = rng.random()
        if draw < 0.45:
            made = rng.choice(SHORT_WORDS).upper()
        elif draw < 0.7:
            letters = STRAIGHT + "ABCDGKMNOPQRSUVWXYZ"
            made = "".join(rng.choices(letters, k=rng.randint(3, 6)))
        else:
            made = "".join(
                rng.choice("AEIOUIE" if i % 2 else "BCDFGHJKLMNPRSTVWXYZTLJ") for i in range(rng.randint(3, 6))
            )
            made = made if rng.random() < 0.6 else made[1:] + rng.choice("TLNPHT")
        if 3 <= len(made) <= 6 and not ALIKE.issuperset(made.lower()) and belongs(made.lower(), split):
            return made


def word(rng: Random, split: Split) -> str:
    """A short word or letters that could be one, in lower case, capitals or with one."""
    if rng.random() < 0.3:
        return capitals(rng, split)
    while True:
        draw = rng.random()
        if draw < 0.35:
            made = rng.choice(SHORT_WORDS)
        elif draw < 0.7:
            made = "".join(rng.choice(VOWELS if i % 2 else CONSONANTS) for i in range(rng.randint(2, 7)))
            made = made[1:] if rng.random() < 0.2 else made
        else:
            made = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 6)))
        if rng.random() < 0.3:  # Double letters are rare in what is made up, and hard to read.
            at = rng.randrange(len(made))
            made = made[: at + 1] + made[at:]
        if 2 <= len(made) <= 7 and not ALIKE.issuperset(made) and belongs(made, split):
            return rng.choice((made, made.upper(), made.upper(), made.capitalize()))


def number(rng: Random, split: Split) -> str:
    """A number, mostly of three digits."""
    while True:
        size = rng.choice((3, 3, 3, 3, 3, 1, 2, 2, 4, 4))
        made = str(rng.randrange(10 ** (size - 1) if size > 1 else 0, 10**size))
        if size == 1 or belongs(made, split):
            return made


def printed(rng: Random, split: Split, lines: Sequence[str], beside: int = 0) -> Scene:
    """A scene of lines of text, one below the other, and things below or above them."""
    while True:
        simple = rng.random() < (0.45 if lines[0].isupper() or lines[0].isdigit() else 0.2)
        behind = "white" if simple and rng.random() < 0.6 else background(rng)
        top, high = 0.03, 0.94
        things: list[Thing] = []
        if beside:
            above = rng.random() < (0.75 if simple else 0.5)
            high = 0.46
            top = 0.5 if above else 0.04
            low = 0.02 if above else 0.52
            for i in range(beside):
                radius = rng.uniform(0.1, 0.2)
                x = rng.uniform(i / beside + radius, (i + 1) / beside - radius) if beside < 3 else (i + 0.5) / beside
                y = rng.uniform(low + radius, low + 0.46 - radius)
                radius = min(radius, 0.45 / beside)
                things.append(Thing(rng.choice(SHAPES), another(rng, behind), x, y, radius))
        share = high / len(lines)
        prints: list[Print] = []
        ink = "black" if simple and behind == "white" and rng.random() < 0.8 else another(rng, behind)
        for i, line in enumerate(lines):
            letters = max(1, len(line))
            height = rng.uniform(0.6, 1.0) * min(share * 0.9, rng.uniform(0.14, 0.5))
            least = min(0.9, 0.07 * letters)
            width = rng.uniform(least, 0.94)
            x = rng.uniform(0.02, 0.98 - width)
            y = top + i * share + rng.uniform(0, max(0.0, share - height))
            prints.append(Print(line, ink, x, y, width, height, simple))
        scene = Scene(behind, tuple(things), tuple(prints))
        if not things or belongs(f"{behind}/{'/'.join(sorted(one.name for one in things))}", split):
            return scene

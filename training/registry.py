"""What a kind of dialogue is, the table of kinds, and the split into training and held-out content."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, wraps
from itertools import product
from random import Random
from typing import Any, Final, Literal, TypeVar

HELD_OUT_PERCENT: Final = 8
MAX_DRAWS: Final = 100_000
FEWEST_WORDINGS: Final = 12

Content = Literal["open", "wording", "closed", "free"]
T = TypeVar("T")


class Split(Enum):
    """The two disjoint halves of all content."""

    TRAIN = "train"
    HELD_OUT = "held out"


@dataclass(frozen=True)
class Dialogue:
    """One prompt and the answers that count as right.

    ``messages`` end with a user or tool turn. ``raw`` is a prompt outside the chat format, used instead of messages.
    ``thought`` stands between the think tags instead of the kind's. Where ``taught`` is true, the model learns the
    earlier turns of the assistant too. ``forced`` answers are JSON of a ``response_format`` that the prompt does not
    show: a grammar writes the keys, and only the values are learnt.
    """

    messages: tuple[dict[str, str], ...]
    answers: tuple[str, ...]
    tools: tuple[dict[str, Any], ...] = ()
    raw: str | None = None
    thought: str | None = None
    taught: bool = False
    forced: bool = False


Generator = Callable[[Random, Split], Dialogue]


@dataclass(frozen=True)
class Kind:
    """A kind of dialogue.

    ``content`` says what the held-out evaluation varies: "open" content never seen in training; "wording", a fact
    seen in training asked in a sentence never seen; "closed", prompts that training may have seen too. Answers of a
    "free" kind are one of many and not compared. ``thought`` is what the model writes between the think tags when
    thinking is on. A ``standalone`` kind gets no other system prompt, tools or earlier turns. ``thinks`` is the share
    of its training dialogues with thinking on.
    """

    name: str
    generate: Generator
    content: Content
    thought: str
    weight: float = 1.0
    standalone: bool = False
    thinks: float = 0.12


def thought_of(kind: Kind, dialogue: Dialogue) -> str:
    """The text between the think tags."""
    return kind.thought if dialogue.thought is None else dialogue.thought


def answer_of(dialogue: Dialogue, answer: str, *, thinking: bool) -> str:
    """The answer as it is written: without its steps where they are the thought."""
    return answer.rpartition("\n")[2] if thinking and dialogue.thought is not None else answer


@dataclass
class Registry:
    """Kinds by name, in order of registration."""

    kinds: dict[str, Kind] = field(default_factory=dict[str, Kind])

    def add(
        self,
        content: Content,
        thought: str,
        *,
        weight: float = 1.0,
        standalone: bool = False,
        name: str | None = None,
        thinks: float = 0.12,
    ) -> Callable[[Generator], Generator]:
        """A decorator that registers a generator under ``name``, or under its function's name."""

        def register(generate: Generator) -> Generator:
            kind = Kind(name or generate.__name__, generate, content, thought, weight, standalone, thinks)
            self.kinds[kind.name] = kind
            return generate

        return register


REGISTRY: Final = Registry()
kind: Final = REGISTRY.add


def split_of(key: str) -> Split:
    """The split that a piece of content belongs to, from a hash of the content alone."""
    bucket = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") % 100
    return Split.HELD_OUT if bucket < HELD_OUT_PERCENT else Split.TRAIN


def draw(make: Callable[[], T], split: Split, key: Callable[[T], str] = str) -> T:
    """The first value of ``make`` whose key belongs to ``split``."""
    for _ in range(MAX_DRAWS):
        value = make()
        if split_of(key(value)) is split:
            return value
    raise RuntimeError(f"no {split.value} content in {MAX_DRAWS} draws")


def apart(generate: Generator) -> Generator:
    """A decorator for a kind whose parts are in both splits: a whole prompt belongs to one, by its hash."""

    @wraps(generate)
    def made(rng: Random, split: Split) -> Dialogue:
        return draw(lambda: generate(rng, split), split, lambda one: f"whole {one.messages}")

    return made


@cache
def _in_split(options: tuple[str, ...], split: Split, salt: str) -> tuple[str, ...]:
    """The wordings of the split."""
    if len(options) < FEWEST_WORDINGS:
        return options
    held_out = tuple(one for one in options[1:] if split_of(f"{salt} {one}") is Split.HELD_OUT)
    if split is Split.HELD_OUT:
        return held_out or options
    return tuple(one for one in options if one not in held_out)


def in_split(options: Sequence[str], split: Split, salt: str) -> tuple[str, ...]:
    """The wordings of the split: one in twelve is held out, never the first, and none of few."""
    return _in_split(tuple(options), split, salt)


@cache
def wordings(text: str) -> tuple[str, ...]:
    """Every sentence that the patterns, one a line, stand for: `[a|b] c` is `a c` and `b c`."""
    made: dict[str, None] = {}
    for line in lines(text):
        parts = [part.split("|") if place % 2 else [part] for place, part in enumerate(re.split(r"[\[\]]", line))]
        made.update(dict.fromkeys("".join(chosen) for chosen in product(*parts)))
    return tuple(made)


def user(text: str) -> dict[str, str]:
    """A user turn."""
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, str]:
    """A system turn."""
    return {"role": "system", "content": text}


def assistant(text: str) -> dict[str, str]:
    """An assistant turn."""
    return {"role": "assistant", "content": text}


def ask(prompt: str, *answers: str) -> Dialogue:
    """A single user turn and its right answers."""
    return Dialogue((user(prompt),), answers)


def polite(rng: Random, request: str) -> str:
    """An imperative sentence without its full stop, in one of several manners."""
    lower = request[0].lower() + request[1:]
    forms = (
        f"{request}.",
        f"{request}.",
        request,
        request,
        f"Please {lower}.",
        f"please {lower}",
        f"{request}, please.",
        f"Can you {lower}?",
        f"Could you please {lower}?",
        f"Now {lower}.",
        lower,
    )
    return rng.choice(forms)


def loose(rng: Random, question: str) -> str:
    """A question as it stands, or with the casing and the end mark that people leave out."""
    form = rng.random()
    if form < 0.6:
        return question
    bare = question.rstrip("?.!")
    if form < 0.75:
        return bare
    lower = question[0].lower() + question[1:]
    return lower if form < 0.87 else lower.rstrip("?.!")


CASUAL: Final = (
    (r"^(what is|what's)\b", "whats"), (r"\byour\b", "ur"), (r"\byou\b", "u"), (r"\bare u\b", "r u"),
    (r"\bplease\b", "pls"), (r"\bthanks\b", "thx"), (r"\band\b", "n"), (r"'", ""), (r"\?$", ""), (r"\?$", "??"),
    (r"$", " pls"), (r"$", " plz"), (r"\?$", " please?"), (r"^", "hey "), (r"^", "hey, "), (r"^", "ok so "), (r"^", "so "),
)  # fmt: skip


def casual(rng: Random, text: str) -> str:
    """A short question, now and then as people type it on a phone; not for one whose words must be copied."""
    if rng.random() < 0.88:
        return text
    text = text[0].lower() + text[1:] if rng.random() < 0.5 else text.lower()
    for pattern, other in rng.sample(CASUAL, rng.randint(1, 4)):
        text = re.sub(pattern, other, text)
    return text


@cache
def lines(text: str) -> tuple[str, ...]:
    """Templates written one a line."""
    return tuple(line.strip() for line in text.strip().splitlines())


def one_of(rng: Random, templates: Sequence[str], **values: object) -> str:
    """A template chosen at random with its values filled in."""
    return rng.choice(templates).format(**values)

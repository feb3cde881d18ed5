"""Answers with markers where none belong, cut anywhere: between characters, and within them."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Sequence

from localai_shim.formats.values import OfferedTools
from localai_shim.output.answer import AnswerParser
from localai_shim.output.detokenizer import ByteDetokenizer
from tests.output.reading import Answer, tokens
from tests.output.recorded import WRITERS
from tests.output.recorded.case import OFFERED, Case
from tests.output.recorded.read import markup_of, read, state_of
from tests.output.streams import Stream, any_token, markers, recorded

ODD = [
    "\\u0000",
    "\u202e",
    "\ufeff",
    "\ufffd",
    "🙂",
    "e\u0301",
    "\r\n",
    "\u2028",
    "<" * 50,
    "[" * 50,
    '\\"',
    "\\",
    "```",
    "\t",
]


class _Bytes:
    """Bytes of tokens by their places in a list."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self.texts: dict[int, str] = {}

    def __call__(self, token: int) -> bytes:
        return self._pieces[token] if token >= 0 else b""

    def whole(self, token: int) -> str | None:
        return None


def mixed(family: str, rng: random.Random) -> Stream:
    """An answer of a family, or of another one, into which a few markers were put; in random pieces."""
    text = rng.choice(recorded(family if rng.random() < 0.8 else rng.choice([*WRITERS])) or [""])
    for _ in range(rng.randint(1, 4)):
        text = _changed(text, family, rng)
    case = Case(
        family,
        "",
        text,
        opened=markup_of(family).thought is not None and rng.random() < 0.3,
        tools=OFFERED if rng.random() < 0.8 else (),
        finish=rng.choice(("stop", "length")),
    )
    return Stream(case, cuts(text, rng), ())


def _changed(text: str, family: str, rng: random.Random) -> str:
    how = rng.randrange(7)
    own, others = markers(family), markers(rng.choice([*WRITERS]))
    places = [match.end() for match in re.finditer(r'["\'>=:(]', text)] if rng.random() < 0.6 else []
    at = rng.choice(places or [rng.randint(0, len(text))])
    if how == 0:
        return text[:at]
    if how == 1:
        return text[:at] + rng.choice(others or [""]) + text[at:]
    if how == 2:  # a marker that is not whole
        marker = rng.choice(own or others or ["<x>"])
        return text[:at] + marker[: rng.randint(1, len(marker))] + text[at:]
    if how == 3:  # one answer in another
        return text[:at] + rng.choice(recorded(family) or [""]) + text[at:]
    if how == 4:
        return text[:at] + rng.choice(ODD) + text[at:]
    if how == 5:
        return text[:at] + any_token(family, rng) + text[at:]
    end = rng.randint(at, len(text))
    return text[:at] + text[at:end] * rng.choice([0, 2, 3]) + text[end:]


def cuts(text: str, rng: random.Random) -> list[str]:
    """The text in random pieces."""
    ends = [0, *sorted(rng.choices(range(len(text) + 1), k=rng.choice([0, 1, 3, 9, len(text)]))), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(ends)]


def read_bytes(case: Case, rng: random.Random) -> Answer:
    """The answer, of pieces that may begin and end within a character."""
    raw = case.text.encode()
    ends = [0, *sorted(rng.choices(range(len(raw) + 1), k=rng.choice([1, 5, len(raw)]))), len(raw)]
    pieces = [raw[start:end] for start, end in itertools.pairwise(ends)]
    detokenizer = ByteDetokenizer(_Bytes(pieces))  # type: ignore[arg-type]
    parser = AnswerParser(detokenizer, markup_of(case.family), state=state_of(case), tools=OfferedTools(case.tools))
    out = Answer()
    for token in tokens([str(piece) for piece in pieces], case.finish):
        out.add(parser.feed(token))
    return out


def check_cuts(case: Case, rng: random.Random) -> None:
    """Whole, in characters, in other pieces and in bytes the answer is the same."""
    whole = read(case, [case.text])
    for pieces in (list(case.text), cuts(case.text, rng), cuts(case.text, rng)):
        assert read(case, pieces) == whole, pieces
    assert read_bytes(case, rng) == whole, "cut within characters, it reads otherwise"

"""Answers in JSON of which a grammar writes the keys and the brackets, and the model the values."""

import json
from collections.abc import Iterator
from typing import Any, Final

import regex

from training.tokenizer import PIECES

Part = tuple[str, bool]
find: Final = regex.compile(PIECES).findall


def is_number(value: Any) -> bool:
    """Whether a value ends at a character that only the next one tells: ``4`` may go on as ``42``."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def parts(value: Any) -> Iterator[Part]:
    """The text of a value, in parts that the model chooses or not.

    It chooses each value from the first character on (a grammar may allow ``null`` there too), the end of a list, and
    what follows a number.
    """
    if isinstance(value, dict):
        yield "{", True
        ends = False
        for place, (key, one) in enumerate(value.items()):
            if place:
                yield ",", ends
            yield f"{' ' if place else ''}{json.dumps(key, ensure_ascii=False)}:", False
            yield " ", True
            yield from parts(one)
            ends = is_number(one)
        yield "}", ends
    elif isinstance(value, list):
        yield "[", True
        for place, one in enumerate(value):
            yield ", " if place else "", True
            yield from parts(one)
        yield "]", True
    else:
        yield json.dumps(value, ensure_ascii=False), True


def forced_pieces(answer: str) -> list[Part]:
    """An answer in JSON, in pieces that the model should write or not.

    A piece is taught if any character of it is chosen by the model. Pieces are cut where the tokenizer cuts too, so
    that their token ids are those of the whole answer.
    """
    chosen: list[bool] = []
    for text, taught in parts(json.loads(answer)):
        chosen += [taught] * len(text)
    if len(chosen) != len(answer):
        raise ValueError(f"{answer!r} is not as json.dumps writes it")
    chosen[0] = False
    made: list[Part] = []
    start = at = 0
    for piece in find(answer):
        taught = any(chosen[at : at + len(piece)])
        if made and made[-1][1] == taught:
            made[-1] = (answer[start : at + len(piece)], taught)
        else:
            start = at
            made.append((piece, taught))
        at += len(piece)
    return made

"""Whatever a model writes: nothing raises, nothing is lost, and no markup is content. 100,000 random token streams."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pytest

from localai_shim.output.channels import Piece
from localai_shim.output.offered import OfferedTools
from tests.output.families import FAMILIES, Call, Family
from tests.output.reading import Answer, read, same, split, upstream
from tests.output.recorded import CORPUS, TOOLS, Recorded
from tests.samples import only

PER_FAMILY = {"a few": 150, "100,000 in all": -(-100_000 // len(FAMILIES))}

WORDS = ["Hello", " world", ".", ",", " the", "é", "🙂", "x", "0", "12", "true", "get_weather", "ping", "city"]
SYNTAX = [" ", "\n", "\n\n", '"', "'", "\\", "{", "}", "[", "]", "(", ")", "<", ">", "|", "/", "=", ":", '":', '{"']
JSON = ['{"name": "ping", "arguments": {}}', '{"city": "Paris"}', '"arguments": {', '{"name": "', "{}", '[{"name":']


@cache
def vocabulary(family: Family) -> list[list[str]]:
    """Kinds of tokens: words, syntax, JSON, the format's markers, pieces of them, and pieces of recorded answers."""
    tools = family.markup.tools
    assert tools is not None
    markers = [*family.markers, tools.start, *(m for _, edges in family.markup.transitions for m, _ in edges)]
    rng = random.Random(family.name)
    parts = [m[i:j] for m in markers for i, j in [sorted(rng.sample(range(len(m) + 1), 2)) for _ in range(4)]]
    lumps = [part for text in recorded(family) for part in re.findall(r"\s*[\w.]+|\s*\W+", text)]
    return [WORDS, SYNTAX, JSON, markers, parts, sorted(set(lumps))]


@cache
def recorded(family: Family) -> list[str]:
    return [answer.text for answer in CORPUS if answer.family is family]


def any_token(family: Family, rng: random.Random) -> str:
    [kind] = rng.choices(vocabulary(family), [3, 3, 1, 4, 2, 5])
    return rng.choice(kind)


def disturbed(family: Family, rng: random.Random) -> list[str]:
    """A recorded answer in a few tokens, some of which are gone, doubled, out of place or others."""
    text = rng.choice(recorded(family))
    ends = [0, *sorted(rng.choices(range(len(text) + 1), k=rng.randint(2, 7))), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(ends)]
    for _ in range(rng.randint(0, 2)):
        at = rng.randrange(len(pieces))
        change = rng.randrange(4)
        if change == 0:
            pieces[at] = any_token(family, rng)
        elif change == 1:
            pieces.insert(at, any_token(family, rng))
        elif change == 2:
            pieces.insert(at, rng.choice(pieces))
        else:
            del pieces[at + 1 :]
    return pieces


@dataclass(frozen=True)
class Stream:
    answer: Recorded
    pieces: list[str]
    stop: tuple[str, ...]


def stream(family: Family, rng: random.Random) -> Stream:
    if rng.random() < 0.5:
        pieces = disturbed(family, rng)
    else:
        pieces = [any_token(family, rng) for _ in range(rng.randint(1, 10))]
    thinks = family.markup.think is not None and rng.random() < 0.3
    answer = Recorded(
        "",
        family,
        "".join(pieces),
        state="reasoning" if thinks else None,
        tools=TOOLS if rng.random() < 0.8 else OfferedTools(),
        finish=rng.choice(("stop", "length")),
    )
    stop = (rng.choice(SYNTAX + WORDS) + rng.choice(["", *SYNTAX]),) if rng.random() < 0.2 else ()
    return Stream(answer, pieces, stop)


def blocks(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """(all text, what is between the markers) of each block of calls."""
    out: list[tuple[str, str]] = []
    for piece in pieces:
        if piece.kind == "open":
            out.append((piece.text, ""))
        elif piece.kind == "call":
            out[-1] = (out[-1][0] + piece.text, out[-1][1] + piece.text)
        elif piece.kind == "close":
            out[-1] = (out[-1][0] + piece.text, out[-1][1])
    return out


def text_of(pieces: Sequence[Piece], kind: str) -> str:
    return "".join(piece.text for piece in pieces if piece.kind == kind)


def check_channels(family: Family, pieces: Sequence[Piece], text: str) -> None:
    """The pieces are the text, in order; content holds no marker, and what is dropped is nothing but markup."""
    assert "".join(piece.text for piece in pieces if piece.end > piece.start) == text
    assert [piece.start for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]
    runs = [""]
    for piece in pieces:
        if piece.kind == "content":
            runs[-1] += piece.text
        elif piece.text:
            runs.append("")
    for marker in family.markers:
        assert not any(marker in run for run in runs), marker
    markup = [piece.text for piece in pieces if piece.kind == "markup" and not piece.text.isspace()]
    if not (family.markup.harmony or family.markup.transitions):  # those have headers
        assert set(markup) <= set(family.markers)


def check_calls(family: Family, pieces: Sequence[Piece], answer: Answer, tools: OfferedTools) -> None:
    """Every marked block is a call, as upstream reads it or by name, or it is invalid, with all of its text."""
    invalid = [call.text for call in answer.invalid]
    for piece in pieces:
        if piece.kind == "stray":
            invalid.remove(piece.text)
    expected: list[Call] = []
    broken = 0
    for whole, body in blocks(pieces):
        if whole in invalid:
            invalid.remove(whole)
            continue
        invalid = [text for text in invalid if not body.rstrip().endswith(text)]  # what is left of a block
        try:
            read_by_upstream = upstream(family, body, tools)
        except Exception:  # it raises what it likes
            broken += 1
            continue
        offered = {tool["function"]["name"] for tool in tools.functions}
        names = [name for name, _ in read_by_upstream]
        if None in names or (family.markup.tools.lenient and not offered.issuperset(names)):
            broken += 1  # it takes any text for a name
        else:
            expected += read_by_upstream
    assert not invalid
    assert len(answer.calls) >= broken
    if broken or answer.broken_calls or len(answer.calls) > len(expected):
        return  # what was told of a block before it went wrong is not what upstream makes of it
    left = iter(answer.calls)
    offered = {tool["function"]["name"] for tool in tools.functions}
    for call in (call for call in expected if call[0] in offered):  # upstream may read other names that are none
        assert any(same((name, json.loads(arguments)), call) for name, arguments in left), call


def check(stream: Stream) -> None:
    answer = stream.answer
    pieces = split(answer, stream.pieces)
    check_channels(answer.family, pieces, answer.text)
    out = read(answer, stream.pieces, stop=stream.stop)
    content = text_of(pieces, "content")
    if not content.strip() and not out.calls:  # the answer would be empty
        content += "".join(call.text for call in out.invalid)
    if stream.stop and stream.stop[0] in content:
        assert out.content == content[: content.index(stream.stop[0])]
        return
    assert out.content == content
    assert out.reasoning == text_of(pieces, "reasoning")
    check_calls(answer.family, pieces, out, answer.tools)
    assert out == read(answer, [answer.text], stop=stream.stop), "cut otherwise, it reads otherwise"


@pytest.mark.parametrize("streams", only(["a few"], PER_FAMILY))
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_random_streams_are_read_without_loss(family: Family, streams: str) -> None:
    rng = random.Random(f"1 {family.name}")
    for number in range(PER_FAMILY[streams]):
        made = stream(family, rng)
        try:
            check(made)
        except Exception as error:
            raise AssertionError(f"stream {number}: {made.pieces}, {made.answer.finish}, {made.stop}") from error

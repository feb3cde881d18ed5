"""Random streams of tokens, and what holds of whatever is read of one: nothing is lost, and no markup is content."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from localai_shim.formats.description import closers_of
from localai_shim.formats.source import is_marker
from localai_shim.output.channels import Piece, markers_of
from tests.output.reading import Answer
from tests.output.recorded import CASES
from tests.output.recorded.case import OFFERED, Case
from tests.output.recorded.read import markup_of, read, split

WORDS = ["Hello", " world", ".", ",", " the", "é", "🙂", "x", "0", "12", "true", "plan_trip", "ring", "city"]
SYNTAX = [" ", "\n", "\n\n", '"', "'", "\\", "{", "}", "[", "]", "(", ")", "<", ">", "|", "/", "=", ":", '":', '{"']
JSON = ['{"name": "ring", "arguments": {}}', '{"city": "Paris"}', '"arguments": {', '{"name": "', "{}", '[{"name":']


@cache
def markers(family: str) -> list[str]:
    return sorted(markers_of(markup_of(family)))


@cache
def vocabulary(family: str) -> list[list[str]]:
    """Kinds of tokens: words, syntax, JSON, the family's markers, pieces of them, and pieces of recorded answers."""
    rng, own = random.Random(family), markers(family)
    parts = [m[i:j] for m in own for i, j in [sorted(rng.sample(range(len(m) + 1), 2)) for _ in range(4)]]
    lumps = [part for text in recorded(family) for part in re.findall(r"\s*[\w.]+|\s*\W+", text)]
    return [WORDS, SYNTAX, JSON, own or WORDS, parts or WORDS, sorted(set(lumps))]


@cache
def recorded(family: str) -> list[str]:
    return [case.text for case in CASES if case.family == family]


def any_token(family: str, rng: random.Random) -> str:
    [kind] = rng.choices(vocabulary(family), [3, 3, 1, 4, 2, 5])
    return rng.choice(kind)


def disturbed(family: str, rng: random.Random) -> list[str]:
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
    case: Case
    pieces: list[str]
    stop: tuple[str, ...]


def stream(family: str, rng: random.Random) -> Stream:
    if rng.random() < 0.5:
        pieces = disturbed(family, rng)
    else:
        pieces = [any_token(family, rng) for _ in range(rng.randint(1, 10))]
    case = Case(
        family,
        "",
        "".join(pieces),
        opened=markup_of(family).thought is not None and rng.random() < 0.3,
        tools=OFFERED if rng.random() < 0.8 else (),
        finish=rng.choice(("stop", "length")),
    )
    stop = (rng.choice(SYNTAX + WORDS) + rng.choice(["", *SYNTAX]),) if rng.random() < 0.2 else ()
    return Stream(case, pieces, stop)


def text_of(pieces: Sequence[Piece], kind: str) -> str:
    return "".join(piece.text for piece in pieces if piece.kind == kind)


def squeezed(marker: str) -> str:
    """A marker without blanks between special tokens and words, where models write some."""
    return re.sub(r"(?<=\|>)\s+(?=\w|$)|(?<=\w)\s+(?=<\||$)", "", marker)


def check_channels(family: str, pieces: Sequence[Piece], text: str) -> None:
    """The pieces are the text, in order; content holds no marker, and what is dropped is nothing but markup."""
    assert "".join(piece.text for piece in pieces) == text
    at = 0
    for piece in pieces:
        assert (piece.start, piece.end) == (at, at + len(piece.text))
        at = piece.end
    markup = markup_of(family)
    if markup.channels is not None:  # headers are dropped, too
        return
    dropped = [piece.text for piece in pieces if piece.kind in ("markup", "stray") and not piece.text.isspace()]
    own = [squeezed(marker) for marker in markers(family)]
    assert all(any(marker.startswith(squeezed(part.strip())) for marker in own) for part in dropped), dropped
    runs = [""]
    for piece in pieces:
        if piece.kind == "content":
            runs[-1] += piece.text
        elif piece.text:
            runs.append("")
    thought = () if markup.thought is None else (markup.thought.start, markup.thought.end)
    tools = () if markup.tools is None else (*markup.tools.ends, *closers_of(markup.tools))
    closing = [end for end in tools if is_marker(end)]
    for marker in (*thought, *markup.structural, *closing):
        assert not any(marker in run for run in runs), marker


def check_calls(pieces: Sequence[Piece], answer: Answer, tools: Sequence[object]) -> None:
    """Every block is calls, or all of it is reported; so is every marker that means nothing."""
    invalid = [call.text for call in answer.invalid]
    for piece in pieces:
        if piece.kind == "stray":
            invalid.remove(piece.text)
    named = [event.text for piece in pieces for event in piece.events if event.kind == "name"]
    if tools:
        left = iter(name for name, _ in answer.calls)
        assert all(name in left for name in named), "calls in their order; more of them have names only"
    else:
        assert not answer.calls
    whole = ""
    named_here = 0
    before = len(answer.calls) - len(named)
    for piece in pieces:
        if piece.kind == "open":
            whole, named_here = piece.text, 0
        elif piece.kind == "call":
            whole += piece.text
            named_here += sum(event.kind == "name" for event in piece.events)
        elif piece.kind == "close" and not (named_here and tools):
            if whole + piece.text in invalid:
                invalid.remove(whole + piece.text)
            else:
                before -= 1  # a call of which a name could be read, and no more
                assert before >= 0, f"nothing is told of {whole + piece.text!r}"
    text = "".join(piece.text for piece in pieces)
    assert all(part in text for part in invalid)
    assert all(word in text for name, _ in answer.calls for word in re.findall(r"[^\W\d_]{2,}", name))


def check(stream: Stream) -> None:
    case = stream.case
    pieces = split(case, stream.pieces)
    check_channels(case.family, pieces, case.text)
    out = read(case, stream.pieces, stop=stream.stop)
    content = text_of(pieces, "content")
    if not content.strip() and not out.calls:  # the answer would be empty
        content += "".join(call.text for call in out.invalid)
    if stream.stop and stream.stop[0] in content:
        assert out.content == content[: content.index(stream.stop[0])]
        return
    assert out.content == content
    assert out.reasoning == text_of(pieces, "reasoning")
    check_calls(pieces, out, case.tools)
    assert out == read(case, [case.text], stop=stream.stop), "cut otherwise, it reads otherwise"

"""Splitting an answer's text into content, reasoning and tool calls, whichever way the text is cut into tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from .markup import HEADER, NORMAL, REASONING, TOOL, Edges, Markup

Kind = Literal["content", "reasoning", "call", "open", "close", "stray", "markup"]


class Piece(NamedTuple):
    """A stretch of an answer.

    `open` and `close` are around the `call` pieces of one block of calls; their text is the marker, and that of a close
    is empty where none came. `stray` is a marker that begins a call where none follows.
    """

    kind: Kind
    text: str
    start: int
    """Where in the answer's text it begins."""
    end: int


_RECIPIENT = re.compile(r"to=([^\s<|]+)")
_DECIDE = "decide"  # a harmony header is complete: what it says is the next state
_CALL_AMID = "call amid reasoning"  # what ends the reasoning ends the call, too


@lru_cache(maxsize=64)
def _edges_of(markup: Markup, offered: bool) -> dict[str, Edges]:
    """State -> (marker, next state)."""
    if markup.harmony:
        return _HARMONY
    edges: dict[str, list[tuple[str, str]]] = {NORMAL: [], REASONING: [], TOOL: []}
    for state, more in markup.transitions:
        edges.setdefault(state, []).extend(more)
    if markup.think is not None:
        start, end = markup.think
        edges[NORMAL] += [(start, REASONING), (end, NORMAL)]
        edges[REASONING] += [(end, NORMAL), (start, REASONING)]
    tools = markup.tools
    if tools is not None:
        edges[NORMAL].append((tools.start, TOOL))
        if offered:
            edges[REASONING].append((tools.start, TOOL))
        edges[TOOL].append((tools.start, TOOL))
        if tools.end:
            edges[TOOL].append((tools.end, NORMAL))
            edges[NORMAL].append((tools.end, NORMAL))
    edges[NORMAL] += [(marker, NORMAL) for marker in markup.structural]
    edges[_CALL_AMID] = edges[TOOL] + [edge for edge in edges[REASONING] if edge[1] not in (TOOL, REASONING)]
    return {state: tuple(e) for state, e in edges.items()}


def markers_of(markup: Markup) -> frozenset[str]:
    """All that the splitter looks for."""
    return frozenset(marker for edges in _edges_of(markup, True).values() for marker, _ in edges)


_HARMONY: dict[str, Edges] = {
    NORMAL: (
        ("<|channel|>", HEADER),
        ("<|start|>", HEADER),
        ("<|message|>", NORMAL),
        ("<|end|>", NORMAL),
        ("<|return|>", NORMAL),
        ("<|call|>", NORMAL),
        ("<|constrain|>", NORMAL),
    ),
    HEADER: (("<|message|>", _DECIDE), ("<|end|>", NORMAL), ("<|return|>", NORMAL), ("<|call|>", NORMAL)),
    REASONING: (
        ("<|end|>", NORMAL),
        ("<|return|>", NORMAL),
        ("<|call|>", NORMAL),
        ("<|channel|>", HEADER),
        ("<|start|>", HEADER),
        ("<|message|>", REASONING),
    ),
    TOOL: (
        ("<|call|>", NORMAL),
        ("<|end|>", NORMAL),
        ("<|return|>", NORMAL),
        ("<|start|>", HEADER),
        ("<|channel|>", HEADER),
    ),
}


@lru_cache(maxsize=256)
def _pattern(markers: tuple[str, ...]) -> tuple[re.Pattern[str], frozenset[str], int]:
    """(a pattern of all markers, their proper prefixes, the length of the longest)"""
    longest_first = sorted(set(markers), key=len, reverse=True)
    beginnings = frozenset(m[:n] for m in markers for n in range(1, len(m)))
    return re.compile("|".join(re.escape(m) for m in longest_first)), beginnings, len(longest_first[0])


class ChannelSplitter:
    """One answer's text, as pieces that together are all of it.

    Args:
        markup: the model's markers.
        state: the state that the answer begins in, see `Markup.state_after`.
        offered: tools were offered; a call may then also begin inside the reasoning, as some models do.

    Whitespace next to a block is markup: around reasoning, before calls and between them.

    Attributes:
        state: the state that the text ends in.
        in_reasoning: it ends amid reasoning, also in a call there, until a marker comes that closes the reasoning.
    """

    def __init__(self, markup: Markup, *, state: str | None = None, offered: bool = True) -> None:
        self._markup = markup
        self._offered = offered
        self._edges = _edges_of(markup, offered)
        self._begins = {state: frozenset(marker[0] for marker, _ in self._edges.get(state, ())) for state in _PROSE}
        self._held = ""  # may be the beginning of a marker
        self._at = 0  # where in the answer the next piece begins
        self._header = ""
        self._quotes = markup.tools is not None and markup.tools.style in ("json", "header")
        self._strings = _JsonStrings()
        self._outer = NORMAL  # the state that a call returns to
        self._space: list[Piece] = []  # whitespace that is content or not, as what follows it is
        self._called = False
        self.state = state or markup.initial
        self.in_reasoning = self.state == REASONING
        self._fresh = self.state != NORMAL  # whitespace would be the first after a marker, which is markup, too

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are certain now."""
        kind = self.prose(text)
        if kind is not None:
            return [Piece(kind, text, self._at - len(text), self._at)]
        return list(self._trimmed(self._split(text)))

    def prose(self, text: str, only: Kind | None = None) -> Kind | None:
        """Take a text that is one piece at first sight, as nearly all are: of what kind. None: it is to be fed.

        No marker can begin in it, it does not end in whitespace, and nothing was held back before it.

        Args:
            only: take no text of another kind.
        """
        begins = self._begins.get(self.state)
        if begins is None or not text or self._held or self._fresh or self._space:
            return None
        kind = _KINDS[self.state]
        if (only is not None and kind != only) or not begins.isdisjoint(text) or text[-1].isspace():
            return None
        self._at += len(text)
        return kind

    def finish(self, *, cut: bool = False) -> list[Piece]:
        """What was held back, when no more text comes. `cut`: the answer was ended before the model ended it."""
        out = list(self._trimmed(self._end(cut)))
        kind: Kind = "markup" if self._fresh or self._called or self.state != NORMAL else "content"
        out += [Piece(kind, *space[1:]) for space in self._space]
        self._space = []
        return out

    # -----------------------------------------------------------------------------------------------------------

    def _split(self, text: str) -> Iterator[Piece]:
        text, self._held = self._held + text, ""
        at = 0
        while edges := self._edges.get(_CALL_AMID if self.state == TOOL and self._outer == REASONING else self.state):
            pattern, beginnings, longest = _pattern(tuple(marker for marker, _ in edges))
            match = pattern.search(text, at)
            if match is None:
                tail = range(max(at, len(text) - longest + 1), len(text))
                cut = next((n for n in tail if text[n:] in beginnings), len(text))
                yield from self._emit(text[at:cut])
                self._held = text[cut:]
                return
            marker, target = match.group(), dict(edges)[match.group()]
            yield from self._emit(text[at : match.start()])
            at = match.end()
            if self.state == TOOL and self._strings.inside:
                self.in_reasoning &= target != NORMAL or marker not in dict(self._edges[REASONING])
                yield from self._emit(marker)
                continue
            opens = target != TOOL or self._opens(text[at:])
            if opens is None:
                self._held = text[match.start() :]
                return
            if opens:
                yield from self._cross(marker, target)
            elif self.state == TOOL:
                yield from self._emit(marker)
            else:
                yield self._piece("stray", marker)
        yield from self._emit(text[at:])

    def _opens(self, text: str) -> bool | None:
        """Whether a call begins so; None: not known yet."""
        tools = self._markup.tools
        openings = () if tools is None else tools.openings
        text = text.lstrip()
        if not openings or text.startswith(openings):
            return True
        return None if any(opening.startswith(text) for opening in openings) else False

    def _end(self, cut: bool) -> Iterator[Piece]:
        held, self._held = self._held, ""
        tools = self._markup.tools
        if held and tools is not None and self.state != TOOL and held.startswith(tools.start):
            yield from self._cross(tools.start, TOOL)
            held = held[len(tools.start) :]
        if held and cut and self.state == NORMAL and len(held) > 1:
            yield self._piece("stray", held)
        else:
            yield from self._emit(held)
        if self.state == TOOL:
            yield self._piece("close", "")
            self.state = self._outer

    def _emit(self, text: str) -> Iterator[Piece]:
        """Text in the current state."""
        if not text:
            return
        if self.state == HEADER:
            self._header += text
        elif self.state == TOOL and self._quotes:
            self._strings.feed(text)
        yield self._piece(_KINDS.get(self.state, "markup"), text)

    def _cross(self, marker: str, target: str) -> Iterator[Piece]:
        """A marker came: leave the state and enter the next."""
        recipient = None
        if target == _DECIDE:
            target, recipient = _read_header(self._header)
        left, self._header = self.state, ""
        ends_thought = self._markup.think is not None and marker == self._markup.think[1]
        if left == TOOL and target == NORMAL and not ends_thought:
            yield self._piece("close", marker)
            self.state = self._outer
            self.in_reasoning = self.state == REASONING
            return
        if left == TOOL:
            yield self._piece("close", "")
        yield self._piece("open" if target == TOOL else "markup", marker)
        self.state = target
        self.in_reasoning = target == REASONING or (target == TOOL and self.in_reasoning)
        if target == TOOL:
            if left != TOOL:
                self._outer = REASONING if left == REASONING else NORMAL
            self._strings = _JsonStrings()
            if recipient is not None:
                yield Piece("call", f"{recipient}<|message|>", self._at, self._at)

    def _piece(self, kind: Kind, text: str) -> Piece:
        start = self._at
        self._at = start + len(text)
        return Piece(kind, text, start, self._at)

    def _trimmed(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """Make whitespace next to blocks part of the markup; hold it back until it is known to be."""
        for piece in pieces:
            kind, text, start, end = piece
            if kind not in ("content", "reasoning"):
                yield from self._release("markup")
                self._called = self._called or kind == "open"
                self._fresh = self._fresh or kind != "stray"
                yield piece
                continue
            holds = kind == "reasoning" or self._offered  # whitespace, which a block may follow
            if not holds and not self._fresh:
                yield piece
                continue
            body = text.rstrip()
            if not body:
                self._space.append(piece)
                continue
            tail = start + len(body) if holds else end
            yield from self._release("markup" if self._fresh else kind)
            lead = end - len(text.lstrip()) if self._fresh else start
            self._fresh = False
            if lead > start:
                yield Piece("markup", text[: lead - start], start, lead)
            yield Piece(kind, text[lead - start : tail - start], lead, tail)
            if tail < end:
                self._space.append(Piece(kind, text[tail - start :], tail, end))

    def _release(self, kind: Kind) -> Iterator[Piece]:
        space, self._space = self._space, []
        yield from (Piece(kind, *piece[1:]) for piece in space)


_KINDS: dict[str, Kind] = {NORMAL: "content", REASONING: "reasoning", TOOL: "call"}
_PROSE = (NORMAL, REASONING)


def _read_header(header: str) -> tuple[str, str | None]:
    """What a harmony header announces, and to whom a call goes."""
    recipient = _RECIPIENT.search(header)
    if recipient is not None:
        return TOOL, recipient.group(1)
    return (REASONING if "analysis" in header else NORMAL), None


_STRING_EVENTS = re.compile(r"""["\n]|\\.?""", re.DOTALL)


class _JsonStrings:
    """Whether the end of what was fed is inside a JSON string, where a marker is text.

    A raw newline is not allowed in one: a string that was never closed ends there.
    """

    __slots__ = ("_escaped", "inside")

    def __init__(self) -> None:
        self.inside = False
        self._escaped = False

    def feed(self, text: str) -> None:
        if self._escaped and text:
            text, self._escaped = text[1:], False
        for event in _STRING_EVENTS.findall(text):
            if event == '"':
                self.inside = not self.inside
            elif event == "\n":
                self.inside = False
            elif event == "\\":
                self._escaped = True

"""Splitting an answer's text into content, reasoning and tool calls, whichever way the text is cut into tokens."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from ..formats.description import CallFormat, Channels, closers_of
from ..formats.markup import HEADER, NORMAL, PROSE, REASONING, TOOL, Markup
from ..formats.reading import BlockReader
from ..formats.source import Event, Markers, around, is_marker
from ..formats.values import OfferedTools

Kind = Literal["content", "reasoning", "call", "open", "close", "stray", "markup"]
Edges = tuple[Markers, dict[str, str]]
"""The markers of a state, and the next state for each."""


class Piece(NamedTuple):
    """A stretch of an answer.

    `open` and `close` are around the `call` pieces of one block of calls; their text is the marker, and that of a close
    is empty where none came. `stray` is a marker that begins a call where none follows.
    """

    kind: Kind
    text: str
    start: int
    """Offset in the answer's text."""
    end: int
    events: Sequence[Event] = ()
    """Of a call: what was read of it."""


_DECIDE = "decide"  # a header is complete: what it says is the next state
_HEAD = "head"  # a call begins whose block has no marker: the text belongs to the call
_BODY = "body"  # of a message that holds a block of calls
_GATHERED = (HEADER, _BODY)  # states whose text is kept until they are left
_KINDS: dict[str, Kind] = {NORMAL: "content", REASONING: "reasoning", TOOL: "call"}
_NONE_OFFERED = OfferedTools()
MAX_STEP = 4_096
Reading = Generator[Piece, None, str]
"""Yields pieces and returns the text that is left."""


@lru_cache(maxsize=64)
def _edges_of(markup: Markup, offered: bool) -> dict[str, Edges]:
    """State -> its markers, and the next state for each."""
    edges: dict[str, list[tuple[str, str]]] = {NORMAL: [], REASONING: []}
    if (thought := markup.thought) is not None:
        opens = [(text, REASONING) for text in (thought.start, *thought.openers)]
        edges[NORMAL] += [*opens, (thought.end, NORMAL)]
        edges[REASONING] += [(thought.end, NORMAL), *opens, *((text, NORMAL) for text in thought.closed)]
    if markup.channels is not None:
        _add_channels(edges, markup.channels)
    tools = markup.tools
    if tools is not None:
        calls = [*((text, TOOL) for text in tools.starts), *((text, _HEAD) for text in tools.heads if offered)]
        if offered or not tools.bare:
            edges[NORMAL if markup.channels is None or markup.channels.named else _BODY] += calls
        if offered and (tools.thought or markup.channels is None):
            edges[REASONING] += calls
        if markup.channels is None or markup.channels.named:
            edges[NORMAL] += [(text, NORMAL) for text in (*tools.ends, *closers_of(tools)) if is_marker(text)]
    edges[NORMAL] += [(marker, NORMAL) for marker in markup.structural]
    if markup.channels is None:
        own = dict(edges[NORMAL])
        tokens = (token for marker in own for token in _SPECIAL.findall(marker))
        edges[NORMAL] += [(token, NORMAL) for token in dict.fromkeys(tokens) if token not in own]
    edges[REASONING] += [(marker, NORMAL) for marker in markup.structural if "|" in marker]  # the answer begins
    return {state: (Markers([marker for marker, _ in each]), dict(each)) for state, each in edges.items()}


_SPECIAL = re.compile(r"<\|[^<>|\s]+\|>")
"""Tokens of which a marker may have several, and of which each alone says nothing."""


def _add_channels(edges: dict[str, list[tuple[str, str]]], channels: Channels) -> None:
    opens = [(text, HEADER) for text in channels.opens]
    after = HEADER if channels.initial and not channels.opens else NORMAL
    ends = [(text, after) for text in channels.ends]
    begins = [(text, HEADER) for text in channels.begins]
    stray = [(text, NORMAL) for text in (channels.closes, "<|constrain|>") if is_marker(text)]
    edges[NORMAL] += [*opens, *ends, *begins, *stray]
    edges[HEADER] = [(channels.closes, _DECIDE), *(ends or opens)]
    edges[REASONING] += [*ends, *opens, *((text, REASONING) for text, _ in stray)]
    edges[_BODY] = [*ends, *opens]


def markers_of(markup: Markup) -> frozenset[str]:
    """All that the splitter looks for."""
    return frozenset(marker for _, edges in _edges_of(markup, True).values() for marker in edges)


class ChannelSplitter:
    """One answer's text, as pieces that together are all of it.

    Args:
        markup: the model's markers.
        state: the state that the answer begins in, see `Markup.state_after`.
        tools: what may be called; a call may then also begin inside the reasoning, as some models do, and ends it.

    Whitespace next to a block is markup: around reasoning, before calls and between them.

    Attributes:
        state: the state that the text ends in.
        in_reasoning: it ends inside reasoning, also in a call there, until that or the reasoning is closed.
    """

    def __init__(self, markup: Markup, *, state: str | None = None, tools: OfferedTools = _NONE_OFFERED) -> None:
        self._markup, self._tools = markup, tools
        self._offered = bool(tools.functions)
        self._edges = _edges_of(markup, self._offered)
        self._begins = {state: frozenset(marker[0] for marker in self._edges[state][1]) for state in PROSE}
        self._held = ""  # may be the beginning of a marker
        self._at = 0  # where in the answer the next piece begins
        self._opening = self._header = ""
        self._block: _Block | None = None
        self._final = False
        self._space: list[Piece] = []  # may be next to a block
        self._called = False
        self.state = state or NORMAL
        self.in_reasoning = self.state == REASONING
        self._fresh = self.state != NORMAL  # whitespace would be the first after a marker, which is markup, too
        # An answer of such a model may be a call from its first character on.
        self._is_bare = self._offered and markup.tools is not None and markup.tools.bare and markup.channels is None
        self._bare = self._is_bare

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
        if begins is None or not text or self._held or self._fresh or self._space or self._bare:
            return None
        kind = _KINDS[self.state]
        if (only is not None and kind != only) or not begins.isdisjoint(text) or text[-1].isspace():
            return None
        self._at += len(text)
        return kind

    def finish(self, *, cut: bool = False) -> list[Piece]:
        """Release the text that was held back, when no more comes. `cut`: the answer was ended before the model ended
        it.
        """
        out = list(self._trimmed(self._end(cut)))
        is_markup = self._fresh or self._called or self.state != NORMAL or (cut and self._markup.structural)
        return [*out, *self._release("markup" if is_markup else "content")]

    # -----------------------------------------------------------------------------------------------------------

    def _split(self, text: str) -> Iterator[Piece]:
        """Take a text, a long one as if it came in pieces: each step looks at all that it is given."""
        waiting, text, final = [text], "", self._final
        while text or waiting:
            if not text or len(text) > MAX_STEP:
                waiting += [text] if text else []
                text = waiting.pop()
                if rest := text[MAX_STEP:]:
                    waiting.append(rest)
                text, self._held = self._held + text[:MAX_STEP], ""
                self._final = final and not waiting
                continue
            if self._block is not None:
                text = yield from self._show(self._block, self._block.feed(text))
                continue
            if self._bare and self.state == NORMAL and text.strip():
                self._bare = False
                before = len(text) - len(text.lstrip())
                yield from self._emit(text[:before])
                text = text[before:]
                self._open("")
                continue
            markers, targets = self._edges[self.state]
            match = markers.pattern.search(text)
            if match is None:
                cut = len(text) if self._final else markers.held(text, 0)
                yield from self._emit(text[:cut])
                text, self._held = "", text[cut:]
                continue
            if not self._final and markers.may_go_on(text, match.start()):  # a longer one may come
                yield from self._emit(text[: match.start()])
                text, self._held = "", text[match.start() :]
                continue
            marker, target = match.group(), targets[markers.named(match.group())]
            yield from self._emit(text[: match.start()])
            text = text[match.end() :]
            if target in (TOOL, _HEAD):
                if self.state == _BODY:
                    yield from self._leave_unread(cut=False)
                self._open(marker, is_head=target == _HEAD)
            else:
                yield from self._cross(marker, target)

    def _open(self, marker: str, *, is_head: bool = False, header: str = "") -> None:
        """A block of calls may begin here.

        Args:
            marker: what opens it; empty where nothing does.
            is_head: the marker belongs to the first call.
            header: the beginning of a call, as a message's header gives it.
        """
        tools, channels = self._markup.tools, self._markup.channels
        assert tools is not None
        stops = [] if self._markup.thought is None else [self._markup.thought.end]
        stops += [] if channels is None else [*channels.ends, *channels.opens]
        is_word = marker.startswith("```") or marker.endswith(":")
        is_marked = bool(marker) and not (is_word or tools.bare or (is_head and tools.start))
        is_sure = bool(header) or (is_marked and self.state != REASONING)
        reader = BlockReader(tools, self._tools, stops=stops, marked=is_sure, is_call=self.state == _BODY)
        self._block = _Block(reader, marker, self.state)
        self.state = TOOL
        if header or is_head:
            self._block.events += self._block.feed(header or marker)
            self._block.unread = self._block.head = "" if header else marker
            self._block.marker = ""

    def _show(self, block: _Block, events: Sequence[Event]) -> Reading:
        """Show what was read of a block; returns what follows it."""
        reader = block.reader
        if reader.rejected:
            return (yield from self._reject(block))
        block.events += events
        if block.outer == REASONING and not self._counts(block):
            ended = reader.done and (self._final or block.unread[len(block.unread) - reader.left :].strip())
            return (yield from self._reject(block)) if ended else ""
        if not (reader.begun or reader.done):
            return ""
        if not block.announced:
            block.announced = True
            yield self._piece("open", block.marker)
        taken = block.take(len(block.unread) - reader.left)
        body = taken.removesuffix(reader.ending) if reader.done else taken
        if body or block.events:
            events, block.events = block.events, []
            yield self._piece("call", body, events)
        if not reader.done:
            return ""
        yield self._piece("close", reader.ending if taken.endswith(reader.ending) else "")
        self._block = None
        self.state = NORMAL if block.outer == REASONING else block.outer
        self.in_reasoning = False
        return block.unread

    def _counts(self, block: _Block) -> bool:
        """True if a call inside the reasoning counts: some models only mention calls there, except at the end."""
        tools = self._markup.tools
        return (tools is not None and tools.thought) or (self._final and block.reader.done and block.reader.complete)

    def _reject(self, block: _Block) -> Reading:
        """Read a block that turned out to be no call: as a marker that means nothing, or as text."""
        self._block = None
        self.state = block.outer
        marker, rest = block.marker, block.unread
        marker = marker or block.head  # which looked like the beginning of a call
        rest = rest.removeprefix(block.head)
        is_stray = is_marker(marker) if block.marker else "|" in marker or "｜" in marker
        if marker and is_stray and self.state != REASONING:
            yield self._piece("stray", marker)
        else:
            yield from self._emit(marker)
        return rest

    def _end(self, cut: bool) -> Iterator[Piece]:
        self._final = True
        while (block := self._block) is not None or (held := self._held):
            if block is not None:
                rest = yield from self._show(block, block.reader.finish(cut=cut))
                yield from self._split(rest)
            elif cut and self.state == NORMAL and len(held) > 1 and held not in self._edges[NORMAL][1]:
                self._held = ""
                yield self._piece("markup" if self._wraps(held) else "stray", held)
            else:
                yield from self._split("")
        if self.state in _GATHERED:
            yield from self._leave_unread(cut=cut)

    def _wraps(self, held: str) -> bool:
        """The beginning of a marker around the answer, of which whole tokens have come."""
        return "|>" in held and any(marker.startswith(held) for marker in self._markup.structural)

    def _emit(self, text: str) -> Iterator[Piece]:
        """Text in the current state."""
        if not text:
            return
        if self.state in _GATHERED:
            self._header += text
            return
        yield self._piece(_KINDS.get(self.state, "markup"), text)

    def _cross(self, marker: str, target: str) -> Iterator[Piece]:
        """A marker came: leave the state and enter the next."""
        if target == _DECIDE:
            yield from self._leave_header(marker)
            return
        if self.state in _GATHERED:
            yield from self._leave_unread(cut=False)
        if target == HEADER and (channels := self._markup.channels) is not None:
            begins = marker in channels.begins
            self._opening, self._header = ("", marker) if begins else (marker, "")
        else:
            yield self._piece("markup", marker)
        self._bare = self._bare or (self.state == REASONING and self._is_bare)
        self._enter(target)

    def _leave_header(self, marker: str) -> Iterator[Piece]:
        """A header has its end: it is markup, or content if it only looked like one."""
        channels = self._markup.channels
        assert channels is not None
        opening, header, self._opening, self._header = self._opening, self._header, "", ""
        is_header = re.fullmatch(channels.headers, header) is not None
        yield self._piece("markup" if is_header else "content", opening + header + marker)
        self._decide(header if is_header else "")

    def _leave_unread(self, *, cut: bool) -> Iterator[Piece]:
        """Leave a header that has no end, or what is in the message of a call and is none: nothing of it is lost."""
        channels = self._markup.channels
        assert channels is not None
        opening, text, self._opening, self._header = self._opening, self._header, "", ""
        found = re.match(channels.words, text) if self.state == HEADER else None
        known = "" if found is None else found.group()
        rest = text[len(known) :].strip()
        is_beginning = channels.closes.startswith(rest) or (cut and not re.search(r"\s", rest))  # of a marker or a word
        if not rest or is_beginning:
            yield from [self._piece("markup", opening + text)] if opening or text else []
        elif self.state == _BODY or (known and re.search(channels.calls, text)):
            yield self._piece("stray", opening + text)
        else:
            yield from [self._piece("markup", opening + known)] if opening or known else []
            yield self._piece("content", text[len(known) :])

    def _decide(self, header: str) -> None:
        """A header is complete: it says what its message holds."""
        channels, tools = self._markup.channels, self._markup.tools
        assert channels is not None
        recipient = re.search(channels.calls, header)
        if recipient is None:
            self._enter(REASONING if re.search(channels.thinks, header) else NORMAL)
        elif not channels.named:
            self._enter(_BODY)
        elif tools is not None:
            self._enter(NORMAL)
            self._open("", header=_beginning(tools, recipient[1]))

    def _enter(self, state: str) -> None:
        self.state = state
        self.in_reasoning = state == REASONING

    def _piece(self, kind: Kind, text: str, events: Sequence[Event] = ()) -> Piece:
        start = self._at
        self._at = start + len(text)
        return Piece(kind, text, start, self._at, events)

    def _trimmed(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """Make whitespace next to blocks part of the markup; hold it back until it is known to be."""
        for piece in pieces:
            kind, text, start, end, _ = piece
            if kind not in ("content", "reasoning"):
                if self._space:
                    yield from self._release("markup")
                self._called = self._called or kind == "open"
                self._fresh = self._fresh or kind != "stray"
                yield piece
                continue
            # Whitespace, which a block or a marker may follow.
            holds = kind == "reasoning" or self._offered or bool(self._markup.structural)
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


def _beginning(tools: CallFormat, name: str) -> str:
    """The beginning of a call of which a message's header has the name."""
    text = next(iter(tools.also), tools.call)
    return around(text, "ARGUMENTS")[0].replace("NAME", name)


class _Block:
    """A block of calls, or what may be one.

    Attributes:
        marker: what opened it; empty where nothing did.
        head: the beginning of a call that opened it, if one did.
        outer: the state in which it began.
        unread: text that is in no piece yet.
        announced: it has begun for the reader of the pieces.
        events: what was read and is in no piece yet.
    """

    __slots__ = ("announced", "events", "head", "marker", "outer", "reader", "unread")

    def __init__(self, reader: BlockReader, marker: str, outer: str) -> None:
        self.reader, self.marker, self.outer = reader, marker, outer
        self.head = self.unread = ""
        self.announced = False
        self.events: list[Event] = []

    def feed(self, text: str) -> list[Event]:
        unread, self.unread = self.unread, ""  # see `Source.append`
        unread += text
        self.unread = unread
        return self.reader.feed(text)

    def take(self, count: int) -> str:
        """The first characters of what is unread, which are in a piece now."""
        if not count:  # as while a long value comes
            return ""
        taken, self.unread = self.unread[:count], self.unread[count:]
        return taken

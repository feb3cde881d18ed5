"""Tool calls of an answer: deltas while the model writes them.

A call that cannot be read is one nevertheless where its function's name can be read: its arguments are delivered
unchanged, as OpenAI does, so that the program that runs the tool can tell the model what was wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..formats.description import CallFormat, words_of
from ..formats.reading import broken_call
from ..formats.source import Event
from ..formats.values import OfferedTools, json_or_text

_UNREAD = "no call can be read in this text"


@dataclass(slots=True)
class CallDelta:
    """Addition of one token to a call.

    Arguments concatenate to a JSON object, or to what the model wrote in its place; a custom tool's are its input.
    """

    index: int
    arguments: str = ""
    name: str | None = None
    """Set in a call's first delta."""
    custom: bool = False


@dataclass(frozen=True, slots=True)
class InvalidCall:
    """Text that was marked as a call and cannot be read as one."""

    text: str
    """All of it, markers included."""
    error: str


class CallParser:
    """The calls of one answer.

    Args:
        format: how the model writes them; None: in no way that is known.
        tools: what it may call; without any, every call is invalid.

    Attributes:
        calls: how many there are so far.
    """

    def __init__(self, format: CallFormat | None, tools: OfferedTools) -> None:
        self._format, self._tools = format, tools
        self.calls = 0
        self._first = 0  # calls before the block
        self._text: list[str] = []  # of the block, as far as none of it was delivered
        self._between: list[str] = []  # texts in it that belong to no call, since the last call
        self._name: str | None = None  # of the call that is being written
        self._input: list[str] = []  # of a custom tool, as far as it was written

    def open(self, marker: str) -> None:
        """A block begins."""
        self._text, self._between, self._first = [marker], [], self.calls

    def feed(self, text: str, events: Sequence[Event], *, cut: bool = False) -> Iterator[CallDelta | InvalidCall]:
        """Take more of the block, and what was read of it: what is certain of its calls, and what belongs to none.

        Args:
            text: of the block.
            events: what was read.
            cut: no more comes, and the answer is at its limit.
        """
        if self.calls == self._first:
            self._text.append(text)
        for event in events if self._tools.functions else ():
            if event.kind == "text":
                self._between.append(event.text)
            elif event.kind == "name":
                yield from self._unread(cut=cut)
                self._name, self._input = event.text, []
                if event.text not in self._tools.custom:
                    yield CallDelta(self.calls, "", event.text)
                self.calls += 1
            else:
                yield from self._argument(event)

    def close(self, marker: str, *, cut: bool) -> Iterator[CallDelta | InvalidCall]:
        """The block ends.

        Args:
            marker: what ended it.
            cut: no end came, and the answer is at its limit.
        """
        if self.calls > self._first:
            yield from self._unread(cut=cut)
            return
        text = "".join(self._text)
        found = self._broken(text, cut=cut) if self._tools.functions else []
        yield from found
        if not found:
            why = _UNREAD if self._tools.functions else "no tools were offered"
            yield InvalidCall(text + marker, why)

    # -----------------------------------------------------------------------------------------------------------------

    def _unread(self, *, cut: bool) -> Iterator[CallDelta | InvalidCall]:
        """Calls in a block that have a name and no more, or the text between its calls."""
        text, self._between = "".join(self._between), []
        found = self._broken(text, cut=cut)
        yield from found
        if not found and self._says_something(text):
            yield InvalidCall(text, _UNREAD)

    def _says_something(self, text: str) -> bool:
        """A text is more than brackets, blanks and what the format has around calls."""
        for word in () if self._format is None else words_of(self._format):
            text = text.replace(word, " ")
        return any(c.isalnum() for c in text)

    def _argument(self, event: Event) -> list[CallDelta]:
        """More of the arguments, or their end. A custom tool's input is delivered when it is complete."""
        assert self._name is not None
        index = self.calls - 1
        if self._name not in self._tools.custom:
            return [CallDelta(index, event.text)] if event.text else []
        self._input.append(event.text)
        if event.kind == "arguments":
            return []
        text = "".join(self._input)
        value = json_or_text(text)
        if isinstance(value, dict) and list(value) == ["input"] and isinstance(value["input"], str):
            text = value["input"]
        return [CallDelta(index, text, self._name, custom=True)]

    def _broken(self, text: str, *, cut: bool) -> list[CallDelta]:
        """A call whose name can be read, and nothing else."""
        found = None if self._format is None else broken_call(self._format, text, self._tools.names, cut=cut)
        if found is None:
            return []
        name, arguments = found
        custom = name in self._tools.custom
        self.calls += 1
        return [CallDelta(self.calls - 1, arguments or ("" if cut or custom else "{}"), name, custom=custom)]

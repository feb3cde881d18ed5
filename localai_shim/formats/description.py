"""Descriptions of how families of models write calls; `table.py` has the families."""

from __future__ import annotations

from dataclasses import dataclass, field

from .syntaxes.arguments import Arguments
from .syntaxes.json_values import JSON


@dataclass(frozen=True, slots=True)
class CallFormat:
    """One way of writing tool calls: blocks of calls, in each of which a layout comes again and again.

    Attributes:
        name: what users and errors call it.
        call: the layout of a call, with NAME and ARGUMENTS, and INDEX (counted) or ID (made up) where there are any.
            One that begins with `{` is a JSON object, whose keys may come in any order.
        arguments: how ARGUMENTS are written.
        start, end: markers around a block. Without a start an answer may be calls from its first character on, and only
            functions that were offered are called; without an end a block ends with its last call.
        inside: what the model writes between these markers and the calls, such as brackets.
        between: what it writes between two calls, or between two blocks where each call has one.
        each: every call has a block of its own.
        openers: other markers that open a block; models that write no start may write these around it.
        closers: other markers that close one.
        heads: what begins a call before which the start was left away.
        thought: a block amid the reasoning is one, and ends that; otherwise it is only mentioned there, unless the
            answer ends with it.
        also: layouts of calls that the model writes at times, and a newer or an older form has; read, never written.
        names: a pattern of the names that it can write.
        first_index: the first INDEX.
        signs: texts in a chat template by which the family is known: all texts of any of these groups;
            None: its start.
        unlike: texts that are in no template of this family.
        parsers: names of mlx-lm and mlx-vlm for the format, where they differ from its name here.
        channels: messages with headers, of which an answer is made.
        structural: markers that say nothing, of a family that writes no reasoning.
    """

    name: str
    call: str
    arguments: Arguments = JSON
    start: str = ""
    end: str = ""
    inside: tuple[str, str] = ("", "")
    between: str = ""
    each: bool = False
    openers: tuple[str, ...] = ()
    closers: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    thought: bool = True
    also: tuple[str, ...] = ()
    names: str = r"[\w.-]+"
    first_index: int = 0
    signs: tuple[tuple[str, ...], ...] | None = field(default=None, compare=False)
    unlike: tuple[str, ...] = field(default=(), compare=False)
    parsers: tuple[str, ...] = field(default=(), compare=False)
    channels: Channels | None = field(default=None, compare=False)
    structural: tuple[str, ...] = field(default=(), compare=False)

    @property
    def starts(self) -> tuple[str, ...]:
        """All that opens a block."""
        return tuple(filter(None, (self.start, *self.openers)))

    @property
    def ends(self) -> tuple[str, ...]:
        """All that closes one."""
        return tuple(filter(None, (self.end, *self.closers)))

    @property
    def known_by(self) -> tuple[tuple[str, ...], ...]:
        """Groups of signs."""
        return tuple((start,) for start in (self.start,) if start) if self.signs is None else self.signs

    def sign_in(self, text: str) -> tuple[str, ...] | None:
        """The first group of signs that a text has; None if it has none, or is of another family."""
        if any(other in text for other in self.unlike):
            return None
        return next((signs for signs in self.known_by if all(sign in text for sign in signs)), None)

    @property
    def bare(self) -> bool:
        """A call may begin without any marker."""
        return not (self.start or self.heads)

    @property
    def is_object(self) -> bool:
        """A call is a JSON object."""
        return self.call.lstrip().startswith("{")


@dataclass(frozen=True, slots=True)
class Channels:
    """Messages with headers, of which an answer is made: thoughts, text for the user, and calls.

    Attributes:
        opens: markers that begin a header.
        closes: what ends a header.
        ends: what ends a message.
        thinks: a pattern found in headers of thoughts.
        calls: a pattern found in headers of calls; its group is the function's name where the header has it.
        headers: a pattern of whole headers; what only looks like one is text.
        words: a pattern of the beginning of a header that has no end: what is behind it is text.
        initial: an answer begins within a header, which the prompt opened.
        begins: what a header begins with where no marker opens it.
        thought, content: what stands before a thought, and before the text for the user.
        preamble: what stands before text that further messages follow.
        call: what stands before a block of calls, with the NAME of its first function, where calls have no header of
            their own in the format.
        following: what the model writes between two messages.
        named: the header of a call names its function; otherwise the block in the message does.
    """

    opens: tuple[str, ...]
    closes: str
    ends: tuple[str, ...]
    thinks: str
    calls: str
    headers: str = r"(?s:.*)"
    words: str = r""
    initial: bool = False
    begins: tuple[str, ...] = ()
    thought: str = ""
    content: str = ""
    preamble: str = ""
    call: str = ""
    following: str = ""
    named: bool = True

"""Reading of blocks of calls, whichever way a text is cut into pieces, and of calls that break their format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from .description import CallFormat, closers_of, separator_of, words_of
from .source import Event, Layout, NoCallError, Reading, Source, UnreadableError, around, layout
from .syntaxes.arguments import NAMES, JsonArguments, json_text, object_call
from .values import OfferedTools

_SEPARATORS = ",;"
_NAME = re.compile(r"[\w.-]+")
_SPACE = re.compile(r"\s+")
MAX_NAME = 256


class BlockReader:
    """One block of calls.

    Args:
        format: how the model writes calls.
        offered: what may be called.
        stops: further markers at which a call that cannot be read is over.
        marked: a marker opened the block; otherwise it may be none.
        is_call: it holds a call, whether or not that can be read.

    Attributes:
        begun: a call has begun, or the block cannot be anything but calls.
        rejected: what was read is no call.
        done: the block has ended; what is `left` follows it.
        complete: its last call is.
        ending: the marker that ended it; empty where none did.
    """

    def __init__(
        self,
        format: CallFormat,
        offered: OfferedTools,
        *,
        stops: Sequence[str],
        marked: bool,
        is_call: bool = False,
    ) -> None:
        self._source = Source([*format.ends, *format.starts, *stops])
        self._format, self._offered = format, offered
        self._only = None if marked else frozenset(offered.names)
        self._is_call = is_call
        self.begun = self.rejected = self.done = self.complete = False
        self.ending = ""
        self._is_open = False  # a call has a name, and no end yet
        calls = [around(text, "ARGUMENTS") for text in (format.call, *format.also)]
        self._heads = [layout(head) for head, _ in calls if not head.lstrip().startswith("{")]
        self._objects = any(head.lstrip().startswith("{") for head, _ in calls)
        self._ends = [layout(end) for end in sorted(format.ends, key=len, reverse=True)]
        self._tails = tuple(layout(tail) for _, tail in calls if tail.strip())
        self._tail = [tail.strip() for _, tail in calls if len(tail.strip()) > 2]
        self._steps = self._read()

    @property
    def left(self) -> int:
        """Number of characters that were not read; of all that came when it is rejected."""
        source = self._source
        return len(source.text) - (source.at if source.begins is None else source.begins)

    def feed(self, text: str) -> list[Event]:
        """Take more of the block; what is certain of it now. Nothing is taken once it is done or rejected."""
        self._source.append(text)
        return list(self._advance())

    def finish(self, *, cut: bool) -> list[Event]:
        """No more comes. `cut`: the model did not end the text itself."""
        self._source.ended, self._source.cut = True, cut
        return list(self._advance())

    def _advance(self) -> Iterator[Event]:
        for event in self._steps:
            if event is None:
                return
            self.begun, self._source.begins = True, None
            if event.kind != "arguments":
                self._is_open, self.complete = event.kind == "name", event.kind == "end"
            yield event

    # -----------------------------------------------------------------------------------------------------------------

    def _read(self) -> Reading[None]:
        source, format = self._source, self._format
        calls, listed = 0, False
        for word in format.inside[0].split():
            if word not in ("[", "{"):
                yield from source.literal([word])
        while following := (yield from source.peek()):
            begins = source.at
            if (yield from source.match(self._ends)) is not None:
                self.ending = source.text[begins : source.at]
                break
            if (yield from source.stops_here()):
                break
            in_list = self._objects or "[" in format.inside[0]
            if following == "[" and not calls and not listed and in_list:
                listed = True
                source.at += 1
            elif following == "]" and listed:
                listed = False
                source.at += 1
                if not format.ends:
                    break
            elif calls and following in _SEPARATORS:
                source.at += 1
            elif (yield from self._call()):
                calls += 1
                source.forget()
            elif not self.begun and not (yield from self._looks_like_one(following)):
                self.rejected = True
                return
            elif calls and not format.ends and not listed:
                break
            else:
                yield from self._skip()
        self.rejected = not self.begun and self._only is not None  # whitespace, or a marker amid the reasoning
        self.done = not self.rejected

    def _looks_like_one(self, following: str) -> Reading[bool]:
        """Find out if the text behind an opening marker begins like a call, although it cannot be read."""
        source = self._source
        if self._only is not None or self._is_call:
            return self._is_call
        if self._format.is_object:
            at = yield from source.run(_SPACE, source.at + (following == "["))
            return source.text.startswith("{", at)
        is_hole, first = layout(self._format.call).parts[0]
        if is_hole:
            end = yield from source.run(_NAME, source.at, MAX_NAME)
            return source.text[source.at : end] in self._offered.names
        begins = source.at
        found = yield from source.literal([first.rstrip(), *self._format.heads])
        source.at = begins
        return found is not None

    def _call(self) -> Reading[bool]:
        """Read a call; False where none can be read."""
        source = self._source
        begins = source.begins = source.at
        try:
            if (yield from self._one()):
                return True
        except UnreadableError as error:
            if self._is_open:
                end = yield from source.until(*self._tail)
                yield Event("broken", error.read + source.take(end))
                return True
        except NoCallError:
            pass
        source.at, source.begins = begins, None
        return False

    def _skip(self) -> Reading[None]:
        """Pass over what is no call, up to the end of the block or the next call."""
        source = self._source
        source.at += 1
        begins = [head.steps[0][1] for head in self._heads if not head.steps[0][0]]
        if self._objects:  # others than those of offered functions may be part of what cannot be read
            begins += _object_beginnings(self._format, self._offered.names)
        end = yield from source.until(*begins)
        source.at -= 1
        text = source.take(end)
        source.forget()
        yield Event("text", text)

    def _one(self) -> Reading[bool]:
        source, format = self._source, self._format
        if source.text[source.at] == "{" and self._objects:
            key = "NAME" if format.call.startswith('{"NAME"') else "name"
            yield from object_call(source, key, self._only, self._offered)
            return True
        found = yield from source.match(self._heads)
        if found is None:
            return False
        name = found[1].holes["NAME"]
        if self._only is not None and name not in self._only:
            raise NoCallError("a function that was not offered")
        if not (yield from self._goes_on(found[0], name)):
            return False
        yield Event("name", name)
        yield from self._arguments(name)
        return True

    def _goes_on(self, head: Layout, name: str) -> Reading[bool]:
        """A name with nothing around it is a call's only where its arguments, or the block's end, follow."""
        if len(head.parts) > 1 and any(part.strip() for is_hole, part in head.parts if not is_hole):
            return True
        following, begins = (yield from self._source.peek()), self._format.arguments.begins
        return following == begins or (begins == "{" and name in self._offered.custom)

    def _arguments(self, name: str) -> Reading[None]:
        kind = self._format.arguments
        if isinstance(kind, JsonArguments) and name in self._offered.custom:
            yield from self._free_text()
            return
        is_whole = yield from kind.read(self._source, self._tails, partial(self._offered.parameters, name))
        yield Event("end" if is_whole else "broken")

    def _free_text(self) -> Reading[None]:
        """Read the input of a custom tool, which may also be unescaped text, up to the end of its call."""
        source, begins = self._source, self._source.at
        if (yield from source.peek()) == "{":
            yield from json_text(source)
        else:
            source.at = begins
        end = yield from source.until(*self._tail)
        yield Event("broken", source.take(end).removeprefix("\n").removesuffix("\n"))
        yield from source.match(self._tails)


def _object_beginnings(format: CallFormat, names: Sequence[str]) -> list[str]:
    """Beginnings of objects that call one of these functions."""
    before = format.call.lstrip().partition("NAME")[0] if format.is_object else ""
    numbered = before.partition("INDEX")[0]
    if numbered != before:
        return [numbered, numbered.replace(": ", ":")]
    own = {before, *(f'{{"{key}": "' for key in NAMES)} - {""}
    return [f'{text}{name}"' for each in own for text in (each, each.replace(": ", ":")) for name in names]


_JSON_NAME = re.compile(r'"(?:tool_)?name"\s*:\s*"\s*(?P<name>[^"\\\s][^"\\]*)"')
_JSON_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*:\s*')
# What models write before a name besides marks, numbers, and the words of their format.
_WORDS = ("tool_name", "tool", "name", "function", "functions", "call", "invoke", "index")


def broken_call(format: CallFormat, body: str, names: Sequence[str], *, cut: bool) -> tuple[str, str] | None:
    """The name of the function that a block calls, and what follows it; None where no name can be read.

    Args:
        format: how the model writes calls.
        body: what is between the markers.
        names: of the functions that were offered. Where a call breaks its format's syntax, only these count.
        cut: the block has no end: a name at its end may not be whole.
    """
    if format.is_object and (found := _JSON_NAME.search(body)) is not None:
        arguments = _JSON_ARGUMENTS.search(body)
        if arguments is not None:
            return found["name"].strip(), _without_brace(body[arguments.end() :])
        rest = "" if cut else _without_brace(body[found.end() :].lstrip(", \n"))
        return found["name"].strip(), rest if re.search(r"\w", rest) else ""
    longest_first = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    words = "|".join({*_WORDS, *re.findall(r"[^\W\d]\w*", " ".join(words_of(format)))})
    before = rf"^(?:\W|\d+\b|(?:{words})\b)*?"
    found = re.match(rf"{before}(?P<name>{longest_first})(?![\w-]){'(?=.)' if cut else ''}", body, re.DOTALL)
    if found is None:
        return None
    rest = separator_of(format).sub("", body[found.end() :].strip())
    for closer in closers_of(format):
        rest = rest.removesuffix(closer).rstrip()
    return found["name"], rest if re.search(r"\w", rest) else ""


def _without_brace(arguments: str) -> str:
    """Arguments without their last brace, where more braces close than open: it ends the object around them."""
    text = arguments.strip().rstrip(", \n")
    if text.count("}") > text.count("{"):
        text = text.removesuffix("]").rstrip().removesuffix("}").rstrip()
    return text

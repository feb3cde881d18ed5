"""Reading an answer that comes in given pieces, and reading its calls as upstream does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from localai_shim.output.answer import AnswerParser
from localai_shim.output.channels import ChannelSplitter, Piece
from localai_shim.output.text import Delta
from localai_shim.output.tool_calls import InvalidCall, OfferedTools
from localai_shim.types import FinishReason, Token
from tests.output.families import Call, Family
from tests.output.recorded import Recorded


class Detokenizer:
    """Tokens are pieces of text, by their place in a list."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces, self._segment = pieces, ""

    def add_token(self, token: int) -> None:
        self._segment += self._pieces[token]

    def finalize(self) -> None:
        pass

    @property
    def last_segment(self) -> str:
        segment, self._segment = self._segment, ""
        return segment


@dataclass(slots=True)
class Answer:
    """What was read, put together from its deltas."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Names, and arguments as they came."""
    invalid: list[InvalidCall] = field(default_factory=list)

    def add(self, delta: Delta) -> None:
        self.content += delta.text
        self.reasoning += delta.reasoning
        self.invalid += delta.invalid
        for call in delta.calls:
            if call.name is not None:
                assert call.index == len(self.calls), "indexes ascend by one"
                self.calls.append((call.name, call.arguments))
                continue
            name, arguments = self.calls[call.index]
            assert call.index == len(self.calls) - 1, "one call after the other"
            assert call.arguments, "a delta says something"
            self.calls[call.index] = (name, arguments + call.arguments)

    @property
    def whole_calls(self) -> list[Call]:
        """Those whose arguments are a JSON object."""
        return [(name, json.loads(arguments)) for name, arguments in self.calls if is_object(arguments)]

    @property
    def broken_calls(self) -> list[tuple[str, str]]:
        """The others: names, and arguments as they stand."""
        return [(name, arguments) for name, arguments in self.calls if not is_object(arguments)]


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def tokens(pieces: Sequence[str], finish: FinishReason) -> list[Token]:
    """A row's tokens: a turn that ends by itself has one more, which is no text."""
    made = [Token(i, logprob=-float(i)) for i in range(len(pieces))]
    if finish == "stop" or not made:
        return [*made, Token(-1, finish_reason=finish, is_eos=True)]
    return [*made[:-1], made[-1]._replace(finish_reason=finish)]


def read(answer: Recorded, pieces: Sequence[str], **options: Any) -> Answer:
    """An answer in these pieces, through the parser."""
    parser = AnswerParser(Detokenizer(pieces), answer.family.markup, state=answer.state, tools=answer.tools, **options)
    out = Answer()
    for token in tokens(pieces, answer.finish):
        out.add(parser.feed(token))
    assert parser.calls == len(out.calls)
    return out


def upstream(family: Family, body: str, tools: OfferedTools) -> list[Call]:
    """The calls of a block as upstream's parser reads them.

    Raises:
        Exception: what upstream raises.
    """
    assert family.markup.tools is not None
    parsed = family.markup.tools.parse(body, list(tools.functions))
    out = []
    for call in parsed if isinstance(parsed, list) else [parsed]:
        arguments = call.get("arguments", call.get("parameters"))
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        out.append((call.get("name", call.get("tool_name")), arguments or {}))
    return out


def same(call: Call, other: Call) -> bool:
    """Whether they say the same; a number in text is the number, where the schema wants one."""
    (name, arguments), (other_name, others) = call, other
    if name != other_name.strip() or list(arguments) != list(others):
        return False
    return all(map(_same, arguments.values(), others.values()))


def _same(value: Any, other: Any) -> bool:
    if value == other:
        return True
    try:
        return isinstance(other, str) and bool(json.loads(other) == value)
    except ValueError:
        return False


def split(answer: Recorded, pieces: Sequence[str]) -> list[Piece]:
    """The same through the splitter alone."""
    splitter = ChannelSplitter(answer.family.markup, state=answer.state, offered=bool(answer.tools.functions))
    out = [found for piece in pieces for found in splitter.feed(piece)]
    return out + splitter.finish(cut=answer.finish == "length")

"""Reading an answer that comes in given pieces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from localai_shim.output.answer import Delta
from localai_shim.output.tool_calls import InvalidCall
from localai_shim.types import FinishReason, Token

Call = tuple[str, dict[str, Any]]


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

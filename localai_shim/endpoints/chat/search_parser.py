"""Readers of choices that may search the web between rounds."""

from __future__ import annotations

from dataclasses import replace

from ...output.answer import Delta
from ...output.tool_calls import CallDelta
from ...types import Token
from .assembler import ChoiceParser

_BETWEEN = "\n\n"
"""Between the texts of two rounds."""


class SearchParser:
    """Reads a choice in all its rounds. Its searches are no part of the answer.

    Args:
        parser: reads the first round.
        name: of the function that searches.

    Attributes:
        said: pieces of the content of all rounds.
        round_text, round_reasoning: pieces of what this round has said.
        searches: arguments of the searches that this round has asked for, by their position.
        continues: the round has ended with searches, and the choice continues behind them.
    """

    def __init__(self, parser: ChoiceParser, name: str) -> None:
        self._parser, self._name = parser, name
        self._generated = self._reasoning_tokens = 0
        """Tokens of earlier rounds."""
        self.said: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self.round_text, self.round_reasoning = list[str](), list[str]()
        self.searches: dict[int, list[str]] = {}
        self._own: dict[int, int] = {}
        """Positions of the caller's own calls among all -> among these."""
        self.continues = False
        self._separates = bool(self.said) and not self.said[-1][-1:].isspace()

    def follow(self, parser: ChoiceParser) -> None:
        """Begin the next round."""
        self._generated, self._reasoning_tokens = self.generated, self.reasoning_tokens
        self._parser = parser
        self._begin()

    @property
    def generated(self) -> int:
        """Number of tokens in all rounds."""
        return self._generated + self._parser.generated

    @property
    def reasoning_tokens(self) -> int:
        """Number of these that are reasoning."""
        return self._reasoning_tokens + self._parser.reasoning_tokens

    @property
    def stop_reason(self) -> int | str | None:
        """Cause of the last round's end."""
        return self._parser.stop_reason

    def text(self, token: Token) -> str | None:
        """Take a token that adds only text, which is returned; None: it may be another one, and was not taken."""
        if self._separates:
            return None
        text = self._parser.text(token)
        if text:
            self._say(text)
        return text

    def feed(self, token: Token) -> Delta:
        """Take the next token."""
        delta = self._parser.feed(token)
        text = delta.text
        if text:
            self.round_text.append(text)
            text = _BETWEEN + text if self._separates else text
            self._separates = False
            self.said.append(text)
        if delta.reasoning:
            self.round_reasoning.append(delta.reasoning)
        calls = [own for call in delta.calls if (own := self._own_call(call)) is not None]
        finish_reason = delta.finish_reason
        if finish_reason == "stop" and self.searches and not self._own:
            self.continues, finish_reason = True, None
        return replace(delta, text=text, calls=calls, finish_reason=finish_reason)

    def _say(self, text: str) -> None:
        self.round_text.append(text)
        self.said.append(text)

    def _own_call(self, call: CallDelta) -> CallDelta | None:
        """A call of the caller's own functions, at its position among these; searches are kept."""
        if call.name == self._name:
            self.searches[call.index] = []
        if call.index in self.searches:
            self.searches[call.index].append(call.arguments)
            return None
        return replace(call, index=self._own.setdefault(call.index, len(self._own)))

"""One choice's tokens to text, and to what an answer is made of: content, reasoning and tool calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..formats.markup import REASONING, Markup
from ..formats.values import OfferedTools
from ..types import FinishReason, Token
from .channels import ChannelSplitter, Piece
from .detokenizer import ByteDetokenizer, Detokenizer
from .stop import ALL_TEXT, StopMatcher, TokenRules
from .tool_calls import CallDelta, CallParser, InvalidCall


@dataclass(slots=True)
class Delta:
    """Additions of one token to an answer."""

    text: str = ""
    tokens: Sequence[tuple[Token, int]] = ()
    """The tokens whose text is out now, with the offset of their first character; only if logprobs were asked for. An
    offset of -1: the space that the token begins with is not in the text."""
    finish_reason: FinishReason | None = None
    reasoning: str = ""
    calls: Sequence[CallDelta] = ()
    invalid: Sequence[InvalidCall] = ()

    @property
    def is_text(self) -> bool:
        """It has nothing but `text`, if that."""
        return self.finish_reason is None and not (self.tokens or self.reasoning or self.calls or self.invalid)


class TextParser:
    """Detokenises one choice, cuts it at its stop string, and keeps logprobs in step with the text.

    Args:
        detokenizer: fresh.
        stop: stop strings; never part of the text.
        min_tokens: stop strings that begin in these first tokens do not count.
        with_tokens: fill `Delta.tokens`.
        rules: which tokens are not text.
        with_end: a token that ended the choice and is not text is among `Delta.tokens`, too.

    Attributes:
        stop_reason: what ended the choice, see `TokenRules`; once it has ended.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        stop: Sequence[str] = (),
        *,
        min_tokens: int = 0,
        with_tokens: bool = False,
        rules: TokenRules = ALL_TEXT,
        with_end: bool = False,
    ) -> None:
        self._detokenizer = detokenizer
        self._alone: Callable[[int], str | None] = lambda _: None
        self._stripped: Callable[[], int] = lambda: 0
        if isinstance(detokenizer, ByteDetokenizer):  # of others nothing is known but the text
            self._alone, self._stripped = detokenizer.alone, detokenizer.take_stripped
        self._matcher = StopMatcher(stop, include=rules.include_stop)
        self._rules, self._hidden = rules, rules.hidden
        self.stop_reason: int | str | None = None
        self._unchecked = min_tokens  # as `StopStrings` counts them: ends of sequence are not text
        self._with_tokens, self._with_end = with_tokens, with_end
        self._plain = not stop and not with_tokens
        self._pending: deque[tuple[Token, int, int]] = deque()  # token, where its text starts, where it ends
        self._length = 0  # characters detokenised
        self._released = 0  # characters given out
        self.generated = 0
        self.reasoning_tokens = 0

    def text(self, token: Token) -> str | None:
        """Take a token that adds nothing but text, as nearly all do; None: it is not that simple, and is to be fed."""
        if self._plain and token.finish_reason is None and not token.is_eos and token.id not in self._hidden:
            text = self._alone(token.id)
            if text is not None:
                self.generated += 1
            return text
        return None

    def feed(self, token: Token) -> Delta:
        """Take the choice's next token; the last one has a finish_reason."""
        self.generated += 1
        detokenizer = self._detokenizer
        if self._plain and token.finish_reason is None and not token.is_eos and token.id not in self._hidden:
            detokenizer.add_token(token.id)
            return Delta(detokenizer.last_segment)
        finished = token.finish_reason is not None
        checks = self._unchecked <= 0
        hides = self._rules.hides(token)
        self._unchecked -= not (hides and token.is_eos)
        text = ""
        if not hides:
            detokenizer.add_token(token.id)
            text = detokenizer.last_segment
        if self._with_tokens and (self._with_end or not (hides and self._rules.is_end(token))):
            self._pending.append((token, self._length - self._stripped(), self._length + len(text)))
        if finished:
            detokenizer.finalize()
            text += detokenizer.last_segment
        self._length += len(text)
        out = self._matcher.feed(text) if checks else text
        if finished and not self._matcher.matched:
            out += self._matcher.flush()
        if finished:
            self.stop_reason = self._rules.stop_reason(token, self._matcher.found)
        return Delta(out, self._release(out, finished), token.finish_reason)

    def _release(self, text: str, finished: bool) -> list[tuple[Token, int]]:
        """Take out the tokens whose text is given out now, each with where that starts.

        Args:
            text: what is given out.
            finished: no more comes: a token that a stop string cut in two is given out as well, but none behind it.
        """
        self._released += len(text)
        pending, released, out = self._pending, self._released, list[tuple[Token, int]]()
        while pending and pending[0][2] <= released:
            token, start, _ = pending.popleft()
            out.append((token, start))
        if finished:
            stopped = self._matcher.matched
            out += [(token, start) for token, start, _ in pending if start < released or not stopped]
            pending.clear()
        return out


class AnswerParser(TextParser):
    """Detokenises one choice, splits it into channels, cuts its content at a stop string and reads its tool calls.

    Args:
        detokenizer: fresh.
        markup: the model's markers.
        state: the state that the answer begins in, see `Markup.state_after`.
        tools: what the model may call.
        stop: stop strings, looked for in the content only.
        with_tokens: fill `Delta.tokens`, with the tokens of the content.
        min_tokens, rules: see `TextParser`.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        markup: Markup,
        *,
        state: str | None = None,
        tools: OfferedTools | None = None,
        stop: Sequence[str] = (),
        min_tokens: int = 0,
        with_tokens: bool = False,
        rules: TokenRules = ALL_TEXT,
    ) -> None:
        super().__init__(detokenizer, stop, min_tokens=min_tokens, with_tokens=with_tokens, rules=rules)
        tools = tools or OfferedTools()
        self._splitter = ChannelSplitter(markup, state=state, tools=tools)
        self._calls = CallParser(markup.tools, tools)
        self._checks = True
        self._tokens = _ContentTokens(self._pending) if with_tokens else None
        self._cut = False
        self._has_text = False
        self._invalid: list[str] = []

    @property
    def calls(self) -> int:
        """Number of tool calls so far."""
        return self._calls.calls

    def text(self, token: Token) -> str | None:
        """Take a token of plain text, like `TextParser.text`; None: it has to be fed."""
        if not self._plain or token.finish_reason is not None or token.is_eos or token.id in self._hidden:
            return None
        text = self._alone(token.id)
        if text is None or self._splitter.prose(text, "content") is None:
            return None
        self.generated += 1
        self._has_text = True
        return text

    def feed(self, token: Token) -> Delta:
        """Take the choice's next token; the last one has a finish_reason."""
        self.generated += 1
        simple = self._plain and token.finish_reason is None and not token.is_eos and token.id not in self._hidden
        hides, text = not simple and self._rules.hides(token, self._splitter.state), ""
        if not hides:
            self._detokenizer.add_token(token.id)
            text = self._detokenizer.last_segment
        kind = self._splitter.prose(text) if simple else None
        if kind == "content":
            self._has_text = True
            return Delta(text)
        if kind == "reasoning":
            self.reasoning_tokens += 1
            return Delta(reasoning=text)
        return self._feed(token, text, hides=hides)

    def _feed(self, token: Token, text: str, *, hides: bool) -> Delta:
        finished = token.finish_reason is not None
        thinking = self._splitter.state == REASONING
        self._checks = self._unchecked <= 0
        self._unchecked -= not (hides and token.is_eos)
        if finished:
            self._detokenizer.finalize()
            text += self._detokenizer.last_segment
        if self._tokens is not None and not (hides and self._rules.is_end(token)):
            self._tokens.add(token, len(text), self._stripped())
        made = _DeltaBuilder()
        for piece in self._splitter.feed(text):
            self._take(piece, made)
        self.reasoning_tokens += thinking or self._splitter.state == REASONING
        if finished:
            self._cut = token.finish_reason == "length"
            for piece in self._splitter.finish(cut=self._cut):
                self._take(piece, made)
            made.text.append(self._matcher.flush())
            self.stop_reason = self._rules.stop_reason(token, self._matcher.found)
        delta = made.delta(token.finish_reason)
        self._show_invalid(delta, finished)
        if self._tokens is not None:
            delta.tokens = self._release(delta.text, finished)
        return delta

    def _show_invalid(self, delta: Delta, finished: bool) -> None:
        """Text that was marked as a call and is none is the content of an answer that had nothing else to say."""
        self._has_text = self._has_text or bool(delta.text.strip())
        if delta.invalid:
            self._invalid += [call.text for call in delta.invalid]
        if finished and not (self._has_text or self.calls or self._matcher.matched):
            delta.text += self._matcher.feed("".join(self._invalid)) + self._matcher.flush()

    def _take(self, piece: Piece, made: _DeltaBuilder) -> None:
        if self._matcher.matched:
            return
        kind, text = piece.kind, piece.text
        if self._tokens is not None:
            self._tokens.place(piece)
        if kind == "content":
            made.text.append(self._matcher.feed(text) if self._checks else text)
        elif kind == "reasoning":
            made.reasoning.append(text)
        elif kind == "stray":
            made.add([InvalidCall(text, "no call follows this marker")])
        elif kind == "open":
            self._calls.open(text)
        elif kind == "call":
            made.add(self._calls.feed(text, piece.events, cut=self._cut))
        elif kind == "close":
            made.add(self._calls.close(text, cut=self._cut))


class _DeltaBuilder:
    """Collects a delta, which has many parts if a long answer comes whole."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self._calls: list[CallDelta] = []
        self._invalid: list[InvalidCall] = []

    def add(self, found: Iterable[CallDelta | InvalidCall]) -> None:
        for each in found:
            if isinstance(each, CallDelta):
                self._calls.append(each)
            else:
                self._invalid.append(each)

    def delta(self, finish_reason: FinishReason | None) -> Delta:
        text, reasoning = "".join(self.text), "".join(self.reasoning)
        return Delta(text, (), finish_reason, reasoning, self._calls, self._invalid)


class _ContentTokens:
    """Finds the tokens whose text is content, and where in the content it is.

    Args:
        placed: gets them: a token, and where in the content its text starts and ends.
    """

    def __init__(self, placed: deque[tuple[Token, int, int]]) -> None:
        self._unplaced: deque[tuple[Token, int, int]] = deque()  # token, where in the answer its text starts and ends
        self._placed = placed
        self._length = 0  # of the answer
        self._content = 0  # characters of content that were placed

    def add(self, token: Token, length: int, stripped: int) -> None:
        self._unplaced.append((token, self._length - stripped, self._length + length))
        self._length += length

    def place(self, piece: Piece) -> None:
        """The next stretch of the answer is this piece."""
        is_content = piece.kind == "content"
        while self._unplaced and (self._unplaced[0][1] < piece.end or self._unplaced[0][2] <= piece.start):
            token, start, end = self._unplaced[0]
            if is_content and end >= piece.start:
                at = self._content - piece.start
                start = max(start, piece.start) if piece.start else start  # before all text, too
                self._placed.append((token, start + at, min(end, piece.end) + at))
            elif not is_content and end > piece.end:
                return  # its rest may be content
            self._unplaced.popleft()
        if is_content:
            self._content += piece.end - piece.start

"""One choice's tokens to text deltas."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..types import FinishReason, Token
from .detokenizer import ByteDetokenizer, Detokenizer
from .stop import ALL_TEXT, StopMatcher, TokenRules
from .tool_calls import CallDelta, InvalidCall


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

"""Stop strings, also across token boundaries, and the text of one row in which the engine looks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..formats.markup import NORMAL, PROSE
from ..types import Token
from .channels import ChannelSplitter
from .detokenizer import Detokenizer


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Tokens of an answer that are not text, as vLLM's fields of these names say.

    Attributes:
        hidden: special tokens that are not markers of the model's; they are not text, unless within a call.
        skip_special_tokens: neither are ends of sequence that the row went past.
        stop_token_ids: tokens that end a row. The end is not text.
        include_stop: except where it is wanted: the token, unless it is hidden, and the stop string.
        ignore_eos: an end of sequence ends nothing.
    """

    hidden: frozenset[int] = frozenset()
    skip_special_tokens: bool = True
    stop_token_ids: frozenset[int] = frozenset()
    include_stop: bool = False
    ignore_eos: bool = False

    def hides(self, token: Token, state: str = NORMAL) -> bool:
        """True if a token is not text.

        Args:
            state: of the answer, as a `ChannelSplitter` has it.
        """
        ended = token.id in self.stop_token_ids or (token.is_eos and not self.ignore_eos)
        if ended and token.finish_reason == "stop" and not self.include_stop:
            return True
        if token.is_eos:
            return self.skip_special_tokens
        return token.id in self.hidden and state in PROSE

    def is_end(self, token: Token) -> bool:
        """True if a row's last token says no more than that it ends."""
        return token.finish_reason is not None and (token.is_eos or token.id in self.stop_token_ids)

    def stop_reason(self, token: Token, matched: str | None) -> int | str | None:
        """Reason for a row's end, by its last token: a stop token's id, a stop string, or None for anything else.

        Args:
            matched: the stop string that was found.
        """
        if token.finish_reason != "stop":
            return None
        return token.id if token.id in self.stop_token_ids else matched


ALL_TEXT = TokenRules()
"""Only ends of sequence are not text."""


class StopMatcher:
    """Lets text through up to the first stop string, and holds back what may yet become one.

    Args:
        strings: the stop strings; none lets all text through.
        include: let the stop string that is found through, too.
    """

    def __init__(self, strings: Sequence[str], *, include: bool = False) -> None:
        self._strings = tuple(strings)
        self._include = include
        self.found: str | None = None
        self._longest = max((len(s) for s in self._strings), default=0)
        self._held = ""
        self.matched = False

    def feed(self, text: str) -> str:
        """The text that is now certain to stay; after a match, nothing more."""
        if self.matched:
            return ""
        if not self._strings:
            return text
        held = self._held + text
        found = [(at + len(s), at) for s in self._strings if (at := held.find(s)) >= 0]
        if found:  # the one that is complete first, as if the text had come letter by letter
            self.matched, self._held = True, ""
            end, start = min(found)
            self.found = held[start:end]
            return held[: end if self._include else start]
        keep = self._overlap(held)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def flush(self) -> str:
        """Release the text that was held back, when no more comes."""
        held, self._held = self._held, ""
        return held

    def _overlap(self, text: str) -> int:
        """Length of the longest end of the text that begins a stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            if text.endswith(tuple(s[:length] for s in self._strings if len(s) > length)):
                return length
        return 0


class StopStrings:
    """The engine's side: sees a row's tokens and says when they contain a stop string.

    Args:
        text: the row's, which this feeds.
        strings: the stop strings, at least one.
        min_tokens: stop strings that begin in these first tokens do not count; ends of sequence that are not text
            are not among these.
    """

    def __init__(self, text: RowText, strings: Sequence[str], min_tokens: int = 0) -> None:
        self._text = text
        text.has_stop_check = True
        self._matcher = StopMatcher(strings)
        self._unchecked = min_tokens

    def feed(self, token_id: int) -> bool:
        text = self._text
        if not text.feed(token_id):
            return False
        if self._unchecked > 0:
            self._unchecked -= 1
        else:
            self._matcher.feed(text.content)
        return self._matcher.matched


class RowText:
    """Detokenises each of a row's tokens once and splits the text into channels once.

    Args:
        detokenizer: fresh.
        splitter: fresh, in the state that the answer begins in; None: channels are not needed.
        all_content: stop strings are looked for in all text, whatever the splitter finds.
        eos: ends of sequence that are not text.
        hidden: see `TokenRules`.

    Attributes:
        content: what the last token added to it, for the stop check.
        in_reasoning: the text ends inside reasoning.
        has_stop_check: the row's stop check feeds it each token, before anyone else looks at it.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        splitter: ChannelSplitter | None = None,
        *,
        all_content: bool = False,
        eos: frozenset[int] = frozenset(),
        hidden: frozenset[int] = frozenset(),
    ) -> None:
        self._detokenizer, self._splitter = detokenizer, splitter
        self._all_content = all_content or splitter is None
        self._eos, self._hidden = eos, hidden
        self.content = ""
        self.in_reasoning = splitter is not None and splitter.in_reasoning
        self.has_stop_check = False

    def feed(self, token_id: int) -> bool:
        """Take the row's next token; False for an end of sequence that is not text."""
        if token_id in self._eos:
            return False
        splitter, text = self._splitter, ""
        if token_id not in self._hidden or not (self._all_content or splitter is None or splitter.state in PROSE):
            self._detokenizer.add_token(token_id)
            text = self._detokenizer.last_segment
        if splitter is not None:
            pieces = splitter.feed(text)
            self.in_reasoning = splitter.in_reasoning
            if self.has_stop_check and not self._all_content:
                text = ""
                for piece in pieces:
                    text += piece.text if piece.kind == "content" else ""
        self.content = text
        return True

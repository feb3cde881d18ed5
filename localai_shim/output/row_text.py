"""One row's text on the engine's side, which its stop check and its grammar constraint share."""

from __future__ import annotations

from ..formats.markup import PROSE
from .channels import ChannelSplitter
from .detokenizer import Detokenizer


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

"""Constraints on a row's next token: a grammar of its answer, which waits for the reasoning to end, and a budget of
reasoning tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..output.row_text import RowText

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .compile import GrammarMatcher


@dataclass(slots=True)
class Thinking:
    """One row's reasoning, as far as it must be followed.

    Attributes:
        text: the row's; its stop check feeds it, and the constraint where there is none.
        opener: tokens that open one; none: it takes more than these.
        closer: tokens that close one.
        allowed: the model may open a block by itself.
        barred: tokens that are banned from a block that a grammar follows: ends of sequence, and what begins a call.
        budget: tokens of reasoning, those of all blocks together, after which a block is closed; None: no limit.
    """

    text: RowText
    opener: Sequence[int]
    closer: Sequence[int]
    allowed: bool = True
    barred: Sequence[int] = ()
    budget: int | None = None


class RowConstraint:
    """One row's `GrammarConstraint`: follows the reasoning, closes it at its budget, and applies the answer's grammar.

    Args:
        matcher: the grammar of the answer.
        thinking: the reasoning before it; None: there is none, or it is nobody's concern.
        from_start: the grammar covers the reasoning, too.
    """

    def __init__(
        self, matcher: GrammarMatcher | None, thinking: Thinking | None = None, *, from_start: bool = False
    ) -> None:
        self._matcher, self._thinking, self._from_start = matcher, thinking, from_start
        self._spent = 0
        self._forced: deque[int] = deque()
        self._phase: _Phase = "answer"
        self._shared = False  # the answer may begin with the token that opens a block: it is taken for the answer's
        limited = thinking is not None and thinking.budget is not None
        self._reopens = limited and (matcher is None or from_start)
        """A block may come after the answer has begun, and would have to be closed."""
        if thinking is not None:
            self._phase = "thinking" if thinking.text.in_reasoning else "start"
            self._limit(thinking)

    @property
    def idle(self) -> bool:
        return self._matcher is None and self._phase == "answer" and not self._reopens

    @property
    def escape(self) -> int | None:
        thinking = self._thinking
        if self._phase != "start" or self._from_start or self._matcher is None or thinking is None or self._shared:
            return None
        return thinking.opener[0] if thinking.allowed and thinking.opener else None

    def mask(self, out: NDArray[np.int32]) -> bool:
        if self._forced:
            self._mask_forced(out, self._forced[0])
            return True
        if self._matcher is None:
            return False
        if self._phase in _REASONING and not self._from_start:
            return self._bar(out)
        self._matcher.mask(out)
        if (opener := self.escape) is not None:
            self._shared = bool(out.view("uint32")[opener // 32] >> (opener % 32) & 1)
        return True

    def accept(self, token_id: int) -> bool:
        if self._forced and token_id == self._forced[0]:
            self._forced.popleft()
        before = self._phase
        if self._thinking is not None and (before != "answer" or self._reopens):
            self._follow(self._thinking, token_id)
        answers = before not in _REASONING and self._phase not in _REASONING
        if self._matcher is not None and (answers or self._from_start):
            return self._matcher.accept(token_id)
        return False

    def forced(self) -> Sequence[int]:
        if self._forced:
            return list(self._forced)
        waits = self._phase != "answer" and not self._from_start
        return () if self._matcher is None or waits else self._matcher.forced()

    # -----------------------------------------------------------------------------------------------------------

    def _mask_forced(self, out: NDArray[np.int32], token_id: int) -> None:
        """Allow one token; amid a character that the grammar covers, what ends the character."""
        word, bit = divmod(token_id, 32)
        if self._matcher is not None and self._from_start:
            self._matcher.mask(out)
            if not out.view("uint32")[word] >> bit & 1:
                return
            out.fill(0)
        out.view("uint32")[word] = 1 << bit

    def _bar(self, out: NDArray[np.int32]) -> bool:
        """Allow every token but those that would end the answer, or begin a call, amid the reasoning."""
        barred = self._thinking.barred if self._thinking is not None else ()
        if barred:
            out.fill(-1)
        for token_id in barred:
            out.view("uint32")[token_id // 32] &= ~(1 << (token_id % 32)) & 0xFFFFFFFF
        return bool(barred)

    def _follow(self, thinking: Thinking, token_id: int) -> None:
        opens = token_id == self.escape
        text = thinking.text
        if not text.has_stop_check:
            text.feed(token_id)
        if text.in_reasoning:
            self._spent += self._phase == "thinking"
            self._phase = "thinking"
            self._limit(thinking)
        elif opens:
            self._phase = "opening"
            self._forced = deque(thinking.opener[1:])
        elif not self._forced:
            self._phase = "answer"

    def _limit(self, thinking: Thinking) -> None:
        """Close the block when the budget is spent."""
        if thinking.budget is not None and self._phase == "thinking" and self._spent >= thinking.budget:
            self._forced = self._forced or deque(thinking.closer)


_Phase = Literal["start", "opening", "thinking", "answer"]
_REASONING: tuple[_Phase, ...] = ("opening", "thinking")

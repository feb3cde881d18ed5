"""Constraints on a row's next token: a grammar of its answer, which waits for the reasoning to end, and a budget of
reasoning tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .compile import GrammarMatcher


class FollowedText(Protocol):
    """One row's text, such as a `RowText`."""

    in_reasoning: bool
    has_stop_check: bool

    def feed(self, token_id: int, /) -> bool: ...


@dataclass(slots=True)
class Thinking:
    """One row's reasoning, as far as it must be followed.

    Attributes:
        text: the row's; its stop check feeds it, and the constraint where there is none.
        opener: tokens that open one; none: it takes more than these.
        closer: tokens that close one, and begin what follows it if the model must begin that.
        allowed: the model may open a block by itself.
        barred: tokens that are banned from a block that a grammar follows: ends of sequence, and what begins a call.
        budget: tokens of reasoning, those of all blocks together, after which a block is closed, and none opens; None:
            no limit. If it is 0 a model that opens a block gets an empty one.
        reopeners: beginnings of blocks: once none opens, the last token of each is banned behind the others.
    """

    text: FollowedText
    opener: Sequence[int]
    closer: Sequence[int]
    allowed: bool = True
    barred: Sequence[int] = ()
    budget: int | None = None
    reopeners: Sequence[Sequence[int]] = ()


class RowConstraint:
    """One row's `GrammarConstraint`: follows the reasoning, closes it at its budget, and applies the answer's grammar.

    Args:
        matcher: the grammar of the answer.
        thinking: the reasoning before it; None: there is none, or it does not matter.
        from_start: the grammar covers the reasoning, too.
        after: the grammar of an answer without reasoning; it follows the block that has spent the budget.
    """

    def __init__(
        self,
        matcher: GrammarMatcher | None,
        thinking: Thinking | None = None,
        *,
        from_start: bool = False,
        after: GrammarMatcher | None = None,
    ) -> None:
        self._matcher, self._thinking, self._after = matcher, thinking, after
        self._covers = from_start  # the grammar covers the block that is open, or may be opened now
        self._spent = 0
        self._forced: deque[int] = deque()
        self._last: deque[int] = deque(maxlen=_longest(thinking))
        self._shut = thinking is not None and thinking.budget == 0 and not thinking.allowed
        """No block may open any more."""
        self._phase: _Phase = "answer"
        self._shared = False  # the answer may begin with the token that opens a block: it is taken for the answer's
        self._reopens = thinking is not None and thinking.budget is not None
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
        if self._phase != "start" or self._covers or self._matcher is None or thinking is None or self._shared:
            return None
        return thinking.opener[0] if thinking.allowed and thinking.opener else None

    def mask(self, out: NDArray[np.int32]) -> bool:
        if self._forced:
            self._mask_forced(out, self._forced[0])
            return True
        if self._matcher is None:
            return self._shut and self._bar(out, self._reopening())
        if self._phase in _REASONING and not self._covers:
            return self._bar(out, self._thinking.barred if self._thinking is not None else ())
        self._matcher.mask(out)
        if self._shut:
            self._ban(out, self._reopening())
        if (opener := self.escape) is not None:
            self._shared = bool(out.view("uint32")[opener // 32] >> (opener % 32) & 1)
        return True

    def accept(self, token_id: int) -> bool:
        if self._forced and token_id == self._forced[0]:
            self._forced.popleft()
        before, matcher = self._phase, self._matcher
        if self._thinking is not None and (before != "answer" or self._reopens):
            self._last.append(token_id)
            self._follow(self._thinking, token_id)
        answers = before not in _REASONING and self._phase not in _REASONING
        if matcher is not None and (answers or self._covers):
            return matcher.accept(token_id)
        return False

    def forced(self) -> Sequence[int]:
        if self._forced:
            return list(self._forced)
        waits = self._phase != "answer" and not self._covers
        return () if self._matcher is None or waits else self._matcher.forced()

    # -----------------------------------------------------------------------------------------------------------

    def _mask_forced(self, out: NDArray[np.int32], token_id: int) -> None:
        """Allow one token; inside a character that the grammar covers, the rest of the character."""
        word, bit = divmod(token_id, 32)
        if self._matcher is not None and self._covers:
            self._matcher.mask(out)
            if not out.view("uint32")[word] >> bit & 1:
                return
            out.fill(0)
        out.view("uint32")[word] = 1 << bit

    def _bar(self, out: NDArray[np.int32], barred: Sequence[int]) -> bool:
        """Allow every token but these."""
        if barred:
            out.fill(-1)
            self._ban(out, barred)
        return bool(barred)

    def _ban(self, out: NDArray[np.int32], barred: Sequence[int]) -> None:
        """Take tokens out of a mask, unless it allows no others."""
        before = out.copy() if barred else out
        for token_id in barred:
            out.view("uint32")[token_id // 32] &= ~(1 << (token_id % 32)) & 0xFFFFFFFF
        if not out.any():
            out[:] = before

    def _reopening(self) -> Sequence[int]:
        """The tokens with which a block would open now."""
        reopeners = self._thinking.reopeners if self._thinking is not None else ()
        return [tokens[-1] for tokens in reopeners if self._ends_with(tokens[:-1])]

    def _ends_with(self, tokens: Sequence[int]) -> bool:
        return not tokens or [*self._last][-len(tokens) :] == [*tokens]

    def _follow(self, thinking: Thinking, token_id: int) -> None:
        opens = token_id == self.escape
        text = thinking.text
        if not text.has_stop_check:
            text.feed(token_id)
        if text.in_reasoning:
            self._covers = self._covers or self._phase == "answer"
            self._spent += self._phase == "thinking"
            self._phase = "thinking"
            self._limit(thinking)
        elif opens:
            self._phase = "opening"
            self._forced = deque(thinking.opener[1:])
        elif not self._forced:
            if self._phase == "thinking" and self._is_spent(thinking):
                self._shut_off()
            self._phase = "answer"

    def _is_spent(self, thinking: Thinking) -> bool:
        return thinking.budget is not None and self._spent >= thinking.budget

    def _shut_off(self) -> None:
        """Let no further block open: it would have to be closed, and a model may open the next one again and again."""
        self._shut = True
        if self._after is not None:
            self._matcher, self._thinking, self._reopens = self._after, None, False

    def _limit(self, thinking: Thinking) -> None:
        """Close the block when the budget is spent; the model may have begun to."""
        if self._phase == "thinking" and self._is_spent(thinking) and not self._forced:
            closer = thinking.closer
            begun = next(n for n in range(len(closer) - 1, -1, -1) if self._ends_with(closer[:n]))
            self._forced = deque(closer[begun:])


def _longest(thinking: Thinking | None) -> int:
    """Tokens of which a place in the text must be known, to find markers that end there."""
    return 0 if thinking is None else max(map(len, (thinking.closer, *thinking.reopeners)))


_Phase = Literal["start", "opening", "thinking", "answer"]
_REASONING: tuple[_Phase, ...] = ("opening", "thinking")

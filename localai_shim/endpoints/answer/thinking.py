"""Limits on thinking: `reasoning_effort`, and beyond OpenAI's, `enable_thinking` and `thinking_budget`, which vLLM
calls `thinking_token_budget`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...errors import BadRequest
from ...grammar.constraint import Thinking
from ...output.stop import RowText
from ...prompt.history import Message
from ...prompt.template_traits import EFFORT_VARIABLES, ThinkingSwitch
from ..fields import Fields
from ..served import ServedModel

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_OFF = ("none", "minimal")
_SWITCHES = ("enable_thinking", "thinking")  # what callers give to any template
MAX_BUDGET_TOKENS = 2**31


@dataclass(frozen=True, slots=True)
class ThinkingPlan:
    """Wishes of a request about thinking.

    Attributes:
        variables: for the chat template.
        off: there is to be no reasoning; where the template has no switch for it, the budget is 0.
        budget: most tokens of reasoning; None: no limit.
        switch: the template's, if the request says whether there is to be reasoning.
    """

    variables: dict[str, object]
    off: bool = False
    budget: int | None = None
    switch: ThinkingSwitch | None = None

    def budget_of(self, *, closed: bool) -> int | None:
        """Most tokens of reasoning of an answer; None: no limit.

        Args:
            closed: the prompt has closed the reasoning; otherwise a template's switch may leave that to the model.
        """
        return 0 if self.off and (self.switch is None or closed) else self.budget

    def messages(self, messages: list[Message]) -> list[Message]:
        """The conversation, which tells the template in its system message where that is its switch."""
        return messages if self.switch is None else self.switch.messages(messages, not self.off)


def read_thinking(fields: Fields, variables: dict[str, object], model: ServedModel, effort: str | None) -> ThinkingPlan:
    """Read the fields, on top of the template's variables that the caller gave.

    Args:
        effort: one of `EFFORTS`; chat.completions and Responses have it in different places.

    Raises:
        BadRequest: a field is wrong, or asks a model to think that cannot.
    """
    wanted = fields.boolean("enable_thinking")
    budget = read_thinking_budget(fields)
    if wanted is None and budget is None and effort is None and not variables:
        return ThinkingPlan(variables)
    switch = model.tokenizer.thinking_switch
    if wanted and not model.markup.thinks and switch is None:
        raise BadRequest.unsupported_value(
            "enable_thinking", "This model does not think: 'enable_thinking' cannot be true."
        )
    if effort is not None and (taken := _nearest(effort, model)) is not None:
        variables.setdefault(*taken)
    if wanted is None:
        wanted = _given(variables, switch)
    if wanted is None and effort is not None:
        wanted = effort not in _OFF
    if budget is not None and model.tokenizer.knows("thinking_budget"):
        variables.setdefault("thinking_budget", budget)
    if wanted is None:
        return ThinkingPlan(variables, budget=budget)
    for name, value in {} if switch is None else switch.variables(wanted).items():
        variables.setdefault(name, value)
    return ThinkingPlan(variables, not wanted, budget, switch)


def _given(variables: dict[str, object], switch: ThinkingSwitch | None) -> bool | None:
    """Wish for reasoning in the template's variables that the caller gave; None: they hold none."""
    given = next((variables[name] for name in _SWITCHES if name in variables), None)
    if isinstance(given, bool):
        return given
    return None if switch is None else switch.wanted_by(variables)


def read_thinking_budget(fields: Fields) -> int | None:
    """Most tokens of reasoning; None: no limit."""
    old = fields.integer("thinking_budget", 0, MAX_BUDGET_TOKENS)
    new = fields.integer("thinking_token_budget", -1, MAX_BUDGET_TOKENS)
    if old is not None and new is not None:
        raise BadRequest("Pass 'thinking_token_budget' or 'thinking_budget', not both.", param="thinking_token_budget")
    return None if new == -1 else old if new is None else new


def _nearest(effort: str, model: ServedModel) -> tuple[str, str] | None:
    """The variable of the chat template for the effort, and the nearest value to a wish that it takes, on the same side
    of thinking at all; None: there is none.
    """
    at = EFFORTS.index(effort)
    side = [other for other in EFFORTS if (other in _OFF) == (effort in _OFF)]
    nearest = sorted(side, key=lambda other: abs(EFFORTS.index(other) - at))
    taken = ((name, other) for name in EFFORT_VARIABLES for other in nearest if model.tokenizer.takes(name, other))
    return next(taken, None)


def follow_thinking(
    plan: ThinkingPlan, model: ServedModel, prompt_end: str, text: Callable[[], RowText], *, has_grammar: bool
) -> Thinking | None:
    """Rules of the reasoning that a row's grammar constraint must follow; None: there are none.

    Args:
        prompt_end: the end of the rendered prompt.
        text: makes the row's text, or has made it.
        has_grammar: a grammar waits for the reasoning to be over.
    """
    markup, encode = model.markup, model.tokenizer.encode_marker
    if not markup.thinks or markup.think_end is None:
        return None
    is_closed = markup.closed_by(prompt_end)
    budget = plan.budget_of(closed=is_closed)
    if has_grammar and is_closed:  # it allows no block
        return None
    if budget is None and not has_grammar:
        return None
    calls = [] if markup.tools is None else [encode(text) for text in markup.tools.starts]
    return Thinking(
        text=text(),
        opener=[] if markup.thought is None else encode(markup.thought.start),
        closer=encode(markup.think_end if markup.channels is None else markup.channels.following),
        # A model that wants to think answers better after an empty block than without one.
        allowed=not is_closed and (not plan.off or budget == 0),
        barred=[*model.eos_token_ids, *(call[0] for call in calls if len(call) == 1)],
        budget=budget,
        reopeners=[] if budget is None else _reopeners(model),
    )


def _reopeners(model: ServedModel) -> list[list[int]]:
    """The tokens by which beginnings of blocks are known.

    Of an opener that begins with a special token these are no more than tell it from the model's other markers; of one
    that is spelled they are all of it, since its first letters may be anything.
    """
    markup, encode = model.markup, model.tokenizer.encode_marker
    if (thought := markup.thought) is None:
        return []
    tools = () if markup.tools is None else (*markup.tools.starts, *markup.tools.heads, *markup.tools.ends)
    others = [encode(text) for text in (thought.end, *markup.structural, *thought.closed, *tools)]
    found = []
    for text in (thought.start, *thought.openers):
        tokens = encode(text)
        if isinstance(next(iter(model.grammars.vocabulary.split(text)), ""), int):
            shared = (n for n in range(1, len(tokens)) if not any(other[:n] == tokens[:n] for other in others))
            tokens = tokens[: next(shared, len(tokens))]
        found.append(tokens)
    return found

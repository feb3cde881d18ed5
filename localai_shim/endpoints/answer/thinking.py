"""How much a model may think: `reasoning_effort`, and beyond OpenAI's, `enable_thinking` and `thinking_budget`, which
vLLM calls `thinking_token_budget`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...errors import BadRequest
from ...grammar.constraint import Thinking
from ...output.row_text import RowText
from ..fields import Fields
from ..served import ServedModel

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_OFF = ("none", "minimal")
_SWITCHES = ("enable_thinking", "thinking")  # what templates call it
MAX_BUDGET_TOKENS = 2**31


@dataclass(frozen=True, slots=True)
class ThinkingPlan:
    """What the request says of it.

    Attributes:
        variables: for the chat template.
        off: there is to be no reasoning; where the template has no switch for it, the budget is 0.
        budget: most tokens of reasoning; None: no limit.
    """

    variables: dict[str, object]
    off: bool = False
    budget: int | None = None


def read_thinking(fields: Fields, variables: dict[str, object], model: ServedModel, effort: str | None) -> ThinkingPlan:
    """Read the fields, on top of the template's variables that the caller gave.

    Args:
        effort: one of `EFFORTS`; chat.completions and Responses have it in different places.

    Raises:
        BadRequest: a field is wrong, or asks a model to think that cannot.
    """
    wanted = fields.boolean("enable_thinking")
    budget = read_thinking_budget(fields)
    if wanted and not model.markup.thinks and not model.tokenizer.knows("enable_thinking"):
        raise BadRequest.unsupported_value(
            "enable_thinking", "This model does not think: 'enable_thinking' cannot be true."
        )
    if effort is not None and (taken := _nearest(effort, model)) is not None:
        variables.setdefault("reasoning_effort", taken)
    given = next((variables[name] for name in _SWITCHES if name in variables), None)
    if wanted is None and isinstance(given, bool):
        wanted = given
    if wanted is None and effort is not None:
        wanted = effort not in _OFF
    if wanted is not None:
        for name in _SWITCHES:
            if name == _SWITCHES[0] or model.tokenizer.knows(name):
                variables.setdefault(name, wanted)
    return ThinkingPlan(variables, wanted is False, budget)


def read_thinking_budget(fields: Fields) -> int | None:
    """Most tokens of reasoning; None: no limit."""
    old = fields.integer("thinking_budget", 0, MAX_BUDGET_TOKENS)
    new = fields.integer("thinking_token_budget", -1, MAX_BUDGET_TOKENS)
    if old is not None and new is not None:
        raise BadRequest("Pass 'thinking_token_budget' or 'thinking_budget', not both.", param="thinking_token_budget")
    return None if new == -1 else old if new is None else new


def _nearest(effort: str, model: ServedModel) -> str | None:
    """The effort nearest to a wish that the chat template takes, on the same side of thinking at all; None: none is."""
    at = EFFORTS.index(effort)
    side = [other for other in EFFORTS if (other in _OFF) == (effort in _OFF)]
    nearest = sorted(side, key=lambda other: abs(EFFORTS.index(other) - at))
    return next((other for other in nearest if model.tokenizer.takes("reasoning_effort", other)), None)


def follow_thinking(
    plan: ThinkingPlan, model: ServedModel, prompt_end: str, text: Callable[[], RowText], *, has_grammar: bool
) -> Thinking | None:
    """What a row's grammar constraint must follow of the reasoning; None: nothing.

    Args:
        prompt_end: the end of the rendered prompt.
        text: makes the row's text, or has made it.
        has_grammar: a grammar waits for the reasoning to be over.
    """
    markup, tokenizer = model.markup, model.tokenizer
    if not markup.thinks or markup.think_end is None or markup.closed_by(prompt_end):
        return None
    budget = plan.budget
    if plan.off and not any(tokenizer.knows(name) for name in _SWITCHES):
        budget = 0
    if budget is None and not has_grammar:
        return None
    call = tokenizer.encode_marker(markup.tools.start) if markup.tools is not None else []
    return Thinking(
        text=text(),
        opener=[] if markup.think is None else tokenizer.encode_marker(markup.think[0]),
        closer=tokenizer.encode_marker(markup.think_end),
        # A model that wants to think answers better after an empty block than without one.
        allowed=not plan.off or budget == 0,
        barred=[*model.eos_token_ids, *(call if len(call) == 1 else [])],
        budget=budget,
    )

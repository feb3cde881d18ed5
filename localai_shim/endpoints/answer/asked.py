"""Fields that chat completions and responses share: tools, format, thinking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...prompt.history import Message
from ...prompt.template import Conversation
from ..served import ServedModel
from .format import AnswerFormat
from .plan import AnswerPlan
from .thinking import ThinkingPlan
from .tools import ToolPlan


@dataclass(frozen=True, slots=True)
class Asked:
    """Fields of a request for one message. Requests with the same fields share it, unchanged."""

    tools: ToolPlan
    format: AnswerFormat | None
    thinking: ThinkingPlan
    special: bool
    """The caller's texts may spell special tokens."""

    def conversation(self, messages: list[Message], variables: Mapping[str, object] | None = None) -> Conversation:
        """The messages as they are rendered, with more `variables` for the template."""
        thinking = self.thinking
        given = {**thinking.variables, **(variables or {})}
        return Conversation(thinking.messages(messages), given, self.tools.rendered, self.special)

    def plan(self, model: ServedModel, prompt_end: str, *, continuing: bool = False) -> AnswerPlan:
        """Plan of the answer to a prompt with this end, see `AnswerPlan`."""
        return AnswerPlan(model, self.tools, self.format, self.thinking, prompt_end, continuing=continuing)

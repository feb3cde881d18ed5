"""POST /responses/input_tokens, and POST /responses/compact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from openai.types.responses import CompactedResponse, InputTokenCountResponse

from ...errors import BadRequest
from ...output.answer import TextParser
from ...state.store import Store
from ...types import Prompt, Token
from ..fields import Fields
from ..hosted.mcp.items import known_tools
from ..hosted.mcp.servers import find_servers, list_tools
from ..items.content import seal
from ..items.resources import new_item_id, user_item
from ..request_fields import SERVICE_TIERS, new_id, now, read_generation, read_own
from ..served import ServedModel
from ..turn import Assembler, Turn
from .assembler import response_usage
from .create import PromptPlan, plan_answer, read_plan, read_prompt_fields, render
from .rounds import listed

_ASK = (
    "Summarise our conversation so far, so that it can go on from your summary alone: what was asked for, what was "
    "found out and decided, what was done, and what is still to do. Keep names, numbers and exact values."
)


class _Counted(Assembler[InputTokenCountResponse]):
    """A count, which is known at once."""

    finished = True

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self._tokens = tokens

    def result(self) -> InputTokenCountResponse:
        """The count as the API shows it."""
        return InputTokenCountResponse(input_tokens=self._tokens, object="response.input_tokens")


def prepare_count(body: Mapping[str, object], model: ServedModel, store: Callable[[], Store]) -> Turn:
    """The tokens that a response's prompt would have.

    Raises:
        RequestError: as `responses.prepare`.
    """
    fields = Fields(body)
    fields.string("model")
    fields.string("personality")
    given = read_prompt_fields(fields, model)
    fields.finish()
    plan = _with_listed(read_plan(body, given, model, store, counts=True), model)
    tokens, _ = render(plan, model, 1)
    return Turn(_Counted(len(tokens)))


def _with_listed(plan: PromptPlan, model: ServedModel) -> PromptPlan:
    """The plan with the tools of its MCP servers. They list these now unless the conversation has a list. May block."""
    fields = plan.fields
    tools = fields.asked.tools
    if not tools.servers:
        return plan
    servers, items = find_servers(model.hooks).of_request(), plan.context.items
    known = {entry.label: (entry, known_tools(entry, items)) for entry in tools.servers}
    made = {
        label: list_tools(servers, entry) if given is None else (given, None) for label, (entry, given) in known.items()
    }
    asked = replace(
        fields.asked,
        tools=listed(tools, {label: tools for label, (tools, _) in made.items()}, fields.max_tool_calls),
    )
    failed = {label: error for label, (_, error) in made.items() if error}
    return replace(plan, fields=replace(fields, asked=asked, failed_lists=failed))


def prepare_compaction(body: Mapping[str, object], model: ServedModel, store: Callable[[], Store]) -> Turn:
    """Have the model sum up a conversation.

    Raises:
        RequestError: as `responses.prepare`.
    """
    fields = Fields(body)
    fields.string("model")
    fields.refuse(dict.fromkeys(("tools", "tool_choice"), "A summary calls no tools."))
    fields.choice("service_tier", SERVICE_TIERS)
    generation = read_own(fields, read_generation(fields, model, None, top_logprobs=None), model)
    given = read_prompt_fields(fields, model)
    fields.finish()
    plan = read_plan(body, given, model, store, counts=True)
    if not plan.context.items:
        raise BadRequest.missing("input")
    plan.context.given.append(user_item(_ASK))
    prompt, answer = plan_answer(plan, model, 1, generation.salt)
    assembler = _Compaction(answer.parser(generation.limits, with_tokens=False), prompt)
    return Turn(assembler, answer.requests(prompt, 1, generation, param="input"))


class _Compaction(Assembler[CompactedResponse]):
    """The model's summary, in one item."""

    def __init__(self, parser: TextParser, prompt: Prompt) -> None:
        super().__init__()
        self._parser, self._prompt = parser, prompt
        self._text: list[str] = []

    def collect(self, index: int, token: Token) -> None:
        """Take the next token."""
        delta = self._parser.feed(token)
        self._text.append(delta.text)
        self.finished = delta.finish_reason is not None

    def result(self) -> CompactedResponse:
        item = {"id": new_item_id("compaction"), "type": "compaction", "encrypted_content": seal("".join(self._text))}
        fields = {
            "id": new_id("resp_", 24),
            "object": "response.compaction",
            "created_at": now(),
            "output": [item],
            "usage": response_usage([self._prompt], [self._parser]),
        }
        return CompactedResponse.model_validate(fields)

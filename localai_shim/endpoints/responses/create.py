"""POST /responses.

Shapes follow OpenAI's API reference (https://platform.openai.com/docs/api-reference/responses) and the SDK's types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ...errors import TOO_LONG, BadRequest
from ...prompt.history import Message
from ...prompt.items import Item, item_messages
from ...prompt.parts import MediaReader
from ...prompt.template import Conversation
from ...state.store import Store
from ...types import Json, Prompt, map_texts
from .. import request_fields
from ..answer.format import AnswerFormat, read_answer_format
from ..answer.plan import AnswerPlan, Asked
from ..answer.thinking import EFFORTS, read_thinking
from ..answer.tools import ToolPlan, read_flat_tool_plan
from ..fields import FieldCache, Fields
from ..files import read_whole
from ..hosted.hooks import check_hooks, hooks_for
from ..hosted.items import as_function_items
from ..hosted.mcp.entry import TYPE as MCP
from ..hosted.mcp.entry import has_servers, shown_entry
from ..hosted.mcp.items import Answers, approved_calls, failed_lists, told_failures
from ..hosted.mcp.servers import check_servers
from ..hosted.room import answer_room
from ..hosted.table import shown_choice
from ..items.content import unseal
from ..items.resources import ENCRYPTED, LOGPROBS, as_include
from ..served import ServedModel, make_prompt
from ..token_fields import without_oldest
from ..turn import Turn
from .assembler import ResponseAssembler
from .background import Run
from .context import Context, read_context, read_delivery, read_image, read_input, save_response
from .hosted import Continuation, HostedAssembler
from .mcp import McpAssembler
from .rounds import Rounds

REFUSED = {
    "prompt": "Prompt templates are kept by OpenAI; write the prompt into 'instructions' and 'input'.",
    "moderation": "There is no moderation model in this process.",
    "context_management": "Compact a conversation with responses.compact, or pass truncation='auto'.",
    "access_programs": "It applies to models that OpenAI hosts.",
}
SUMMARIES = ("auto", "concise", "detailed")


_INPUT = ("input", "previous_response_id", "conversation")
"""The input, and what leads to more of it."""
TEXTS = (*_INPUT, "prediction")
DIFFER = (*_INPUT, "metadata", *request_fields.OWN)
"""The fields in which requests differ whose others are read once."""


@dataclass(frozen=True, slots=True)
class PromptFields:
    """Fields of a request except its input that counting tokens needs. Requests that have the same share them."""

    instructions: str | None
    asked: Asked
    truncates: bool
    summary: str | None
    """The kind of summary of its reasoning."""
    echo: dict[str, object]
    """Fields of the response."""
    max_tool_calls: int | None
    """Maximum number of calls of hosted tools."""
    failed_lists: Mapping[str, str] = field(default_factory=dict[str, str])
    """Errors of MCP servers that could not list their tools, by label."""


@dataclass(frozen=True, slots=True)
class _ResponseFields:
    """Fields of a request, without those that differ. Requests with the same ones share them, unchanged."""

    prompt: PromptFields
    echo: dict[str, object]
    """Fields of the response."""
    stream: bool
    background: bool
    kept: bool
    include: frozenset[str]
    logprobs: bool
    token_ids: bool
    generation: request_fields.Generation


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """Plan of a prompt and its answer: all that counting tokens needs."""

    fields: PromptFields
    context: Context
    read_part: MediaReader
    """Reads its images, videos, sounds and files."""


def prepare(body: Mapping[str, object], model: ServedModel, store: Callable[[], Store]) -> Turn:
    """Validate a request body and render its prompt.

    Args:
        store: where responses and conversations are; asked for only where they are needed.

    Raises:
        RequestError: with the field, its value and what to do.
    """
    cache = FieldCache() if has_servers(body) else model.field_cache  # which would keep what they keep secret
    read = cache.get(body, DIFFER, partial(_read, model=model))
    fields = Fields(body)
    generation = request_fields.read_own(fields, read.generation, model)
    plan = read_plan(body, read.prompt, model, store)
    context, background = plan.context, read.background
    tools = plan.fields.asked.tools
    reserve = generation.limits.max_tokens or 1
    first = None if tools.servers else plan_answer(plan, model, reserve, generation.salt)
    # What runs a response in the background stores it, and must not hold on to the client.
    keeps = not background and (read.kept or context.conversation is not None)
    assembler = (McpAssembler if tools.servers else HostedAssembler if tools.hosted else ResponseAssembler)(
        model=model,
        parser=first and first[1].parser(generation.limits, with_tokens=read.logprobs),
        prompt=first and first[0],
        fields={
            **map_texts(read.echo, str),  # which the caller of a response may change
            **_read_own_echo(fields),
            "previous_response_id": context.previous,
            "conversation": {"id": context.conversation} if context.conversation else None,
        },
        logprobs=read.logprobs,
        token_ids=read.token_ids,
        summary=plan.fields.summary is not None,
        encrypted=ENCRYPTED in read.include,
        background=background,
        namespaces=tools.namespaces,
        keep=(lambda response: save_response(store(), context, response, kept=read.kept)) if keeps else None,
    )
    assembler.earlier = context.items
    if generation.agent is None:
        generation = replace(generation, agent=context.agent(assembler.id))
    if isinstance(assembler, HostedAssembler):
        later = _LaterRounds(plan, model, generation, read.logprobs)
        most = plan.fields.max_tool_calls
        rounds = Rounds(tools, context, hooks_for(model), read.include, most, generation, later.make, later.fits)
        if isinstance(assembler, McpAssembler):
            assembler.open(rounds.opening(waits=not background), streams=read.stream or background)
        else:
            assembler.hosting = rounds.hosting()
    works = () if first is None else first[1].requests(first[0], 1, generation, param="input")
    return Turn(assembler, works, read.stream, partial(Run, context) if background else None)


@dataclass(frozen=True, slots=True)
class _LaterRounds:
    """Rounds of a response behind the first one."""

    plan: PromptPlan
    model: ServedModel
    generation: request_fields.Generation
    logprobs: bool

    def make(self, generation: request_fields.Generation, tools: ToolPlan, output: list[Json]) -> Continuation:
        """A round, see `MakeRound`."""
        plan = self._behind(tools, output)
        prompt, answer = plan_answer(plan, self.model, generation.limits.max_tokens or 1, generation.salt)
        works = answer.requests(prompt, 1, generation, param="input")
        return Continuation(prompt, answer.parser(generation.limits, with_tokens=self.logprobs), works)

    def fits(self, tools: ToolPlan, output: list[Json]) -> bool:
        """The context has room for this output, and for an answer behind it; see `Hosting.fits`."""
        length = self.model.context_length
        if length is None:
            return True
        room = answer_room(length, self.generation.limits.max_tokens)
        try:
            tokens, _ = render(self._behind(tools, output), self.model, room)
        except BadRequest as error:
            if error.code != TOO_LONG:
                raise
            return False
        return len(tokens) + room <= length

    def _behind(self, tools: ToolPlan, output: list[Json]) -> PromptPlan:
        """The plan of a round behind this output, with these tools."""
        plan = self.plan
        fields = replace(plan.fields, asked=replace(plan.fields.asked, tools=tools), failed_lists=failed_lists(output))
        return replace(plan, fields=fields, context=replace(plan.context, stored=plan.context.items, given=output))


def _read(body: Mapping[str, object], model: ServedModel) -> _ResponseFields:
    """Read a request's fields, without those that differ."""
    fields = Fields(body)
    fields.string("model")
    stream, background, kept = read_delivery(fields)
    include = as_include(fields.get("include"))
    top_logprobs = fields.integer("top_logprobs", 0, 20) or 0
    logprobs = LOGPROBS in include or top_logprobs > 0
    given = request_fields.read_max_tokens(fields, "max_output_tokens", model)
    generation = request_fields.read_generation(
        fields, model, model.max_new_tokens if given is None else given, top_logprobs=top_logprobs if logprobs else None
    )
    token_ids = fields.boolean("return_token_ids") or False
    prompt = read_prompt_fields(fields, model)
    echo = {
        **prompt.echo,
        **_read_without_effect(fields),
        "background": background,
        "max_output_tokens": given,
        "temperature": generation.sampling.temperature,
        "top_p": generation.sampling.top_p,
        "presence_penalty": generation.sampling.presence_penalty,
        "frequency_penalty": generation.sampling.frequency_penalty,
        "top_logprobs": top_logprobs,
        "store": kept,
    }
    fields.finish(DIFFER)
    return _ResponseFields(prompt, echo, stream, background, kept, include, logprobs, token_ids, generation)


def read_prompt_fields(fields: Fields, model: ServedModel) -> PromptFields:
    """Read the fields that creating a response and counting its tokens have in common, except the input."""
    for name in _INPUT:
        fields.get(name)
    fields.refuse(REFUSED)
    read_image(fields)
    instructions = fields.string("instructions")
    effort, summary = _read_reasoning(fields)
    format, verbosity, text_echo = _read_text(fields)
    variables = request_fields.read_template_variables(fields, model, verbosity)
    thinking = read_thinking(fields, variables, model, effort)
    tools, tool_echo = _read_tools(fields, model)
    most = fields.integer("max_tool_calls", 0, 2**31)
    if most == 0 and tools.later is not None:
        tools = tools.later(True)
    truncation = fields.choice("truncation", ("auto", "disabled")) or "disabled"
    echo = {
        "instructions": instructions,
        "reasoning": {"effort": effort, "summary": summary},
        "text": text_echo,
        "truncation": truncation,
        **tool_echo,
        "max_tool_calls": most,
    }
    asked = Asked(tools, format, thinking, request_fields.read_allow_special_tokens(fields))
    return PromptFields(instructions, asked, truncation == "auto", summary, echo, most)


def read_plan(
    body: Mapping[str, object],
    given: PromptFields,
    model: ServedModel,
    store: Callable[[], Store],
    *,
    counts: bool = False,
) -> PromptPlan:
    """Read the input, and what it continues.

    Args:
        counts: the prompt is counted only, and may have any length.
    """
    check_hooks(given.asked.tools.hosted.values(), model.hooks, special=given.asked.special)
    check_servers(given.asked.tools.servers, model.hooks, special=given.asked.special)
    fields = Fields(body)
    context = read_input(fields, read_context(fields, store), store)
    if not context.items and given.instructions is None:
        raise BadRequest.missing("input")
    if not counts:
        approved_calls(context.items, context.paths, [entry.label for entry in given.asked.tools.servers])
    reader = model.media_reader(partial(read_whole, store), truncates=given.truncates or counts)
    return PromptPlan(given, context, reader)


def plan_answer(plan: PromptPlan, model: ServedModel, reserve: int, salt: str | None) -> tuple[Prompt, AnswerPlan]:
    """The prompt, see `render`, and what the answer to it will look like."""
    tokens, conversation = render(plan, model, reserve)
    boundaries = model.tokenizer.boundaries(tokens, conversation)
    prompt = make_prompt(tokens, conversation.messages, model, boundaries=boundaries, salt=salt)
    return prompt, AnswerPlan(model, plan.fields.asked, model.tokenizer.prompt_end(tokens))


def render(plan: PromptPlan, model: ServedModel, reserve: int) -> tuple[list[int], Conversation]:
    """The prompt's tokens, and what they were rendered from.

    Args:
        reserve: tokens of the context to leave free; with truncation, the oldest items are left out for it.
    """
    items, limit = plan.context.items, model.context_length
    made = _rendered(plan, model, items)
    if not plan.fields.truncates or limit is None or len(made[0]) + reserve <= limit:
        return made
    later = range(1, len(items))
    starts = [i for i in later if items[i]["type"] == "message" and items[i]["role"] == "user"] or list(later)
    shorter = without_oldest(
        starts,
        lambda start: _rendered(plan, model, _without_oldest(items, start)),
        lambda tried: len(tried[0]) + reserve <= limit,
    )
    return shorter or made


def _rendered(plan: PromptPlan, model: ServedModel, items: Sequence[Item]) -> tuple[list[int], Conversation]:
    """The same for some of the items."""
    developer = model.tokenizer.knows_developer
    reads = model.tokenizer.media_kinds
    messages = item_messages(
        as_function_items(items, Answers(items, reads), reads=reads),
        plan.fields.instructions,
        unseal,
        paths=plan.context.paths,
        knows_developer=developer,
        read_part=plan.read_part,
    )
    plan.read_part.check_read()
    told = told_failures(plan.fields.failed_lists)
    messages = _with_told(model.with_system(messages), told)
    conversation = plan.fields.asked.conversation(messages)
    try:
        return model.tokenizer.render(conversation), conversation
    except BadRequest as error:
        if error.param != "messages":
            raise
        raise BadRequest(error.message, param="input", code=error.code) from error.__cause__


def _with_told(messages: list[Message], told: str | None) -> list[Message]:
    """Messages whose system message also says this."""
    if told is None:
        return messages
    first = messages[0]
    if first["role"] in ("system", "developer") and isinstance(first["content"], str):
        return [{**first, "content": f"{first['content']}\n\n{told}"}, *messages[1:]]
    return [{"role": "system", "content": told}, *messages]


def _without_oldest(items: Sequence[Item], start: int) -> list[Item]:
    """Items without those before `start`, save for system messages; results of calls that go, go too."""
    head = [item for item in items[:start] if item["type"] == "message" and item["role"] in ("system", "developer")]
    gone = {item["call_id"] for item in items[:start] if item["type"] in ("function_call", "custom_tool_call")}
    results = ("function_call_output", "custom_tool_call_output")
    return head + [item for item in items[start:] if not (item["type"] in results and item["call_id"] in gone)]


# -- fields ------------------------------------------------------------------------------------------------------


def _read_reasoning(fields: Fields) -> tuple[str | None, str | None]:
    """Read the effort of reasoning, and the kind of summary of it."""
    with fields.inner("reasoning") as inner:
        effort = inner.choice("effort", EFFORTS)
        if effort is not None and fields.has("reasoning_effort"):
            raise BadRequest("Pass 'reasoning.effort' or 'reasoning_effort', not both.", param="reasoning.effort")
        old = inner.choice("generate_summary", SUMMARIES)  # deprecated
        summary = inner.choice("summary", SUMMARIES) or old
        inner.choice("context", ("auto", "current_turn", "all_turns"))  # the template knows what to read again
        inner.string("mode")  # any name, as documented
    return effort or fields.choice("reasoning_effort", EFFORTS), summary


def _read_text(fields: Fields) -> tuple[AnswerFormat | None, str | None, dict[str, object]]:
    """`text`: the format of the answer, its verbosity, and what the response says of both.

    The SDK's `responses.parse` also has a separate argument `verbosity`.
    """
    with fields.inner("text") as inner:
        given, verbosity = inner.get("format"), inner.choice("verbosity", request_fields.VERBOSITIES)
    format = read_answer_format(fields, given, "text.format")
    if verbosity is not None and fields.has("verbosity"):
        raise BadRequest("Pass 'text.verbosity' or 'verbosity', not both.", param="text.verbosity")
    verbosity = verbosity or fields.choice("verbosity", request_fields.VERBOSITIES)
    return format, verbosity, {"format": _echoed_format(given), "verbosity": verbosity or "medium"}


def _echoed_format(given: object) -> dict[str, object]:
    """`text.format` that was read, as the response shows it."""
    if not isinstance(given, Mapping):
        return {"type": "text"}
    if given["type"] != "json_schema":
        return {**given}
    return {**given, "description": given.get("description"), "strict": given.get("strict") or False}


def _read_tools(fields: Fields, model: ServedModel) -> tuple[ToolPlan, dict[str, object]]:
    """The tools, and what the response says of them.

    Functions are strict where they do not say otherwise, as documented, and where the model's format and their schema
    allow it.
    """
    plan = read_flat_tool_plan(fields, model)
    return plan, {
        "tools": _echoed_tools(fields.get("tools"), plan.strict),
        "tool_choice": shown_choice(fields.get("tool_choice", "auto")),
        "parallel_tool_calls": fields.get("parallel_tool_calls", True),
    }


def _echoed_tools(tools: object, strict: bool) -> list[dict[str, object]]:
    """Tools that were read, as the response shows them.

    Args:
        strict: functions that do not say whether they are strict are.
    """
    shown: list[dict[str, object]] = []
    for tool in tools if isinstance(tools, list | tuple) else ():
        if tool["type"] == MCP:
            tool = shown_entry(tool)
        if "async_" in tool:  # as the SDK writes `async` of its own objects
            tool = {"async": tool["async_"], **{name: value for name, value in tool.items() if name != "async_"}}
        if tool["type"] == "namespace":
            tool = {**tool, "tools": _echoed_tools(tool["tools"], strict)}
        elif tool["type"] == "function":
            own = tool.get("strict")
            tool = {"description": None, "parameters": None, **tool, "strict": strict if own is None else own}
        shown.append(tool)
    return shown


def _read_without_effect(fields: Fields) -> dict[str, object]:
    """Fields that cannot change the answer of a local model, and are echoed."""
    fields.choice("service_tier", request_fields.SERVICE_TIERS)
    retention = fields.string("prompt_cache_retention")
    return {
        "service_tier": "default",
        "prompt_cache_retention": retention and retention.replace("-", "_"),  # it once was written "in-memory"
    }


def _read_own_echo(fields: Fields) -> dict[str, object]:
    """Fields without an effect that differ from request to request, and are echoed."""
    names = ("user", "safety_identifier", "prompt_cache_key")
    own = {name: fields.get(name) for name in names if fields.has(name)}
    return {"metadata": request_fields.read_metadata(fields) or {}, **own}

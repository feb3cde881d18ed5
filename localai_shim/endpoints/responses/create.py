"""POST /responses.

Shapes follow OpenAI's API reference (https://platform.openai.com/docs/api-reference/responses) and the SDK's types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import BadRequest
from ...prompt.items import item_messages
from ...prompt.messages import template_messages
from ...types import GenerationRequest, Prompt
from .. import request_fields as common
from ..answer.format import GUIDED, AnswerFormat, read_answer_format
from ..answer.plan import AnswerPlan
from ..answer.thinking import ThinkingPlan, read_thinking
from ..answer.tools import ToolPlan, read_tool_plan
from ..fields import Fields
from ..items.includes import ENCRYPTED, LOGPROBS, read_include
from ..items.reasoning import unseal
from ..request_fields import ServedModel
from .assembler import ResponseAssembler
from .context import Context, keeper, read_context, read_input
from .namespaces import FlatTools, flatten
from .tools import flat_paths, nested_choice, nested_format, nested_tools

if TYPE_CHECKING:
    from ...state.store import Store

_REFUSED = {
    "prompt": "Prompt templates are kept by OpenAI; write the prompt into 'instructions' and 'input'.",
    "moderation": "There is no moderation model in this process.",
    "context_management": "Compact a conversation with responses.compact, or pass truncation='auto'.",
    "access_programs": "It concerns models that OpenAI hosts.",
}
SUMMARIES = ("auto", "concise", "detailed")


@dataclass(slots=True)
class ResponseCall:
    """A validated request, and the assembler of its answer."""

    requests: list[GenerationRequest]
    stream: bool
    assembler: ResponseAssembler
    background: bool
    context: Context


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request says of the answer; counting tokens needs no more."""

    context: Context
    instructions: str | None
    thinking: ThinkingPlan
    tools: ToolPlan
    format: AnswerFormat | None
    truncates: bool
    special: bool
    """The caller's texts may spell special tokens."""
    echo: dict[str, Any]
    """Fields of the response."""
    namespaces: dict[str, tuple[str, str]]
    """See `FlatTools.names`."""


def prepare(body: Mapping[str, Any], model: ServedModel, store: Callable[[], Store]) -> ResponseCall:
    """Validate a request body and render its prompt.

    Args:
        store: where responses and conversations are; asked for only where they are needed.

    Raises:
        RequestError: with the field, its value and what to do.
    """
    fields = Fields(body)
    with flat_paths(effort=fields.has("reasoning")):
        return _prepare(fields, model, store)


def _prepare(fields: Fields, model: ServedModel, store: Callable[[], Store]) -> ResponseCall:
    fields.string("model")
    stream, background, kept = _read_manner(fields)
    include = _read_include(fields)
    top_logprobs = fields.integer("top_logprobs", 0, 20) or 0
    logprobs = LOGPROBS in include or top_logprobs > 0
    sampling = common.read_sampling(fields, model, top_logprobs=top_logprobs if logprobs else None)
    limits = common.read_limits(fields, _read_max_tokens(fields, model), model)
    salt = common.read_cache_salt(fields)
    plan = read_plan(fields, model, store)
    echo = {
        **plan.echo,
        **_read_without_effect(fields),
        "background": background,
        "max_output_tokens": fields.get("max_output_tokens"),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_logprobs": top_logprobs,
        "store": kept,
    }
    fields.finish()
    tokens, rendered = render(plan, model, limits.max_tokens or 1)
    prompt = Prompt(tokens, boundaries=model.tokenizer.boundaries(tokens, *rendered), salt=salt)
    answer = AnswerPlan(model, plan.tools, plan.format, plan.thinking, model.tokenizer.prompt_end(tokens))
    # One in the background is kept by what runs it, which must not hold on to the client.
    keeps = not background and (kept or plan.context.conversation is not None)
    assembler = ResponseAssembler(
        model=model,
        parser=answer.parser(limits, with_tokens=logprobs),
        prompt=prompt,
        fields=echo,
        logprobs=logprobs,
        summary=bool(echo["reasoning"].get("summary")),
        encrypted=ENCRYPTED in include,
        background=background,
        namespaces=plan.namespaces,
        keep=keeper(plan.context, store, kept=kept) if keeps else None,
    )
    requests = common.make_requests(
        prompt,
        1,
        answer.sampling(sampling),
        limits,
        model,
        param="input",
        text=answer.text,
        constraint=answer.constraint,
    )
    return ResponseCall(requests, stream, assembler, background, plan.context)


def read_plan(fields: Fields, model: ServedModel, store: Callable[[], Store]) -> Plan:
    """What creating a response and counting its tokens have in common."""
    fields.refuse(_REFUSED)
    _read_image(fields)
    instructions = fields.string("instructions")
    reasoning = _read_reasoning(fields)
    text = fields.mapping("text") or {}
    format = _read_format(fields, text)
    verbosity = _read_verbosity(fields, text)
    variables = common.read_template_variables(
        Fields({"chat_template_kwargs": fields.get("chat_template_kwargs"), "verbosity": verbosity}), model
    )
    names = ("reasoning_effort", "enable_thinking", "thinking_budget", "thinking_token_budget")
    wanted = {name: fields.get(name) for name in names}
    if reasoning.get("effort") is not None:
        wanted["reasoning_effort"] = reasoning["effort"]
    thinking = read_thinking(Fields(wanted), variables, model)
    tools, tool_echo, namespaces = _read_tools(fields, model)
    truncation = fields.choice("truncation", ("auto", "disabled")) or "disabled"
    context = read_input(fields, read_context(fields, store), store)
    echo = {
        "instructions": instructions,
        "reasoning": {name: reasoning.get(name) for name in ("effort", "summary")},
        "text": {"format": text.get("format") or {"type": "text"}, "verbosity": verbosity or "medium"},
        "truncation": truncation,
        "previous_response_id": context.previous,
        "conversation": {"id": context.conversation} if context.conversation else None,
        **tool_echo,
    }
    if not context.items and instructions is None:
        raise BadRequest.missing("input")
    special = common.read_allow_special_tokens(fields)
    return Plan(context, instructions, thinking, tools, format, truncation == "auto", special, echo, namespaces)


def render(plan: Plan, model: ServedModel, room: int) -> tuple[list[int], tuple[Any, ...]]:
    """The prompt's tokens, and what they were rendered from.

    Args:
        room: tokens to leave in the context, where the oldest items may go for it.
    """
    context = plan.context

    def attempt(items: Sequence[dict[str, Any]], given: int) -> tuple[list[int], tuple[Any, ...]]:
        messages = item_messages(items, plan.instructions, unseal, given)
        checked = template_messages(messages, knows_developer=model.tokenizer.knows_developer)
        rendered = (checked, plan.thinking.variables, plan.tools.rendered, plan.special)
        return model.tokenizer.render(*rendered), rendered

    made = attempt(context.items, len(context.stored))
    most = model.context_length
    if not plan.truncates or most is None or len(made[0]) + room <= most:
        return made
    items = context.items
    starts = [i for i in range(1, len(items)) if _begins(items[i])] or list(range(1, len(items)))
    low, high = 0, len(starts)
    while low < high:  # the fewest items that have to go
        middle = (low + high) // 2
        tried = attempt(_from(items, starts[middle]), 0)
        if len(tried[0]) + room <= most:
            made, high = tried, middle
        else:
            low = middle + 1
    return made


def _begins(item: dict[str, Any]) -> bool:
    return bool(item["type"] == "message" and item["role"] == "user")


def _from(items: Sequence[dict[str, Any]], start: int) -> list[dict[str, Any]]:
    """Items without the oldest ones; system messages stay, results whose calls go do not."""
    head = [item for item in items[:start] if item["type"] == "message" and item["role"] in ("system", "developer")]
    gone = {item["call_id"] for item in items[:start] if item["type"] in ("function_call", "custom_tool_call")}
    results = ("function_call_output", "custom_tool_call_output")
    return head + [item for item in items[start:] if not (item["type"] in results and item["call_id"] in gone)]


# -- fields ------------------------------------------------------------------------------------------------------


def _read_manner(fields: Fields) -> tuple[bool, bool, bool]:
    """Whether the response is streamed, runs in the background, and is stored."""
    stream, background = fields.boolean("stream") or False, fields.boolean("background") or False
    kept = fields.boolean("store")
    if background and kept is False:
        raise BadRequest(
            "Invalid value for 'store': a response in the background has to be stored to be found again.",
            param="store",
            code="invalid_value",
        )
    _read_background_options(fields, waits=background and not stream)
    options = fields.mapping("stream_options")
    if options is not None and not stream:
        raise BadRequest(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )
    inner = Fields({f"stream_options.{key}": value for key, value in (options or {}).items()})
    inner.boolean("stream_options.include_obfuscation")  # nothing travels that could be observed
    inner.finish()
    return stream, background, kept is not False


def _read_background_options(fields: Fields, *, waits: bool) -> None:
    """`background_options`: the answer comes as soon as it can, which is within any window."""
    options = fields.mapping("background_options") or {}
    inner = Fields({f"background_options.{key}": value for key, value in options.items()})
    window = inner.choice("background_options.completion_window", ("soonest", "2h", "8h"))
    if window not in (None, "soonest") and not waits:
        raise BadRequest(
            f"Invalid value: '{window}'. A window needs 'background' and no 'stream'.",
            param="background_options.completion_window",
            code="invalid_value",
        )
    inner.string("background_options.continuation_id")
    inner.finish()


def _read_image(fields: Fields) -> None:
    """`image`: how OpenAI may shrink the images of a conversation; here nothing does."""
    options = fields.mapping("image") or {}
    inner = Fields({f"image.{key}": value for key, value in options.items()})
    path = "image.context_compression"
    if inner.choice(path, ("auto", "enabled", "disabled")) == "enabled":  # which demands it
        raise BadRequest("Images are not compressed here; pass 'auto'.", param=path, code="unsupported_value")
    inner.finish()


def _read_include(fields: Fields) -> frozenset[str]:
    value = fields.get("include")
    if isinstance(value, str):  # which a url may have
        raise BadRequest.wrong_type("include", "an array of strings", value)
    return read_include({"include": value})


def _read_max_tokens(fields: Fields, model: ServedModel) -> int | None:
    given = common.read_max_tokens(fields, "max_output_tokens", model)
    default = model.generation_defaults.get("max_new_tokens")
    return default if given is None and isinstance(default, int) and default > 0 else given


def _read_reasoning(fields: Fields) -> dict[str, Any]:
    value = fields.mapping("reasoning") or {}
    inner = Fields({f"reasoning.{key}": given for key, given in value.items()})
    effort = inner.get("reasoning.effort")
    if effort is not None and fields.has("reasoning_effort"):
        raise BadRequest("Pass 'reasoning.effort' or 'reasoning_effort', not both.", param="reasoning.effort")
    old = inner.choice("reasoning.generate_summary", SUMMARIES)  # deprecated
    summary = inner.choice("reasoning.summary", SUMMARIES) or old
    inner.choice("reasoning.context", ("auto", "current_turn", "all_turns"))  # the template knows what to read again
    inner.string("reasoning.mode")  # any name, as documented
    inner.finish()
    return {"effort": effort, "summary": summary}


def _read_format(fields: Fields, text: dict[str, Any]) -> AnswerFormat | None:
    inner = Fields({f"text.{key}": value for key, value in text.items()})
    inner.get("text.format"), inner.get("text.verbosity")
    inner.finish()
    guided = {name: fields.get(name) for name in (*GUIDED, "structured_outputs")}
    given = text.get("format")
    format = read_answer_format(Fields({"response_format": nested_format(given), **guided}))
    if given is not None and given["type"] == "json_schema" and given.get("schema") is None:
        raise BadRequest.missing("text.format.schema")
    return format


def _read_verbosity(fields: Fields, text: dict[str, Any]) -> Any:
    """`text.verbosity`; the SDK's `responses.parse` also has it as an argument of its own."""
    own, inner = fields.get("verbosity"), text.get("verbosity")
    if own is not None and inner is not None:
        raise BadRequest("Pass 'text.verbosity' or 'verbosity', not both.", param="text.verbosity")
    return inner if own is None else own


def _read_tools(fields: Fields, model: ServedModel) -> tuple[ToolPlan, dict[str, Any], dict[str, tuple[str, str]]]:
    """The tools, what the response says of them, and those of namespaces by the names that the model knows.

    Functions are strict where they do not say otherwise, as documented, and where the model's format and their schema
    allow it.
    """
    tools, choice, parallel = (fields.get(name) for name in ("tools", "tool_choice", "parallel_tool_calls"))
    fields.boolean("parallel_tool_calls")
    fields.integer("max_tool_calls", 0, 2**31)  # of hosted tools, of which there are none
    echo = {
        "tools": [],
        "tool_choice": "auto" if choice is None else choice,
        "parallel_tool_calls": parallel is not False,
        "max_tool_calls": fields.get("max_tool_calls"),
    }
    if tools is None or tools == []:
        if choice is not None and choice not in ("auto", "none"):
            read_tool_plan(Fields({"tool_choice": nested_choice(choice)}), model)
        return ToolPlan(), echo, {}
    if not isinstance(tools, list | tuple):
        raise BadRequest.wrong_type("tools", "an array of objects", tools)

    flat = flatten(tools)
    try:
        plan, strict = _plan_tools(flat, choice, parallel, model)
    except BadRequest as error:
        raise flat.placed(error) from error.__cause__
    echo["tools"] = [_told_tool(tool, strict) for tool in tools]
    return plan, echo, flat.names


def _plan_tools(flat: FlatTools, choice: Any, parallel: Any, model: ServedModel) -> tuple[ToolPlan, bool]:
    """The plan, and whether functions that do not say so are strict."""

    def attempt(strict: bool) -> ToolPlan:
        nested = {"tools": nested_tools(flat.tools, strict=strict), "tool_choice": nested_choice(flat.choice(choice))}
        plan = read_tool_plan(Fields({**nested, "parallel_tool_calls": parallel}), model)
        if strict and plan.held and plan.grammar is not None:
            plan.grammar("required" if plan.forced else "auto")
        return plan

    undecided = any(
        isinstance(tool, dict) and tool.get("type") == "function" and tool.get("strict") is None for tool in flat.tools
    )
    try:
        return attempt(undecided), undecided
    except BadRequest:
        if not undecided:
            raise
    return attempt(False), False


def _told_tool(tool: dict[str, Any], strict: bool) -> dict[str, Any]:
    if tool["type"] == "namespace":
        return {**tool, "tools": [_told_tool(inner, strict) for inner in tool["tools"]]}
    if tool["type"] != "function":
        return tool
    said = strict if tool.get("strict") is None else tool["strict"]
    return {**tool, "parameters": tool.get("parameters"), "strict": said}


def _read_without_effect(fields: Fields) -> dict[str, Any]:
    """Fields that cannot change the answer of a local model, and are echoed."""
    common.read_accepted(fields)
    fields.choice("service_tier", common.SERVICE_TIERS)
    names = ("user", "safety_identifier", "prompt_cache_key")
    retention = fields.get("prompt_cache_retention")
    return {
        "metadata": common.read_metadata(fields) or {},
        "service_tier": "default",
        "prompt_cache_retention": retention and retention.replace("-", "_"),  # it once was written "in-memory"
        **{name: fields.get(name) for name in names if fields.has(name)},
    }

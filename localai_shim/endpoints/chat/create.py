"""POST /chat/completions.

Shapes follow OpenAI's API reference (https://platform.openai.com/docs/api-reference/chat) and the SDK's types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import BadRequest
from ...prompt.messages import template_messages
from ...types import Prompt
from .. import request_fields as common
from ..answer.format import read_answer_format
from ..answer.plan import AnswerPlan
from ..answer.thinking import EFFORTS, read_thinking
from ..answer.tools import read_tool_plan
from ..extras import read_extras
from ..fields import Fields
from ..prepared import Prepared
from ..request_fields import ServedModel
from ..token_fields import read_truncation, truncated
from .assembler import ChatAssembler

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion

    from ...state.store import Store

_REFUSED = {
    "audio": "Local text models do not speak.",
    "moderation": "There is no moderation model in this process.",
    "web_search_options": "Web search is hosted by OpenAI; this client never uses the network.",
}


def prepare(body: Mapping[str, Any], model: ServedModel, store: Callable[[], Store]) -> Prepared:
    """Validate a request body and render its prompt.

    Raises:
        BadRequest: with the field, its value and what to do.
    """
    fields = Fields(body)
    fields.string("model")
    fields.refuse(_REFUSED)
    messages = template_messages(fields.require("messages"), knows_developer=model.tokenizer.knows_developer)
    stream = fields.boolean("stream") or False
    options = common.read_stream_options(fields, stream)
    n = fields.integer("n", 1, 128) or 1
    logprobs, top_logprobs = _read_logprobs(fields)
    sampling = common.read_sampling(fields, model, top_logprobs=top_logprobs if logprobs else None)
    limits = common.read_limits(fields, _read_max_tokens(fields, model), model)
    variables = common.read_template_variables(fields, model, fields.choice("verbosity", common.VERBOSITIES))
    thinking = read_thinking(fields, variables, model, fields.choice("reasoning_effort", EFFORTS))
    tools = read_tool_plan(fields, model)
    format = read_answer_format(fields)
    metadata = _read_without_effect(fields)
    keep = _keeper(fields.require("messages"), store) if fields.boolean("store") else None
    salt, special = common.read_cache_salt(fields), common.read_allow_special_tokens(fields)
    reasoning = fields.boolean("include_reasoning") is not False
    extras = read_extras(fields, stream, continuous_usage=options.continuous_usage, reasoning=reasoning)
    truncation = read_truncation(fields)
    generation_prompt, continuing = _read_ending(fields, model)
    fields.finish()
    variables = {**thinking.variables, "continue_final_message": True} if continuing else thinking.variables
    rendered = (messages, variables, tools.rendered, special)
    whole = model.tokenizer.render(*rendered, generation_prompt=generation_prompt)
    tokens = truncated(whole, truncation, model.context_length, limits.max_tokens)
    boundaries = model.tokenizer.boundaries(tokens, *rendered) if tokens is whole else ()
    prompt = Prompt(tokens, boundaries=boundaries, salt=salt, top_logprobs=extras.prompt_logprobs)
    end = _open_end(tokens, model) if continuing else model.tokenizer.prompt_end(tokens)
    answer = AnswerPlan(model, tools, format, thinking, end, continuing=continuing)
    assembler = ChatAssembler(
        model=model,
        parsers=[answer.parser(limits, with_tokens=logprobs) for _ in range(n)],
        prompt=prompt,
        logprobs=logprobs,
        include_usage=options.include_usage,
        metadata=metadata,
        legacy=tools.legacy,
        keep=keep,
        extras=extras,
    )
    requests = common.make_requests(
        prompt,
        n,
        answer.sampling(sampling),
        limits,
        model,
        param="messages",
        text=answer.text,
        constraint=answer.constraint,
    )
    return Prepared(assembler, requests, stream)


def _keeper(messages: list[Any], store: Callable[[], Store]) -> Callable[[ChatCompletion], None]:
    """What stores a completion, with the messages that it answers."""

    def keep(completion: ChatCompletion) -> None:
        from .stored import save_completion

        save_completion(store(), completion.to_dict(mode="json"), messages)

    return keep


def _read_logprobs(fields: Fields) -> tuple[bool, int]:
    logprobs = fields.boolean("logprobs") or False
    top = fields.integer("top_logprobs", 0, 20)
    if top is not None and not logprobs:
        raise BadRequest(
            "Invalid value for 'top_logprobs': 'logprobs' must be true when 'top_logprobs' is given.",
            param="top_logprobs",
            code="invalid_value",
        )
    return logprobs, top or 0


def _read_max_tokens(fields: Fields, model: ServedModel) -> int | None:
    if fields.has("max_tokens") and fields.has("max_completion_tokens"):
        raise BadRequest(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.", param="max_tokens"
        )
    old = common.read_max_tokens(fields, "max_tokens", model)
    new = common.read_max_tokens(fields, "max_completion_tokens", model)
    given = old if new is None else new
    default = model.generation_defaults.get("max_new_tokens")
    return default if given is None and isinstance(default, int) and default > 0 else given


def _read_ending(fields: Fields, model: ServedModel) -> tuple[bool, bool]:
    """vLLM's `add_generation_prompt` and `continue_final_message`: whether the prompt ends with what opens a turn, and
    whether it ends amid its last message.
    """
    adds, continues = fields.boolean("add_generation_prompt"), fields.boolean("continue_final_message") or False
    if continues and adds:
        raise BadRequest(
            "'continue_final_message' and 'add_generation_prompt' cannot both be true: an answer goes on with the last "
            "message, or it is a message of its own.",
            param="continue_final_message",
            code="invalid_value",
        )
    if continues and model.tokenizer.has_program:
        raise BadRequest.unsupported(
            "continue_final_message", "This model's chat template cannot leave a message open."
        )
    return not continues and adds is not False, continues


def _open_end(tokens: list[int], model: ServedModel) -> str:
    """The end of a prompt whose last message is open: what opened its reasoning, if that is where it ends."""
    text = model.tokenizer.decode(tokens)
    think = model.markup.think
    if think is not None and text.rfind(think[0]) > text.rfind(think[1]):
        return think[0]
    return text[-1:]


def _read_without_effect(fields: Fields) -> dict[str, str] | None:
    """Fields that cannot change the answer of a local model; returns the metadata to echo."""
    common.read_accepted(fields)
    fields.choice("service_tier", common.SERVICE_TIERS)
    fields.mapping("prediction")  # speeds up what OpenAI serves; the answer is the same without
    _check_modalities(fields.get("modalities", ["text"]))
    return common.read_metadata(fields)


def _check_modalities(modalities: Any) -> None:
    if not isinstance(modalities, list | tuple):
        raise BadRequest.wrong_type("modalities", "an array of strings", modalities)
    if "audio" in modalities:
        raise BadRequest.unsupported("modalities", "Local text models do not speak; leave it out or pass ['text'].")
    if list(modalities) != ["text"]:
        raise BadRequest("Invalid value for 'modalities': expected ['text'].", param="modalities", code="invalid_value")

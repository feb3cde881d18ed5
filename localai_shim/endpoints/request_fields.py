"""Fields that the endpoints share which run a model: sampling, limits, requests for rows, and ids."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from secrets import randbits

from ..errors import BadRequest
from ..output.channels import ChannelSplitter
from ..output.prediction import Prediction
from ..output.stop import RowText, StopStrings, TokenRules
from ..prompt.messages import check_texts, encodable
from ..types import GenerationRequest, GrammarConstraint, Prompt, SamplingParams
from .fields import Fields, as_number, as_strings
from .served import ServedModel
from .token_fields import read_bad_words, read_prediction, read_token_ids

SEED_BITS = 63
_CHOICE_STRIDE = 0x9E3779B97F4A7C15  # spreads the seeds of one request's choices
_UNLIMITED = 2**31  # output tokens
MAX_AGENT_NAME = 128  # characters

VERBOSITIES = ("low", "medium", "high")
OWN = ("seed", "user", "safety_identifier", "prompt_cache_key", "cache_salt", "prediction")
"""Fields that programs give another value in each request: `read_own` reads them, and no `FieldCache` keeps them."""
SERVICE_TIERS = ("auto", "default", "flex", "scale", "priority", "fast", "ultrafast")


def read_accepted(fields: Fields) -> None:
    """Check the types of fields that are accepted without effect."""
    fields.choice("prompt_cache_retention", ("in_memory", "in-memory", "24h"))
    if (fields.mapping("prompt_cache_options") or {}).get("prewarm"):
        raise BadRequest.unsupported_value(
            "prompt_cache_options.prewarm",
            "A request without an answer, which only fills the prompt cache, is not supported: leave it out, and ask "
            "for an answer of one token.",
        )


def read_allow_special_tokens(fields: Fields) -> bool:
    """True if special tokens that the caller's texts spell become such tokens; they are text otherwise."""
    return fields.boolean("allow_special_tokens") or False


def read_priority(fields: Fields) -> int:
    """vLLM's `priority`: lower ones are served first."""
    return fields.integer("priority") or 0


MAX_TOP_K = 2**31  # more than any vocabulary


def read_sampling(fields: Fields, model: ServedModel, *, top_logprobs: int | None) -> SamplingParams:
    """The sampling fields; absent ones come from the model's generation_config.json, else from OpenAI's defaults."""
    defaults = model.generation_defaults
    if defaults.get("do_sample") is False:
        defaults = {"repetition_penalty": defaults.get("repetition_penalty"), "temperature": 0.0}

    def default(name: str, low: float, high: float, otherwise: float) -> float:
        """A number of the file, which may have any."""
        value = defaults.get(name)
        if not isinstance(value, int | float) or value != value:
            return otherwise
        return float(min(max(value, low), high))

    def number(name: str, low: float, high: float, otherwise: float) -> float:
        value = fields.number(name, low, high)
        return default(name, low, high, otherwise) if value is None else value

    def penalty(name: str) -> float:
        value, own = fields.number(name, -2, 2), model.request_defaults.get(name)
        return value if value is not None else own if isinstance(own, float) else 0.0

    top_k = fields.integer("top_k", -1)
    return SamplingParams(
        temperature=number("temperature", 0, 2, 1.0),
        top_p=number("top_p", 0, 1, 1.0),
        top_k=max(0, int(default("top_k", -1, MAX_TOP_K, 0)) if top_k is None else top_k),
        min_p=number("min_p", 0, 1, 0.0),
        repetition_penalty=number("repetition_penalty", 1e-3, 100, 1.0) or 1.0,
        presence_penalty=penalty("presence_penalty"),
        frequency_penalty=penalty("frequency_penalty"),
        logit_bias=_logit_bias(fields, model),
        allowed_token_ids=read_token_ids(fields, "allowed_token_ids", model.tokenizer, empty=False),
        bad_words=read_bad_words(fields, model.tokenizer),
        top_logprobs=top_logprobs,
    )


def new_seed() -> int:
    """A random seed, for a request that has none."""
    return randbits(SEED_BITS)


def _logit_bias(fields: Fields, model: ServedModel) -> dict[int, float]:
    out: dict[int, float] = {}
    for key, value in (fields.mapping("logit_bias") or {}).items():
        path, digits = f"logit_bias.{key}", str(key)  # integers come as keys, too
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
            raise BadRequest.invalid(
                "logit_bias", f"Invalid key in 'logit_bias': {key}. You should only be submitting integers."
            )
        token_id = int(digits)
        if token_id >= model.tokenizer.vocabulary_size and not model.takes_any_token:
            raise BadRequest.invalid(
                "logit_bias",
                f"Invalid key in 'logit_bias': {token_id} is not a token of this model, whose ids go from 0 to "
                f"{model.tokenizer.vocabulary_size - 1}.",
            )
        bias = as_number(path, value, -100, 100)
        if bias is not None and token_id < model.tokenizer.vocabulary_size:
            out[token_id] = bias
    return out


def read_template_variables(fields: Fields, model: ServedModel, verbosity: str | None) -> dict[str, object]:
    """vLLM's `chat_template_kwargs`, and `verbosity`, which goes to the templates that take it."""
    variables = fields.mapping("chat_template_kwargs") or {}
    model.tokenizer.check_variables(list(variables), "chat_template_kwargs")
    for name, value in variables.items():
        check_texts(value, f"chat_template_kwargs.{name}")
    if verbosity in ("low", "high") and model.tokenizer.takes("verbosity", verbosity):
        variables.setdefault("verbosity", verbosity)
    return variables


def read_stop(fields: Fields, model: ServedModel) -> list[str]:
    """`stop`: a string or up to four; the model's own ones by default."""
    value = fields.get("stop")
    if value is None:
        own = model.request_defaults.get("stop")
        return list(own) if isinstance(own, list) else []
    given = [value] if isinstance(value, str) else value
    strings = as_strings("stop", given, "one of a string or array of strings", most=4)
    if "" in strings:
        raise BadRequest.empty_string(f"stop[{strings.index('')}]")
    return strings


def stream_options(fields: Fields, stream: bool) -> Fields:
    """The fields of `stream_options`, which their reader must finish."""
    if fields.has("stream_options") and not stream:
        raise BadRequest(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )
    options = fields.inner("stream_options")
    options.boolean("include_obfuscation")  # nothing travels that could be observed
    return options


def read_max_tokens(fields: Fields, name: str, model: ServedModel, *, least: int = 1) -> int | None:
    """A token limit: no more than the model could ever give."""
    value = fields.integer(name, least)
    if value is not None and model.context_length is not None and value > model.context_length:
        raise BadRequest.invalid(
            name,
            f"{name} is too large: {value}. This model supports at most {model.context_length} tokens of prompt and "
            f"completion together, whereas you provided {value}.",
        )
    return value


def read_metadata(fields: Fields) -> dict[str, str] | None:
    """`metadata`: at most 16 strings of at most 512 characters, under keys of at most 64."""
    metadata = fields.mapping("metadata")
    if metadata is None:
        return None
    if len(metadata) > 16:
        why = "too many properties. Expected an object with at most 16 properties, but got an object with"
        raise BadRequest.refused("metadata", f"{why} {len(metadata)} properties instead", "object_above_max_properties")
    read: dict[str, str] = {}
    for key, value in metadata.items():
        if not isinstance(key, str):
            raise BadRequest.wrong_type("metadata", "an object with strings as keys", key)
        if not isinstance(value, str):
            raise BadRequest.wrong_type(f"metadata.{key}", "a string", value)
        read[encodable(key, "metadata")] = encodable(value, f"metadata.{key}")
        for what, text, most in (("key", key, 64), ("value", value, 512)):
            if len(text) > most:
                raise BadRequest.long_string("metadata", most, len(text), f"{what} of '{key[:64]}' is")
    return read


@dataclass(frozen=True, slots=True)
class Limits:
    """Ends of the answers of one request, and the tokens of them that are text."""

    max_tokens: int | None
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: Sequence[str] = ()
    priority: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    include_stop: bool = False
    skip_special_tokens: bool = True

    def rules(self, model: ServedModel) -> TokenRules:
        """Rules for the tokens of an answer that are text."""
        hidden = model.hidden_ids if self.skip_special_tokens else frozenset[int]()
        return TokenRules(hidden, self.skip_special_tokens, self.stop_token_ids, self.include_stop, self.ignore_eos)

    def text(
        self, model: ServedModel, splitter: ChannelSplitter | None, *, continuing: bool, all_content: bool = False
    ) -> RowText:
        """Reader of a row's text for the engine's side.

        Args:
            continuing: the text continues the end of the prompt, see `ChatTokenizer.detokenizer`.
        """
        return RowText(
            model.tokenizer.detokenizer(continuing=continuing),
            splitter,
            all_content=all_content,
            eos=model.eos_token_ids if self.skip_special_tokens else frozenset(),
            hidden=self.rules(model).hidden,
        )


def read_limits(fields: Fields, max_tokens: int | None, model: ServedModel) -> Limits:
    """`stop`, and vLLM's fields for where an answer ends and which of its tokens are text."""
    min_tokens = fields.integer("min_tokens", 0) or 0
    if max_tokens is not None and min_tokens > max_tokens:
        why = f"{min_tokens} is above the limit of {max_tokens} output tokens. Lower it, or raise that limit"
        raise BadRequest.refused("min_tokens", why)
    ignore_eos = fields.boolean("ignore_eos") or False
    own = model.request_defaults.get("stop_token_ids") if fields.get("stop") is None else None
    ends = frozenset(read_token_ids(fields, "stop_token_ids", model.tokenizer) or ())
    ends |= own if isinstance(own, frozenset) else frozenset()
    return Limits(
        max_tokens,
        min_tokens,
        ignore_eos,
        read_stop(fields, model),
        priority=read_priority(fields),
        stop_token_ids=ends if ignore_eos else ends - model.eos_token_ids,
        include_stop=fields.boolean("include_stop_str_in_output") or False,
        skip_special_tokens=fields.boolean("skip_special_tokens") is not False,
    )


@dataclass(frozen=True, slots=True)
class Generation:
    """Settings of the rows of one request."""

    sampling: SamplingParams
    limits: Limits
    speculation: bool
    """See `GenerationRequest.speculation`."""
    seed: int | None = None
    """None: its rows get random ones."""
    salt: str | None = None
    """See `Prompt.salt`."""
    prediction: Prediction | None = None
    agent: str | None = None
    """See `GenerationRequest.agent`."""


def read_generation(
    fields: Fields, model: ServedModel, max_tokens: int | None, *, top_logprobs: int | None
) -> Generation:
    """The fields that all endpoints have which generate text, without those in `OWN`.

    Args:
        max_tokens: the most output tokens; None: as many as the context holds.
        top_logprobs: see `SamplingParams.top_logprobs`.
    """
    read_accepted(fields)
    sampling = read_sampling(fields, model, top_logprobs=top_logprobs)
    limits = read_limits(fields, max_tokens, model)
    return Generation(sampling, limits, fields.choice("speculation", ("auto", "off")) != "off")


def read_own(fields: Fields, generation: Generation, model: ServedModel) -> Generation:
    """The settings with what the fields in `OWN` say."""
    own_seed = model.request_defaults.get("seed")
    if isinstance(own_seed, int):
        generation = replace(generation, seed=own_seed)
    if not any(map(fields.has, OWN)):
        return generation
    for name in ("user", "safety_identifier"):  # which have no effect
        fields.string(name)
    agent = fields.string("prompt_cache_key")
    seed, salt = fields.integer("seed"), fields.string("cache_salt")
    if salt == "":
        raise BadRequest.empty_string("cache_salt")
    seed = generation.seed if seed is None else seed
    prediction = read_prediction(fields, model.tokenizer)
    return replace(generation, seed=seed, salt=salt, prediction=prediction, agent=agent and agent[:MAX_AGENT_NAME])


def make_requests(
    prompt: Prompt,
    n: int,
    generation: Generation,
    model: ServedModel,
    *,
    param: str,
    text: Callable[[Limits], RowText],
    constraint: Callable[[Callable[[], RowText]], GrammarConstraint | None],
) -> list[GenerationRequest]:
    """One request per choice, over one prefill.

    Args:
        prompt: what all choices continue.
        n: how many choices.
        generation: how to run the first choice; the others have other seeds.
        model: what serves the request.
        param: the field that the prompt came from.
        text: makes what the engine reads of a choice's text.
        constraint: makes a choice's grammar constraint, of what makes that text.

    Raises:
        BadRequest: the prompt has no token; with code `context_length_exceeded`, it fills the context.
    """
    if not prompt.tokens:
        raise BadRequest.refused(param, "this model's template encodes it to zero tokens. Add a non-empty text message")
    sampling, limits = generation.sampling, generation.limits
    length, context = len(prompt.tokens), model.context_length
    if context is not None and length + (limits.max_tokens != 0) > context:  # no place for a token behind it
        raise BadRequest.too_many_tokens(
            param,
            f"This model's maximum context length is {context} tokens. However, your {param} resulted in {length} "
            f"tokens. Please reduce the length of the {param}.",
        )
    most = _UNLIMITED if limits.max_tokens is None else limits.max_tokens  # the engine ends a row at the context's end
    seed = new_seed() if generation.seed is None else generation.seed
    prediction = generation.prediction

    def choose(choice: int) -> GenerationRequest:
        row_text = cache(partial(text, limits))  # made where the stop check or the constraint needs it
        return GenerationRequest(
            prompt=prompt,
            sampling=replace(sampling, seed=(seed + choice * _CHOICE_STRIDE) % 2**64),
            max_tokens=max(1, most),  # where none is wanted, the one that comes is dropped
            min_tokens=limits.min_tokens,
            ignore_eos=limits.ignore_eos,
            stop_token_ids=limits.stop_token_ids,
            stop=StopStrings(row_text(), limits.stop, limits.min_tokens) if limits.stop else None,
            constraint=constraint(row_text),
            priority=limits.priority,
            prediction=None if prediction is None else prediction.follow,
            speculation=generation.speculation,
            agent=generation.agent,
        )

    return [choose(choice) for choice in range(n)]


def new_id(prefix: str, size: int = 16) -> str:
    """A unique id of `size` random bytes, such as `chatcmpl-...`."""
    return prefix + secrets.token_hex(size)


def now() -> int:
    """Seconds since the epoch."""
    return int(time.time())

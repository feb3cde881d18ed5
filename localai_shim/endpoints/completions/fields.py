"""Fields of a request for completions except its prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from ...errors import BadRequest
from ...formats.markup import REASONING
from ...grammar import GrammarError
from ...grammar.compile import Grammar
from ...grammar.constraint import RowConstraint
from ...output.channels import ChannelSplitter
from ...output.stop import RowText
from ...prompt.infilling import InfillingFormat, find_infilling, infilling_prompt
from ...prompt.messages import encodable
from ...prompt.template import ChatTokenizer
from ...types import GenerationRequest, GrammarConstraint, Prompt
from .. import request_fields
from ..answer.format import read_answer_format
from ..answer.thinking import ThinkingPlan, follow_thinking, read_thinking_budget
from ..answer_fields import Extras, read_extras
from ..fields import Fields
from ..served import ServedModel
from ..token_fields import read_truncation

TEXTS = ("prompt", "prediction")
DIFFER = ("prompt", *request_fields.OWN)
"""The fields in which requests differ whose others are read once."""
_DEFAULT_MAX_TOKENS = 16  # OpenAI's
_NO_INFILLING = (
    "Filling in the middle is not supported by this model: its tokenizer has none of the tokens for it. Use one that "
    "was trained to, such as Qwen2.5-Coder, or pass what comes before as 'prompt' alone."
)


@dataclass(frozen=True, slots=True)
class Continuation:
    """Constraint on what follows the prompts. A grammar begins where they end, unless that is inside reasoning."""

    model: ServedModel
    grammar: Grammar | None
    budget: int | None
    """Most tokens of reasoning."""

    def requests(self, prompt: Prompt, n: int, generation: request_fields.Generation) -> list[GenerationRequest]:
        """One request per candidate; see `request_fields.make_requests`."""
        return request_fields.make_requests(
            prompt,
            n,
            generation,
            self.model,
            param="prompt",
            text=partial(self._text, prompt),
            constraint=partial(self._constraint, prompt),
        )

    def _text(self, prompt: Prompt, limits: request_fields.Limits) -> RowText:
        splitter = None
        if self.grammar is not None or self.budget is not None:
            state = self.model.markup.state_after(self.model.tokenizer.prompt_end(prompt.tokens))
            splitter = ChannelSplitter(self.model.markup, state=state)
        return limits.text(self.model, splitter, continuing=True, all_content=True)

    def _constraint(self, prompt: Prompt, text: Callable[[], RowText]) -> GrammarConstraint | None:
        if self.grammar is None and self.budget is None:
            return None
        end = self.model.tokenizer.prompt_end(prompt.tokens)
        has_grammar, thinking = self.grammar is not None, None
        if not has_grammar or self.model.markup.state_after(end) == REASONING:
            thinking = follow_thinking(
                ThinkingPlan({}, budget=self.budget), self.model, end, text, has_grammar=has_grammar
            )
        if self.grammar is None and thinking is None:
            return None
        return RowConstraint(None if self.grammar is None else self.grammar.matcher(), thinking)


def _read_continuation(fields: Fields, model: ServedModel) -> Continuation:
    """vLLM's `structured_outputs` and its like, and `thinking_token_budget`."""
    format, budget = read_answer_format(fields, fields.get("response_format")), read_thinking_budget(fields)
    try:
        grammar = None if format is None else model.grammars.compile(format.source)
    except GrammarError as error:
        assert format is not None
        raise format.refused(error) from error
    return Continuation(model, grammar, budget)


@dataclass(frozen=True, slots=True)
class Infilling:
    """The text behind the answer, and the tokens by which the model is asked to fill in the middle."""

    format: InfillingFormat
    suffix: str
    raw: bool

    def tokens(self, prompt: object, path: str, tokenizer: ChatTokenizer) -> list[int]:
        if not isinstance(prompt, str):
            message = f"Invalid '{path}': with a 'suffix' it has to be a string, not token ids."
            raise BadRequest(message, param=path, code="invalid_type")
        return infilling_prompt(self.format, tokenizer, encodable(prompt, path), self.suffix, raw=self.raw)


def _read_infilling(fields: Fields, tokenizer: ChatTokenizer, echo: bool) -> Infilling | None:
    """`suffix`, and `allow_special_tokens` with it; an empty one asks for nothing."""
    suffix = fields.string("suffix")
    if not suffix:
        return None
    raw, format = request_fields.read_allow_special_tokens(fields), find_infilling(tokenizer)
    if format is None:
        raise BadRequest.unsupported("suffix", _NO_INFILLING)
    for name, given in (("echo", echo), ("truncate_prompt_tokens", fields.has("truncate_prompt_tokens"))):
        if given:
            raise BadRequest(f"'{name}' cannot be used with 'suffix': leave out one of the two.", param=name)
    return Infilling(format, suffix, raw)


@dataclass(frozen=True, slots=True)
class CompletionFields:
    """Fields of a request, without those that differ. Requests with the same ones share them, unchanged."""

    echo: bool
    infilling: Infilling | None
    stream: bool
    n: int
    best_of: int
    logprobs: int | None
    max_tokens: int
    generation: request_fields.Generation
    extras: Extras
    truncation: tuple[int | None, bool]
    continuation: Continuation


def read_fields(body: Mapping[str, object], model: ServedModel) -> CompletionFields:
    """Read a request's fields, without those that differ."""
    fields = Fields(body)
    fields.string("model")
    echo = fields.boolean("echo") or False
    infilling = _read_infilling(fields, model.tokenizer, echo)
    stream = fields.boolean("stream") or False
    n = fields.integer("n", 1, 128) or 1
    best_of = _read_best_of(fields, n, stream)
    logprobs = fields.integer("logprobs", 0, 5)
    max_tokens = request_fields.read_max_tokens(fields, "max_tokens", model, least=0)
    max_tokens = _DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
    scores = 0 if logprobs is None and best_of > n else logprobs
    generation = request_fields.read_generation(fields, model, max_tokens, top_logprobs=scores)
    if infilling is not None:
        ends = generation.limits.stop_token_ids | (infilling.format.ends - model.eos_token_ids)
        generation = replace(generation, limits=replace(generation.limits, stop_token_ids=ends))
    extras = read_extras(fields, stream)
    truncation = read_truncation(fields)
    continuation = _read_continuation(fields, model)
    fields.finish(DIFFER)
    return CompletionFields(
        echo, infilling, stream, n, best_of, logprobs, max_tokens, generation, extras, truncation, continuation
    )


def _read_best_of(fields: Fields, n: int, stream: bool) -> int:
    best_of = fields.integer("best_of", 1, 128)
    if best_of is None:
        return n
    if best_of < n:
        raise BadRequest.invalid(
            "best_of",
            f"You requested more choices than candidates to choose from (n = {n}, best_of = {best_of}). "
            "Set 'best_of' to at least 'n'.",
        )
    if stream and best_of > n:
        raise BadRequest.invalid("best_of", "Results cannot be streamed when 'best_of' is greater than 'n'.")
    return best_of

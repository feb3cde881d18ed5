"""POST /completions, the legacy API (https://platform.openai.com/docs/api-reference/completions)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from openai.types import Completion, CompletionChoice, CompletionUsage
from openai.types.completion_choice import Logprobs

from ..core import GenerationRequest, Prompt, Token
from ..errors import BadRequest
from ..output.text import Delta, TextParser
from ..prompt.messages import encodable
from ..prompt.template import ChatTokenizer
from . import generation as common
from .assembler import Assembler
from .fields import Fields
from .generation import ServedModel

if TYPE_CHECKING:
    from ..state.store import Store

_DEFAULT_MAX_TOKENS = 16  # OpenAI's
_REFUSED = {
    "suffix": "Filling in the middle is not supported.",
}


@dataclass(slots=True)
class CompletionCall:
    """A validated request, and the assembler of its answer."""

    requests: list[GenerationRequest]
    stream: bool
    assembler: CompletionAssembler
    background: bool = False


def prepare(body: Mapping[str, Any], model: ServedModel, store: Callable[[], Store]) -> CompletionCall:
    """Validate a request body and tokenise its prompts.

    Raises:
        BadRequest: with the field, its value and what to do.
    """
    fields = Fields(body)
    fields.string("model")
    fields.refuse(_REFUSED)
    if fields.boolean("echo"):
        raise BadRequest.unsupported("echo", "The prompt is not repeated; prepend it to the text yourself.")
    texts = _read_prompts(fields.require("prompt"), model.tokenizer)
    stream = fields.boolean("stream") or False
    include_usage = common.read_stream_options(fields, stream)
    n = fields.integer("n", 1, 128) or 1
    best_of = _read_best_of(fields, n, stream)
    logprobs = fields.integer("logprobs", 0, 5)
    scored = logprobs if logprobs is not None else 0 if best_of > n else None
    sampling = common.read_sampling(fields, model, top_logprobs=scored)
    max_tokens = common.read_max_tokens(fields, "max_tokens", model)
    limits = common.read_limits(fields, _DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens)
    common.read_accepted(fields)
    salt = common.read_cache_salt(fields)
    fields.finish()
    prompts = [Prompt(ids, salt=salt) for ids in texts]
    requests: list[GenerationRequest] = []
    for prompt in prompts:
        requests += common.make_requests(prompt, best_of, sampling, limits, model, param="prompt", continuing=True)
    assembler = CompletionAssembler(
        model=model,
        parsers=[
            TextParser(
                model.tokenizer.detokenizer(continuing=True),
                limits.stop,
                min_tokens=limits.min_tokens,
                with_tokens=scored is not None,
            )
            for _ in requests
        ],
        prompts=prompts,
        n=n,
        best_of=best_of,
        logprobs=logprobs,
        include_usage=include_usage,
    )
    return CompletionCall(requests, stream, assembler)


def _read_prompts(prompt: Any, tokenizer: ChatTokenizer) -> list[list[int]]:
    """A string, strings, token ids, or lists of token ids -> one list of ids per prompt."""
    expected = "a string, an array of strings, an array of integers, or an array of integer arrays"
    if isinstance(prompt, str):
        prompt = [prompt]
    if not isinstance(prompt, list | tuple):
        raise BadRequest.wrong_type("prompt", expected, prompt)
    if prompt and all(isinstance(i, int) and not isinstance(i, bool) for i in prompt):
        prompt = [prompt]
    if not prompt:
        raise BadRequest(
            "Invalid 'prompt': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            param="prompt",
            code="empty_array",
        )
    return [_read_prompt(p, "prompt" if len(prompt) == 1 else f"prompt[{i}]", tokenizer) for i, p in enumerate(prompt)]


def _read_prompt(prompt: Any, path: str, tokenizer: ChatTokenizer) -> list[int]:
    if isinstance(prompt, str):
        ids = tokenizer.encode(encodable(prompt, path))
        if not ids:
            raise BadRequest(
                f"Invalid '{path}': this model's tokenizer makes no token of {prompt!r}, and something has to be there "
                "to continue.",
                param=path,
                code="invalid_value",
            )
        return ids
    if not isinstance(prompt, list | tuple) or not prompt:
        raise BadRequest.wrong_type(path, "a string or a non-empty array of integers", prompt)
    for i, token_id in enumerate(prompt):
        if isinstance(token_id, bool) or not isinstance(token_id, int):
            raise BadRequest.wrong_type(f"{path}[{i}]", "an integer", token_id)
        if not 0 <= token_id < tokenizer.vocabulary_size:
            raise BadRequest(
                f"Invalid '{path}[{i}]': {token_id} is not a token of this model, whose ids go from 0 to "
                f"{tokenizer.vocabulary_size - 1}.",
                param=f"{path}[{i}]",
                code="invalid_value",
            )
    return list(prompt)


def _read_best_of(fields: Fields, n: int, stream: bool) -> int:
    best_of = fields.integer("best_of", 1, 128)
    if best_of is None:
        return n
    if best_of < n:
        raise BadRequest(
            f"You requested that the server return more choices than it will generate (n = {n}, best_of = {best_of}). "
            "Set 'best_of' to at least 'n'.",
            param="best_of",
            code="invalid_value",
        )
    if stream and best_of > n:
        raise BadRequest(
            "Results cannot be streamed when 'best_of' is greater than 'n'.", param="best_of", code="invalid_value"
        )
    return best_of


class CompletionAssembler(Assembler):
    """Turns the events of one request into chunks, or into one completion.

    Args:
        model: what serves the request.
        parsers: one per prompt and candidate, those of one prompt next to each other.
        prompts: what the candidates continue.
        n: choices per prompt.
        best_of: candidates per prompt; the n with the highest mean logprob are returned.
        logprobs: how many likely tokens to report beside the drawn one; None reports no logprobs.
        include_usage: end a stream with a chunk that has the usage and no choices.
    """

    def __init__(
        self,
        *,
        model: ServedModel,
        parsers: Sequence[TextParser],
        prompts: Sequence[Prompt],
        n: int,
        best_of: int,
        logprobs: int | None,
        include_usage: bool,
    ) -> None:
        self.id = common.new_id("cmpl")
        self._created = common.now()
        self._model, self._parsers, self._prompts = model, parsers, prompts
        self._n, self._best_of, self._logprobs, self._include_usage = n, best_of, logprobs, include_usage
        self._candidates = [_Candidate() for _ in parsers]
        self._open = len(parsers)
        self._prompt_lengths: dict[int, int] = {}

    @property
    def finished(self) -> bool:
        """All candidates have ended."""
        return self._open == 0

    def feed(self, index: int, token: Token) -> list[Completion]:
        """Take a choice's next token; returns the chunks that it makes, in a stream."""
        delta = self._take(index, token)
        chunks: list[Completion] = []
        if delta.text or delta.tokens or delta.finish_reason is not None:
            chunks.append(self._make([self._choice(index, index, delta.text, delta.tokens, delta.finish_reason)]))
        if self.finished and self._include_usage:
            chunks.append(self._make([], usage=self._usage()))
        return chunks

    def collect(self, index: int, token: Token) -> None:
        """Take a candidate's next token, when the answer is wanted whole."""
        delta, candidate = self._take(index, token), self._candidates[index]
        candidate.text.append(delta.text)
        candidate.tokens += delta.tokens
        if token.logprob is not None:
            candidate.score += token.logprob
            candidate.length += 1

    def result(self) -> Completion:
        """The whole completion, once `finished`."""
        choices: list[CompletionChoice] = []
        for first in range(0, len(self._candidates), self._best_of):
            group = list(range(first, first + self._best_of))
            if self._best_of > self._n:
                group = sorted(group, key=lambda i: self._candidates[i].mean, reverse=True)[: self._n]
            for i in group:
                c = self._candidates[i]
                choices.append(self._choice(len(choices), i, "".join(c.text), c.tokens, c.finish_reason))
        return self._make(choices, usage=self._usage())

    # -----------------------------------------------------------------------------------------------------------

    def _take(self, index: int, token: Token) -> Delta:
        delta = self._parsers[index].feed(token)
        if delta.finish_reason is not None:
            self._candidates[index].finish_reason = delta.finish_reason
            self._open -= 1
        return delta

    def _choice(
        self,
        index: int,
        candidate: int,
        text: str,
        tokens: Sequence[tuple[Token, int]],
        finish_reason: Literal["stop", "length"] | None,
    ) -> CompletionChoice:
        fields: dict[str, Any] = {
            "index": index,
            "text": text,
            "finish_reason": finish_reason or "stop",
            "logprobs": self._make_logprobs(candidate, tokens) if self._logprobs is not None else None,
        }
        choice = CompletionChoice(**fields)
        if finish_reason is None:  # the SDK's type has no null here; the API sends null until the end
            choice.finish_reason = None  # type: ignore[assignment]
        return choice

    def _make_logprobs(self, candidate: int, tokens: Sequence[tuple[Token, int]]) -> Logprobs:
        start = self._prompt_length(candidate // self._best_of)
        top = [
            {self._text(i): logprob for i, logprob in [*token.top[: self._logprobs or 0], (token.id, token.logprob)]}
            for token, _ in tokens
        ]
        return Logprobs.model_validate(
            {
                "tokens": [self._text(token.id) for token, _ in tokens],
                "token_logprobs": [token.logprob for token, _ in tokens],
                "top_logprobs": top,
                "text_offset": [start + offset for _, offset in tokens],
            }
        )

    def _text(self, token_id: int) -> str:
        text = self._model.tokenizer.token_bytes.text(token_id)
        return f"bytes:{text}" if text.startswith("\\x") and len(text) % 4 == 0 else text

    def _prompt_length(self, prompt: int) -> int:
        """Characters of a prompt: offsets count from its beginning, as in OpenAI's API."""
        if prompt not in self._prompt_lengths:
            self._prompt_lengths[prompt] = len(self._model.tokenizer.decode(self._prompts[prompt].tokens))
        return self._prompt_lengths[prompt]

    def _make(self, choices: list[CompletionChoice], usage: CompletionUsage | None = None) -> Completion:
        fields: dict[str, Any] = {
            "id": self.id,
            "object": "text_completion",
            "created": self._created,
            "model": self._model.name,
            "choices": choices,
            "system_fingerprint": self._model.fingerprint,
        }
        if usage is not None or self._include_usage:
            fields["usage"] = usage
        return Completion(**fields)

    def _usage(self) -> CompletionUsage:
        return common.usage(self._prompts, sum(parser.generated for parser in self._parsers))


class _Candidate:
    """What has come of one candidate so far."""

    __slots__ = ("finish_reason", "length", "score", "text", "tokens")

    def __init__(self) -> None:
        self.text: list[str] = []
        self.tokens: list[tuple[Token, int]] = []
        self.finish_reason: Literal["stop", "length"] = "length"
        self.score = 0.0
        self.length = 0

    @property
    def mean(self) -> float:
        """Logprob per token."""
        return self.score / max(1, self.length)

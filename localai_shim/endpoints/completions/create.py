"""POST /completions, the legacy API (https://platform.openai.com/docs/api-reference/completions).

An answer may repeat its prompt, with its tokens' logprobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from openai.types import Completion, CompletionChoice
from openai.types.completion_choice import Logprobs

from ...errors import BadRequest
from ...output.answer import Delta, TextParser
from ...prompt.messages import encodable
from ...prompt.template import ChatTokenizer
from ...state.store import Store
from ...types import Json, Prompt, Token
from ..answer_fields import NO_PROMPT, PredictionCounts, usage_fields
from ..fields import Fields, as_array
from ..request_fields import Generation, new_id, now, read_own
from ..served import ServedModel
from ..token_fields import token_id, truncated
from ..turn import Assembler, Turn
from .fields import DIFFER, CompletionFields, Infilling, read_fields


def prepare(body: Mapping[str, object], model: ServedModel, store: Callable[[], Store]) -> Turn:
    """Validate a request body and tokenise its prompts.

    Raises:
        BadRequest: with the field, its value and what to do.
    """
    asked = model.field_cache.get(body, DIFFER, partial(read_fields, model=model))
    fields = Fields(body)
    given = _read_prompts(fields.require("prompt"), model.tokenizer, asked.infilling)
    generation = read_own(fields, asked.generation, model)
    wanted = asked.extras.prompt_logprobs, asked.logprobs if asked.echo else None
    top = max((each for each in wanted if each is not None), default=None)
    cut = [truncated(tokens, asked.truncation, model.context_length, asked.max_tokens) for tokens, _ in given]
    prompts = [Prompt(tokens, salt=generation.salt, top_logprobs=top, adapter=model.adapter) for tokens in cut]
    requests = [one for prompt in prompts for one in asked.continuation.requests(prompt, asked.best_of, generation)]
    texts = [
        text if len(prompt.tokens) == len(tokens) else None
        for prompt, (tokens, text) in zip(prompts, given, strict=True)
    ]
    echoed = zip(prompts, texts, strict=True) if asked.echo else ()
    assembler = CompletionAssembler(
        model=model,
        asked=asked,
        parsers=[_make_parser(model, generation, with_end=asked.echo) for _ in requests],
        prompts=prompts,
        texts=texts,
        echoes=[make_echo(prompt, text, model.tokenizer) for prompt, text in echoed],
        predicted=PredictionCounts(generation.prediction, len(requests)),
    )
    return Turn(assembler, requests, asked.stream)


def _make_parser(model: ServedModel, generation: Generation, *, with_end: bool) -> TextParser:
    limits = generation.limits
    return TextParser(
        model.tokenizer.detokenizer(continuing=True),
        limits.stop,
        min_tokens=limits.min_tokens,
        with_tokens=generation.sampling.top_logprobs is not None,
        rules=limits.rules(model),
        with_end=with_end,
    )


def _read_prompts(
    prompt: object, tokenizer: ChatTokenizer, infilling: Infilling | None
) -> list[tuple[list[int], str | None]]:
    """A string, strings, token ids, or lists of token ids -> for each prompt its ids, and its text if that is known."""
    expected = "a string, an array of strings, an array of integers, or an array of integer arrays"
    if isinstance(prompt, str):
        prompt = [prompt]
    prompts = as_array("prompt", prompt, expected, empty=False)
    if all(isinstance(i, int) and not isinstance(i, bool) for i in prompts):
        prompts = [prompts]
    paths = ["prompt"] if len(prompts) == 1 else [f"prompt[{i}]" for i in range(len(prompts))]
    if infilling is not None:
        return [(infilling.tokens(p, path, tokenizer), None) for p, path in zip(prompts, paths, strict=True)]
    return [_read_prompt(p, path, tokenizer) for p, path in zip(prompts, paths, strict=True)]


def _read_prompt(prompt: object, path: str, tokenizer: ChatTokenizer) -> tuple[list[int], str | None]:
    if isinstance(prompt, str):
        ids = tokenizer.encode(encodable(prompt, path))
        if not ids:
            raise BadRequest.refused(path, "the prompt encodes to zero tokens; completions need at least one")
        return ids, prompt
    if not isinstance(prompt, list | tuple) or not prompt:
        raise BadRequest.wrong_type(path, "a string or a non-empty array of integers", prompt)
    return [token_id(value, f"{path}[{i}]", tokenizer) for i, value in enumerate(prompt)], None


class CompletionAssembler(Assembler[Completion]):
    """Turns the events of one request into chunks, or into one completion.

    Args:
        model: what serves the request.
        asked: the request's fields. Of `best_of` candidates per prompt the n with the highest mean logprob are
            returned; if `max_tokens` is 0, the one token that comes is dropped.
        parsers: one per prompt and candidate, those of one prompt next to each other.
        prompts: what the candidates continue.
        texts: the prompts' own, where known: a beginning of sequence is none of them.
        echoes: what the answer repeats of each prompt; empty: nothing.
        predicted: counts the tokens of a prediction.
    """

    def __init__(
        self,
        *,
        model: ServedModel,
        asked: CompletionFields,
        parsers: Sequence[TextParser],
        prompts: Sequence[Prompt],
        texts: Sequence[str | None],
        echoes: Sequence[Echo],
        predicted: PredictionCounts,
    ) -> None:
        super().__init__()
        self._predicted = predicted
        self.id = new_id("cmpl-")
        self._created = now()
        self._model, self._parsers, self._prompts = model, parsers, prompts
        self._n, self._best_of, self._logprobs = asked.n, asked.best_of, asked.logprobs
        self._candidates = [_Candidate() for _ in parsers]
        self._open = len(parsers)
        repeated = (echo.text for echo in echoes) if echoes else texts
        self._prompt_lengths = {i: len(text) for i, text in enumerate(repeated) if text is not None}
        self._echoes, self._silent, self._extras = echoes, asked.max_tokens == 0, asked.extras

    def feed(self, index: int, token: Token) -> list[Completion]:
        """Take a choice's next token; returns the chunks that it makes, in a stream."""
        delta = self._take(index, token)
        chunks: list[Completion] = []
        begins = self._echoes and not self._candidates[index].begun
        if delta.text or delta.tokens or delta.finish_reason is not None or begins:
            choice = self._choice(index, index, delta.text, delta.tokens, delta.finish_reason, in_stream=True)
            usage = self._usage(index) if self._extras.continuous_usage else None
            chunks.append(self._make([choice], usage=usage))
        if self.finished and self._extras.include_usage:
            chunks.append(self._make([], usage=self._usage()))
        return chunks

    def collect(self, index: int, token: Token) -> None:
        """Take a candidate's next token, when the answer is wanted whole."""
        delta, candidate = self._take(index, token), self._candidates[index]
        candidate.text.append(delta.text)
        candidate.tokens += delta.tokens
        if token.logprob is not None and not self._silent:
            candidate.score += token.logprob
            candidate.length += 1

    def finish_reasons(self) -> tuple[str, ...]:
        return tuple(self._candidates[i].finish_reason for i in self._returned()) if self.finished else ()

    def result(self) -> Completion:
        """The whole completion, once `finished`."""
        choices: list[CompletionChoice] = []
        for i in self._returned():
            c = self._candidates[i]
            choices.append(self._choice(len(choices), i, "".join(c.text), c.tokens, c.finish_reason))
        return self._make(choices, usage=self._usage())

    # -----------------------------------------------------------------------------------------------------------

    def _returned(self) -> list[int]:
        """The candidates that are choices: of each prompt the best ones."""
        found: list[int] = []
        for first in range(0, len(self._candidates), self._best_of):
            group = list(range(first, first + self._best_of))
            if self._best_of > self._n:
                group = sorted(group, key=lambda i: self._candidates[i].mean, reverse=True)[: self._n]
            found += group
        return found

    def _take(self, index: int, token: Token) -> Delta:
        delta = Delta(finish_reason="length") if self._silent else self._parsers[index].feed(token)
        self._predicted.feed(index, token)
        if self._extras.token_ids and not self._silent:
            self._candidates[index].token_ids.append(token.id)
        if delta.finish_reason is not None:
            self._candidates[index].finish_reason = delta.finish_reason
            self._open -= 1
            self.finished = self._open == 0
        return delta

    def _choice(
        self,
        index: int,
        candidate: int,
        text: str,
        tokens: Sequence[tuple[Token, int]],
        finish_reason: Literal["stop", "length"] | None,
        *,
        in_stream: bool = False,
    ) -> CompletionChoice:
        """A choice, or a chunk's part of it: the first one has what is repeated of the prompt."""
        state, prompt = self._candidates[candidate], candidate // self._best_of
        begins, state.begun = not state.begun, True
        echo = self._echoes[prompt] if self._echoes and begins else None
        logprobs = None
        if self._logprobs is not None:
            logprobs = self._make_logprobs(candidate, tokens)
            if echo is not None:
                logprobs = echo.before(logprobs, self._prompts[prompt], self._logprobs, self._text)
        fields: dict[str, object] = {
            "index": index,
            "text": text if echo is None else echo.text + text,
            "finish_reason": finish_reason or "stop",
            "logprobs": logprobs,
            "token_ids": None,
            **NO_PROMPT,
        }
        if finish_reason is not None:
            fields["stop_reason"] = self._parsers[candidate].stop_reason
        if self._extras.token_ids:
            start = state.ids_sent if in_stream else 0
            fields["token_ids"], state.ids_sent = state.token_ids[start:], len(state.token_ids)
        if begins:
            fields.update(self._extras.of_prompt(self._prompts[prompt], self._model.tokenizer))
        choice = CompletionChoice.model_validate(fields)
        if finish_reason is None:  # the SDK's type has no null here; the API sends null until the end
            choice.finish_reason = None  # type: ignore[assignment]
        return choice

    def _make_logprobs(self, candidate: int, tokens: Sequence[tuple[Token, int]]) -> Logprobs:
        start = self._prompt_length(candidate // self._best_of)
        top = [
            by_text([*token.top[: self._logprobs or 0], (token.id, token.logprob)], self._text) for token, _ in tokens
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

    def _make(self, choices: list[CompletionChoice], usage: Json | None = None) -> Completion:
        fields: dict[str, object] = {
            "id": self.id,
            "object": "text_completion",
            "created": self._created,
            "model": self._model.name,
            "choices": choices,
            "system_fingerprint": self._model.fingerprint,
        }
        if usage is not None or self._extras.include_usage:
            fields["usage"] = usage
        return Completion.model_validate(fields)

    def _usage(self, candidate: int | None = None) -> Json:
        """Of one candidate, or of all."""
        prompts = self._prompts if candidate is None else [self._prompts[candidate // self._best_of]]
        parsers = self._parsers if candidate is None else [self._parsers[candidate]]
        return usage_fields(
            prompts, sum(parser.generated for parser in parsers), predicted=self._predicted.counts(candidate)
        )


@dataclass(slots=True)
class _Candidate:
    """One candidate, as far as it was generated."""

    text: list[str] = field(default_factory=list[str])
    tokens: list[tuple[Token, int]] = field(default_factory=list[tuple[Token, int]])
    token_ids: list[int] = field(default_factory=list[int])
    begun: bool = False
    ids_sent: int = 0
    finish_reason: Literal["stop", "length"] = "length"
    score: float = 0.0
    length: int = 0

    @property
    def mean(self) -> float:
        """Logprob per token."""
        return self.score / max(1, self.length)


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt as an answer repeats it."""

    text: str
    offsets: list[int]
    """Offset of each token's text."""

    def before(self, logprobs: Logprobs, prompt: Prompt, top: int, text: Callable[[int], str]) -> Logprobs:
        """An answer's logprobs behind those of its prompt, of which the first token has none.

        Args:
            logprobs: the answer's.
            prompt: scored.
            top: how many likely tokens to report with each.
            text: of a token.
        """
        scores = prompt.scores or ()
        tops = [
            by_text([*score.top[:top], (token_id, score.logprob)], text)
            for token_id, score in zip(prompt.tokens[1:], scores, strict=True)
        ]
        # Copied: the SDK's types have no null in these lists, and the API sends one for the first token.
        return logprobs.model_copy(
            update={
                "tokens": [*map(text, prompt.tokens), *(logprobs.tokens or ())],
                "text_offset": [*self.offsets, *(logprobs.text_offset or ())],
                "token_logprobs": [None, *(score.logprob for score in scores), *(logprobs.token_logprobs or ())],
                "top_logprobs": [None, *tops, *(logprobs.top_logprobs or ())],
            }
        )


def by_text(logprobs: Sequence[tuple[int, float | None]], text: Callable[[int], str]) -> dict[str, float | None]:
    """Logprobs by the tokens' texts, likeliest first: of several tokens with one text the first."""
    found: dict[str, float | None] = {}
    for token, logprob in logprobs:
        found.setdefault(text(token), logprob)
    return found


def make_echo(prompt: Prompt, known: str | None, tokenizer: ChatTokenizer) -> Echo:
    """Make the part of an answer that repeats its prompt.

    Args:
        prompt: what is run, which may have been cut.
        known: the text that was given for all of it; a token that stands for none of it, such as one that begins a
            sequence, is empty.
    """
    detokenizer = tokenizer.detokenizer(continuing=known is not None)  # of a known text all spaces count
    ends, length = [0], 0
    pieces: list[str] = []
    for token in prompt.tokens:
        detokenizer.add_token(token)
        pieces.append(detokenizer.last_segment)
        length += len(pieces[-1])
        ends.append(length)
    detokenizer.finalize()
    pieces.append(detokenizer.last_segment)
    read = "".join(pieces)
    if known is None:
        return Echo(read, ends[:-1])
    before = len(read) - len(known) if read.endswith(known) else 0
    return Echo(known, [min(max(0, end - before), len(known)) for end in ends[:-1]])

"""What a scripted model says to one request, and how it is played token by token."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ..types import Event, Failure, FinishReason, GenerationRequest, Prompt, RowError, Sink, Ticket, Token, TokenScore
from .tokenizer import Piece, ScriptedTokenizer

Logprob = float | Mapping[Piece, float]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a scripted model says to one request, and how."""

    content: str | Sequence[Piece] = ""
    """A text, which `ScriptedTokenizer.split` cuts into tokens, or the tokens themselves."""
    _: KW_ONLY
    finish_reason: FinishReason = "stop"
    """`stop` is played as a model does it, by a token that ends the sequence; `length` ends with the content."""
    logprobs: Sequence[Logprob] | None = None
    """For each token of the content its logprob, or those of the likeliest tokens, itself among them. What is not said
    is made up: a token has probability 0.9, and its alternatives share the rest."""
    delay: float = 0.0
    """Seconds before the first token; `math.inf` for a model that hangs."""
    interval: float = 0.0
    """Seconds between two tokens; `math.inf` for a model that hangs after the first one."""
    error: Exception | None = None
    """The request fails with it; an `EngineError` is reported as those of real engines are."""
    fail_after: int | None = None
    """Tokens before the failure; None plays the whole content."""


Says = str | Sequence[Piece] | Reply
"""A reply, or the content of one."""


class ScriptedModel:
    """What clients read of an engine's model."""

    def __init__(self, name: str, context_length: int | None, tokenizer: ScriptedTokenizer) -> None:
        self.name = name
        self.context_length = context_length
        self.tokenizer = tokenizer
        self.eos_token_ids = frozenset(tokenizer.eos_token_ids)
        self.fingerprint = "fp_scripted"
        self.created = 0
        self.cuts_anywhere = True  # there is nothing to cut
        self.generation_defaults: dict[str, Any] = {}

    @property
    def text(self) -> ScriptedModel:
        """What makes prompts for it."""
        return self

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""
        return self.tokenizer.encode(text, add_special_tokens)

    def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        variables: dict[str, Any],
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        restore: Callable[[str], str] | None = None,
    ) -> list[int]:
        """Prompt tokens for a conversation; `restore` changes the rendered text before it is tokenised."""
        text: str = self.tokenizer.apply_chat_template(
            messages, tools, add_generation_prompt=add_generation_prompt, tokenize=False, **variables
        )
        return self.tokenizer.encode(text if restore is None else restore(text))


class Script:
    """A reply in token ids. Raises ValueError when it cannot be played."""

    def __init__(self, says: Says, tokenizer: ScriptedTokenizer) -> None:
        reply = says if isinstance(says, Reply) else Reply(says)
        content = tokenizer.split(reply.content) if isinstance(reply.content, str) else reply.content
        self.reply = reply
        self.ids = [tokenizer.intern(piece) for piece in content]
        self.logprobs: list[float | dict[int, float]] = [
            {tokenizer.intern(piece): value for piece, value in entry.items()} if isinstance(entry, Mapping) else entry
            for entry in reply.logprobs or [_LIKELY] * len(self.ids)
        ]
        if len(self.logprobs) != len(self.ids):
            raise ValueError(f"{len(self.ids)} tokens with {len(self.logprobs)} logprobs: {reply}")
        for token_id, entry in zip(self.ids, self.logprobs, strict=True):
            if isinstance(entry, dict) and token_id not in entry:
                raise ValueError(f"logprobs without that of {tokenizer.decode([token_id])!r} itself: {reply}")
        self.fails_after: int | None = None
        if reply.error is not None or reply.fail_after is not None:
            self.fails_after = len(self.ids) if reply.fail_after is None else reply.fail_after
            if not 0 <= self.fails_after <= len(self.ids):
                raise ValueError(f"{len(self.ids)} tokens cannot fail after {self.fails_after}: {reply}")
        elif reply.finish_reason == "length" and not self.ids:
            raise ValueError(f"a reply that is cut has at least one token: {reply}")


class Row:
    """One reply that is being played."""

    def __init__(
        self,
        request: GenerationRequest,
        sink: Sink,
        index: int,
        ticket: Ticket,
        script: Script,
        model: ScriptedModel,
        obeys: bool,
    ) -> None:
        self.sink, self.index, self.ticket = sink, index, ticket
        self.due = 0.0
        """When the next token comes, of `time.monotonic`."""
        self.reply = script.reply
        self._request, self._script, self._tokenizer = request, script, model.tokenizer
        self._eos = model.eos_token_ids
        self._guide = request.guide if obeys else None
        self._barred = (
            {i for i, bias in request.sampling.logit_bias.items() if bias == -math.inf} if obeys else set[int]()
        )
        self._room = request.max_tokens
        if model.context_length is not None:
            self._room = min(self._room, model.context_length - len(request.prompt.tokens))
        self._at = 0
        self._said: list[int] = []

    def next(self) -> Event:
        """The row's next event."""
        try:
            return self._play()
        except RowError as error:
            return Failure(error)
        except Exception as error:
            failure = RowError(f"the stop check or the guide of this request failed: {error!r}")
            failure.__cause__ = error
            return Failure(failure)

    def _play(self) -> Event:
        script, request = self._script, self._request
        if len(self._said) == script.fails_after:
            return Failure(self.reply.error or RowError("the script lets this request fail here"))
        place = self._next_place()
        token_id = self._tokenizer.eos_token_id if place is None else script.ids[place]
        if token_id in self._barred:
            self._refuse(token_id)
        stopped = request.stop is not None and request.stop.feed(token_id)
        guided_to_end = self._guide is not None and self._take_through_guide(token_id)
        self._said.append(token_id)
        self._at = 0 if place is None else place + 1
        is_eos = token_id in self._eos
        ends = is_eos and not request.ignore_eos and len(self._said) > request.min_tokens
        ends = ends or token_id in request.stop_token_ids
        ends = ends or stopped
        if guided_to_end and not ends and 0 < self._at < len(script.ids):
            self._refuse(script.ids[self._at])
        reason: FinishReason | None = None
        if ends or guided_to_end:
            reason = "stop"
        elif len(self._said) >= self._room or self._is_cut(place):
            reason = "length"
        logprob, top = self._logprobs(token_id, _LIKELY if place is None else script.logprobs[place])
        return Token(token_id, logprob, top, reason, is_eos)

    def _next_place(self) -> int | None:
        """Where in the script the next token is; None for the end of the sequence that follows it."""
        ids = self._script.ids
        if self._at < len(ids):
            return self._at
        return 0 if ids and len(self._said) < self._request.min_tokens else None

    def _is_cut(self, place: int | None) -> bool:
        return self._script.reply.finish_reason == "length" and place == len(self._script.ids) - 1

    def _take_through_guide(self, token_id: int) -> bool:
        """Show a token to the guide. Where it does not allow it as it is, which may be as the token is younger than the
        guide's vocabulary, byte by byte.

        Returns:
            Nothing may follow.

        Raises:
            RowError: the guide forbids it.
        """
        assert self._guide is not None
        if self._allows(token_id):
            return self._guide.accept(token_id)
        over = False
        for byte in self._tokenizer.spelling(token_id):
            if over or not self._allows(byte):
                self._refuse(token_id)
            over = self._guide.accept(byte)
        return over

    def _allows(self, token_id: int) -> bool:
        assert self._guide is not None
        mask = np.zeros((len(self._tokenizer) + 31) // 32, np.int32)
        if not self._guide.mask(mask) or token_id == self._guide.escape:
            return True
        return bool(int(mask[token_id // 32]) >> (token_id % 32) & 1)

    def _refuse(self, token_id: int) -> None:
        text, said = (self._tokenizer.decode(ids) for ids in ([token_id], self._said))
        raise RowError(f"the script says what this request's guide does not allow: {text!r} after {said!r}")

    def _logprobs(self, token_id: int, said: float | dict[int, float]) -> tuple[float | None, list[tuple[int, float]]]:
        """A token's logprob and its alternatives, as far as the request asks for them."""
        wanted = self._request.sampling.top_logprobs
        if wanted is None:
            return None, []
        logprobs = said if isinstance(said, dict) else _with_alternatives(token_id, said)
        likeliest = sorted(logprobs.items(), key=lambda item: -item[1])
        return logprobs[token_id], likeliest[:wanted]


_LIKELY = math.log(0.9)
_NEVER = -9999.0  # as OpenAI writes it


def score(prompt: Prompt) -> None:
    """Make up how likely the tokens of a prompt are, where that is wanted: as likely as those of a reply."""
    if prompt.top_logprobs is None:
        return
    prompt.scores = []
    for token_id in prompt.tokens[1:]:
        likeliest = list(_with_alternatives(token_id, _LIKELY).items())
        prompt.scores.append(TokenScore(_LIKELY, 1, likeliest[: prompt.top_logprobs]))


def _with_alternatives(token_id: int, logprob: float) -> dict[int, float]:
    """Letters share what a token leaves of the probability, each half of what is left then."""
    rest = 1.0 - math.exp(logprob)
    others = [letter for letter in b"abcdefghijklmnopqrstuvwxyz" if letter != token_id]
    alternatives = {
        letter: math.log(rest) - (i + 1) * math.log(2) if rest > 0 else _NEVER for i, letter in enumerate(others)
    }
    return {token_id: logprob} | alternatives

"""Scripted replies, and how one is played token by token."""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

from ...media import Media, MediaKind, MediaSize, MediaSpan, ProcessedMedia
from ...speech import Recognizing, Speaking
from ...types import (
    Event,
    Failure,
    FinishReason,
    GenerationRequest,
    Json,
    Prompt,
    RowError,
    Sink,
    Task,
    Ticket,
    Token,
    TokenScore,
)
from ...vectors import Embedding, Ranking, Reranking
from .clock import REAL, Clock
from .tokenizer import Piece, ScriptedTokenizer

Logprob = float | Mapping[Piece, float]


@dataclass(frozen=True, slots=True)
class Reply:
    """A scripted model's reply to one request.

    Example:
        >>> from localai_shim.testing import Reply, scripted
        >>> with scripted(Reply(["Hel", "lo"], finish_reason="length")) as client:
        ...     client.responses.create(model="any", input="Hi").output_text
        'Hello'
    """

    content: str | Sequence[Piece] = ""
    """A text, which `ScriptedTokenizer.split` splits into tokens, or the tokens themselves."""
    _: KW_ONLY
    finish_reason: FinishReason = "stop"
    """`stop` is played as by a model, with an end-of-sequence token; `length` ends with the content."""
    logprobs: Sequence[Logprob] | None = None
    """For each token of the content its logprob, or those of the likeliest tokens, itself among them. Others are made
    up: a token has probability 0.9, and its alternatives share the rest."""
    delay: float = 0.0
    """Seconds before the first token; `math.inf` for a model that hangs."""
    interval: float = 0.0
    """Seconds between two tokens; `math.inf` for a model that hangs after the first one."""
    error: Exception | None = None
    """The request fails with it; an `EngineError` is reported as those of real engines are."""
    fail_after: int | None = None
    """Tokens before the failure; None plays the whole content."""
    hang: bool = False
    """Have nothing come then, instead of a failure."""


ReplyLike = str | Sequence[Piece] | Reply
"""A reply, or the content of one."""

Decide = Callable[[GenerationRequest, str, int], ReplyLike]
"""(request, the prompt's text, how many requests came before) -> the reply."""


# Digits, which no filter of a template changes; random, so that no caller can write it.
_MARK = "7" + "".join(secrets.choice("012345689") for _ in range(20))
_PLACE = re.compile(f"{_MARK}([012])")
_KINDS: tuple[MediaKind, ...] = ("image", "video", "audio")
_HEARING = Recognizing(
    takes_language=True,
    takes_prompt=True,
    takes_temperature=True,
    checks_language=True,
    translates=True,
    times_words=True,
    gives_logprobs=True,
)
_SPEAKING = Speaking(takes_any_voice=True, takes_instructions=True, takes_speed=True)


class Pair(list[int]):
    """Token ids of a query and a document, which know the texts."""

    def __init__(self, query: str, document: str, tokens: Sequence[int]) -> None:
        super().__init__(tokens)
        self.query, self.document = query, document


class ScriptedModel:
    """The model of a scripted engine, as clients see it: there are no weights."""

    tasks: Sequence[Task] = ("generate", "embed", "rerank", "recognize", "speak")

    def __init__(
        self, name: str, context_length: int | None, tokenizer: ScriptedTokenizer, dimensions: int = 1536
    ) -> None:
        self.name = name
        self.dimensions = dimensions
        reranking = Reranking(self._encode_pairs, takes_instruction=True)
        self.settings: Mapping[Task, object] = {
            "embed": Embedding(dimensions), "rerank": reranking, "recognize": _HEARING, "speak": _SPEAKING
        }  # fmt: skip
        self.context_length = context_length
        self.tokenizer = tokenizer
        self.eos_token_ids = frozenset(tokenizer.eos_token_ids)
        self.fingerprint = "fp_scripted"
        self.created = 0
        self.cuts_anywhere = True  # there is nothing to trim
        self.takes_any_token = False
        """`logit_bias` may have the ids of another vocabulary, such as OpenAI's."""
        self.generation_defaults: dict[str, object] = {}

    @property
    def text(self) -> ScriptedModel:
        """The model itself: it tokenises its prompts."""
        return self

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""
        return self.tokenizer.encode(text, add_special_tokens)

    def _encode_pairs(self, ranking: Ranking) -> list[Pair]:
        """The query, an end of sequence, and the document; an instruction changes no score."""
        query, most = ranking.query, ranking.most
        before = [*query.encode(), self.tokenizer.eos_token_id]
        end = None if most is None else max(most, len(before) + 1)
        documents = [(text, text.encode()[: ranking.most_each]) for text in ranking.documents]
        return [Pair(query, text, [*before, *tokens][:end]) for text, tokens in documents]

    media_kinds: frozenset[MediaKind] = frozenset(_KINDS)
    decodes_media = False

    def process(self, media: Media) -> ProcessedMedia:
        """An item as one token, `<image>`, whatever the picture."""
        shown = f"<{media.kind}>"
        return ProcessedMedia(media.kind, 1, {}, shown, [self.tokenizer.intern(shown)])

    def unread(self, size: MediaSize) -> ProcessedMedia | None:
        return None

    def spans(self, ids: Sequence[int], media: Sequence[ProcessedMedia]) -> list[MediaSpan]:
        """Find the items in a prompt.

        Raises:
            ValueError: the template left some out.
        """
        import numpy as np  # here, since only media need it

        found: list[MediaSpan] = []
        at = -1
        for item in media:
            try:
                at = list(ids).index(item.tokens[0], at + 1)
            except ValueError:
                raise ValueError(f"the chat template leaves out the {item.kind}") from None
            found.append(MediaSpan(item, np.array([at])))
        return found

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, object]],
        variables: Mapping[str, Any],
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        restore: Callable[[str], str] | None = None,
        media: Sequence[ProcessedMedia] = (),
    ) -> list[int]:
        """Prompt tokens of a conversation; `restore` changes the rendered text before it is tokenised."""
        text: str = self.tokenizer.apply_chat_template(
            [{**each, "content": _marked(each["content"])} for each in messages] if media else messages,
            tools,
            add_generation_prompt=add_generation_prompt,
            tokenize=False,
            **variables,
        )
        text = text if restore is None else restore(text)
        out: list[int] = []
        for i, piece in enumerate(_PLACE.split(text) if media else [text]):
            out += [self.tokenizer.intern(f"<{_KINDS[int(piece)]}>")] if i % 2 else self.tokenizer.encode(piece)
        return out


def _marked(content: object) -> object:
    """A message's content as a string, as any template can render it, with marks at the places of items."""
    return "".join(map(_text, content)) if isinstance(content, list) else content


def _text(part: Json) -> str:
    return str(part["text"]) if part["type"] == "text" else f"{_MARK}{_KINDS.index(part['type'])}"


class Script:
    """A reply as token ids. Raises ValueError for one that cannot be played."""

    def __init__(self, content: ReplyLike, tokenizer: ScriptedTokenizer) -> None:
        reply = content if isinstance(content, Reply) else Reply(content)
        pieces = tokenizer.split(reply.content) if isinstance(reply.content, str) else reply.content
        self.reply = reply
        self.ids = [tokenizer.intern(piece) for piece in pieces]
        self.logprobs: list[float | dict[int, float]] = [
            {tokenizer.intern(piece): value for piece, value in entry.items()} if isinstance(entry, Mapping) else entry
            for entry in reply.logprobs or [LIKELY_LOGPROB] * len(self.ids)
        ]
        if len(self.logprobs) != len(self.ids):
            raise ValueError(f"{len(self.ids)} tokens with {len(self.logprobs)} logprobs: {reply}")
        for token_id, entry in zip(self.ids, self.logprobs, strict=True):
            if isinstance(entry, dict) and token_id not in entry:
                raise ValueError(f"logprobs without that of {tokenizer.decode([token_id])!r} itself: {reply}")
        self.fails_after: int | None = None
        if reply.error is not None or reply.fail_after is not None or reply.hang:
            self.fails_after = len(self.ids) if reply.fail_after is None else reply.fail_after
            if not 0 <= self.fails_after <= len(self.ids):
                raise ValueError(f"{len(self.ids)} tokens cannot fail after {self.fails_after}: {reply}")
        elif reply.finish_reason == "length" and not self.ids:
            raise ValueError(f"a reply that is cut has at least one token: {reply}")


Place = tuple[Sink, int, Ticket]
"""(where the events of a piece of work go, its place in the submission, the submission's ticket)."""


class Patience(NamedTuple):
    """Patience of a caller, on the clock of its answer."""

    seconds: float
    whole: bool
    """For the whole answer, rather than for each token."""


class PlayedRow:
    """A request's reply while it is played."""

    def __init__(
        self,
        request: GenerationRequest,
        place: Place,
        script: Script,
        model: ScriptedModel,
        obey_guide: bool,
        clock: Clock = REAL,
        patience: Patience | None = None,
    ) -> None:
        self.sink, self.index, self.ticket = place
        self.clock, self.due, self.hangs = clock, 0.0, False
        """Time of the next event, on the clock; a row that hangs waits for it without moving the clock on."""
        self._patience, self._began, self._expires = patience, clock.now, False
        self.reply, self._cut = script.reply, script.reply.finish_reason == "length"
        self._request, self._script, self._tokenizer = request, script, model.tokenizer
        self._eos = model.eos_token_ids
        self._constraint = request.constraint if obey_guide else None
        biases = request.sampling.logit_bias if obey_guide else {}
        self._banned = {i for i, bias in biases.items() if bias == -math.inf}
        self._max_tokens = request.max_tokens
        if model.context_length is not None:
            self._max_tokens = min(self._max_tokens, model.context_length - len(request.prompt.tokens))
        self._at = 0
        self._output: list[int] = []
        _make_up_scores(request.prompt)
        now = time.monotonic()
        timings = request.timings
        timings.queued = timings.begun = timings.prefilled = now
        timings.output = self._output

    @property
    def generated(self) -> int:
        """Output tokens so far."""
        return len(self._output)

    def takes_no_time(self, most: int) -> bool:
        """It takes no time to play, and has at most `most` tokens."""
        reply, request = self.reply, self._request
        waits = reply.delay or reply.interval or reply.hang
        return not (waits or request.ignore_eos or max(request.min_tokens, len(self._script.ids)) > most)

    def wait(self, seconds: float) -> None:
        """The next event comes after these seconds, unless the caller loses patience before that."""
        now = self.clock.now
        if self.reply.hang and len(self._output) == self._script.fails_after:
            seconds = math.inf
        self.due, self.hangs = now + seconds, seconds == math.inf
        if self._patience is not None:
            deadline = (self._began if self._patience.whole else now) + self._patience.seconds
            self._expires = self.due > deadline
            self.due = min(self.due, deadline)

    def seconds_until_due(self) -> float:
        """Real seconds until the next event; inf if the clock must be advanced."""
        seconds = self.clock.seconds_until(self.due)
        return math.inf if self.hangs and seconds and self.clock.mode != "real" else seconds

    def next(self) -> Event:
        """The row's next event."""
        if self._expires:
            return Failure(TimeoutError())
        try:
            return self._play()
        except RowError as error:
            return Failure(error)
        except Exception as error:
            failure = RowError(f"the stop check or the grammar constraint of this request failed: {error!r}")
            failure.__cause__ = error
            return Failure(failure)

    def _play(self) -> Event:
        script, request = self._script, self._request
        if len(self._output) == script.fails_after:
            return Failure(self.reply.error or RowError("the script fails this request here"))
        position = self._next_position()
        token_id = self._tokenizer.eos_token_id if position is None else script.ids[position]
        if token_id in self._banned:
            self._refuse(token_id)
        stopped = request.stop is not None and request.stop.feed(token_id)
        constraint_ended = self._constraint is not None and self._advance_constraint(token_id)
        self._output.append(token_id)
        self._at = 0 if position is None else position + 1
        is_eos = token_id in self._eos
        ends = is_eos and not request.ignore_eos and len(self._output) > request.min_tokens
        ends = ends or stopped or token_id in request.stop_token_ids
        if constraint_ended and not ends and 0 < self._at < len(script.ids):
            self._refuse(script.ids[self._at])
        reason: FinishReason | None = None
        if ends or constraint_ended:
            reason = "stop"
        elif len(self._output) >= self._max_tokens or (self._cut and position == len(script.ids) - 1):
            reason = "length"
        self._note(reason)
        logprob, top = self._logprobs(token_id, LIKELY_LOGPROB if position is None else script.logprobs[position])
        return Token(token_id, logprob, top, reason, is_eos)

    def _note(self, reason: FinishReason | None) -> None:
        timings, now = self._request.timings, time.monotonic()
        if timings.first_token is None:
            timings.first_token = now
        if reason is not None:
            timings.finished, timings.finish_reason, timings.batch_rows = now, reason, 1.0

    def _next_position(self) -> int | None:
        """The next token's index in the script; None for the end-of-sequence token that follows it."""
        ids = self._script.ids
        if self._at < len(ids):
            return self._at
        return 0 if ids and len(self._output) < self._request.min_tokens else None

    def _advance_constraint(self, token_id: int) -> bool:
        """Pass a token to the grammar constraint; where that does not allow it as it is, byte by byte, since the token
        may be newer than the constraint's vocabulary.

        Returns:
            True when nothing may follow.

        Raises:
            RowError: it is not allowed.
        """
        assert self._constraint is not None
        if self._allows(token_id):
            return self._constraint.accept(token_id)
        over = False
        for byte in self._tokenizer.spelling(token_id):
            if over or not self._allows(byte):
                self._refuse(token_id)
            over = self._constraint.accept(byte)
        return over

    def _allows(self, token_id: int) -> bool:
        assert self._constraint is not None
        import numpy as np  # here, since only constraints need it

        mask = np.zeros((len(self._tokenizer) + 31) // 32, np.int32)
        if not self._constraint.mask(mask) or token_id == self._constraint.escape:
            return True
        return bool(int(mask[token_id // 32]) >> (token_id % 32) & 1)

    def _refuse(self, token_id: int) -> None:
        text, before = (self._tokenizer.decode(ids) for ids in ([token_id], self._output))
        raise RowError(f"the script has what this request's grammar does not allow: {text!r} after {before!r}")

    def _logprobs(self, token_id: int, given: float | dict[int, float]) -> tuple[float | None, list[tuple[int, float]]]:
        """A token's logprob and its alternatives, as far as the request asks for them."""
        wanted = self._request.sampling.top_logprobs
        if wanted is None:
            return None, []
        logprobs = given if isinstance(given, dict) else _with_alternatives(token_id, given)
        likeliest = sorted(logprobs.items(), key=lambda item: -item[1])
        return logprobs[token_id], likeliest[:wanted]


LIKELY_LOGPROB = math.log(0.9)
NEVER_LOGPROB = -9999.0  # as OpenAI writes it


def _make_up_scores(prompt: Prompt) -> None:
    """Give a prompt's tokens the logprobs of a reply's, where the request asks for them."""
    if prompt.top_logprobs is None or prompt.scores is not None:
        return
    prompt.scores = []
    for token_id in prompt.tokens[1:]:
        likeliest = list(_with_alternatives(token_id, LIKELY_LOGPROB).items())
        prompt.scores.append(TokenScore(LIKELY_LOGPROB, 1, likeliest[: prompt.top_logprobs]))


def _with_alternatives(token_id: int, logprob: float) -> dict[int, float]:
    """A token's logprob and those of letters, each of which has half of the probability that is left before it."""
    rest = 1.0 - math.exp(logprob)
    others = [letter for letter in b"abcdefghijklmnopqrstuvwxyz" if letter != token_id]
    alternatives = {
        letter: math.log(rest) - (i + 1) * math.log(2) if rest > 0 else NEVER_LOGPROB for i, letter in enumerate(others)
    }
    return {token_id: logprob} | alternatives

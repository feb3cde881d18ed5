"""The engine behind a scripted client: it sees whole requests, and decides what each is answered with."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from ..output.formats.values import json_or_text
from ..runtime.served_models import serve_like
from ..types import EmbeddingRequest, Event, GenerationRequest, Prompt, SamplingParams, Sink, Ticket, deliver_events
from . import failures, marks
from .answers import Answer, Mark, Marked, Reasoning, ToolCall, Trouble, part_text
from .callables import decide
from .checks import Budget
from .made_up import make_up, random_numbers, steer
from .model.clock import Clock, ClockMode
from .model.engine import ScriptedEngine, is_last
from .model.replies import Patience, PlayedRow, Reply
from .model.replies import Script as PlayedScript
from .model.tokenizer import ScriptedTokenizer
from .model.vectors import Pair, PlayedEmbedding
from .requests import Request, api_of, plain
from .script import Script, UnexpectedRequest

if TYPE_CHECKING:
    from ..client.call import Call
    from ..endpoints.prepared import Prepared

MAX_INLINE_TOKENS = 4096
"""Answers that may have more are played step by step: with `ignore_eos` they go on for ever."""


@dataclass(frozen=True, slots=True)
class _StagedRequest(GenerationRequest):
    """A row, with the reply that was chosen for it."""

    reply: PlayedScript | None = None
    asked: Request | None = None
    patience: Patience | None = None


MAX_DIMENSIONS = 3072


class _StagedEmbedding(PlayedEmbedding):
    """The same for vectors."""

    __slots__ = ("dimensions", "patience", "reply")
    dimensions: int
    """Of vectors that are made up."""
    reply: Reply
    patience: Patience | None


class Stage(ScriptedEngine):
    """Plays a script to the clients that share it, and remembers what they asked.

    An answer that takes no time is played at once, on its caller's thread; others have a thread, which ends with the
    engine.

    Args:
        model: `response.model` in the answers.
        seed: of the answers that are made up.
        clock: how time passes, see `Clock`.
        context_length: most tokens of prompt and output together.

    Attributes:
        calls: the requests so far.
        raised: what a script's functions raised, and requests that no reply was scripted for.
    """

    def __init__(
        self,
        *,
        model: str = "scripted",
        seed: int = 0,
        clock: ClockMode = "instant",
        context_length: int | None = 131_072,
    ) -> None:
        super().__init__(
            name=model, context_length=context_length, tokenizer=_usual().tokenizer, dimensions=MAX_DIMENSIONS
        )
        serve_like(self, _usual())
        self.seed, self.clock, self.script = seed, Clock(clock), Script()
        self.calls: list[Request] = []
        self.raised: list[BaseException] = []
        self.budgets: list[Budget] = []
        self.clock.on_change(self._player.wake)

    def stage_call(self, call: Call, prepared: Prepared) -> Prepared:
        """Choose the replies to a request. Runs where the request was prepared, just before it is submitted.

        Raises:
            openai.APIError: the script has the request fail.
            UnexpectedRequest: the script has no reply.
            Exception: what a function of the script raised.
        """
        if prepared.embedding is not None:
            prepared.embedding = self._stage_vectors(call, prepared.embedding)
        if not prepared.requests:
            return prepared
        prompts = {id(each.prompt): each.prompt.tokens for each in prepared.requests}
        asked = self._note(call, list(prompts.values()))
        try:
            played = [self._choose(call, replace(asked, choice=i), each) for i, each in enumerate(prepared.requests)]
        except BaseException as error:
            asked.errors.append(error)
            raise
        marked = {i: mark for i, (_, mark) in enumerate(played) if mark is not None}
        if marked:
            marks.apply_marks(prepared.assembler, marked)
        patience = None if call.timeout is None else Patience(call.timeout, not prepared.stream)
        prepared.requests = [
            _StagedRequest(
                **{field.name: getattr(each, field.name) for field in fields(GenerationRequest)},
                reply=reply,
                asked=asked,
                patience=patience,
            )
            for each, (reply, _) in zip(prepared.requests, played, strict=True)
        ]
        return prepared

    def failed_with(self, error: BaseException) -> bool:
        """True if a script made a request fail with this exception."""
        return any(error is each for call in reversed(self.calls) for each in call.errors)

    def problems(self) -> list[str]:
        """Problems of the script: what it raised, requests without a reply, replies and budgets."""
        raised = [f"{type(error).__name__}: {error}" for error in self.raised]
        budgets = [budget for budget in self.budgets if not budget.is_over]
        over = [problem for budget in budgets if (problem := budget.over()) is not None]
        return [*raised, *self.script.left(), *over]

    def report(self) -> list[str]:
        """List the requests that were made, a line for each."""
        return [f"{i}. {call.brief()}{call.outcome()}" for i, call in enumerate(self.calls, 1)]

    # -----------------------------------------------------------------------------------------------------------

    def embed(self, request: EmbeddingRequest, sink: Sink) -> Ticket:
        """Play what was chosen for a request, or make it up."""
        self._check_open()
        if not isinstance(request, _StagedEmbedding):
            raise UnexpectedRequest("a scripted client's engine answers its clients only")
        self._give_vectors(request, request.dimensions)
        ticket, script = Ticket(), PlayedScript(request.reply, self.tokenizer)
        once = GenerationRequest(Prompt([]), SamplingParams(), 1)
        self._play([PlayedRow(once, sink, 0, ticket, script, self.model, False, self.clock, request.patience)])
        self.embedded.append(request.asked)
        return ticket

    def _stage_vectors(self, call: Call, request: EmbeddingRequest) -> EmbeddingRequest:
        asked = self._note(call, request.texts)
        asked.texts = [t.document if isinstance(t, Pair) else self.tokenizer.decode(t) for t in request.texts]
        try:
            taken = self.script.take(asked)
            answer = Answer() if taken is None else decide(taken[0], asked)
            rows = rows_of(answer, asked) if taken is not None and answer.trouble is None else None
        except BaseException as error:
            self.raised.append(error)
            asked.errors.append(error)
            raise
        trouble = answer.trouble
        if trouble is not None and trouble.kind != "hang":
            asked.errors.append(self._failure(trouble, call))
            raise asked.errors[-1]
        staged = _StagedEmbedding(request, rows)
        staged.dimensions = max(_dimensions(asked.model), asked.body.get("dimensions") or 0)
        staged.reply = Reply("", hang=trouble is not None)
        staged.patience = None if call.timeout is None else Patience(call.timeout, True)
        return staged

    def _note(self, call: Call, prompts: Sequence[Sequence[int]]) -> Request:
        asked = Request(
            api=api_of(call.path),
            body=plain(call.body),
            prompt="\n".join(map(self.tokenizer.decode, prompts)),
            prompt_tokens=sum(map(len, prompts)),
            attempt=call.attempt,
        )
        self.calls.append(asked)
        return asked

    def _choose(self, call: Call, asked: Request, request: GenerationRequest) -> tuple[PlayedScript, Mark | None]:
        """Choose the script that a choice plays, and its mark."""
        try:
            taken = self.script.take(asked)
            answer = self._made_up(asked, request) if taken is None else decide(taken[0], asked)
            reply, mark = self._reply(answer, asked)
            played = PlayedScript(replace(reply, fail_after=answer.tokens, hang=True), self.tokenizer)
        except BaseException as raised:
            self.raised.append(raised)
            raise
        trouble = answer.trouble
        if trouble is None:
            return PlayedScript(reply, self.tokenizer), mark
        if trouble.kind == "hang":
            return played, mark
        if not played.fails_after:
            raise self._failure(trouble, call)
        error = failures.exception(trouble, call, begun=True)
        asked.errors.append(error)
        return PlayedScript(replace(reply, error=error, fail_after=answer.tokens), self.tokenizer), mark

    def _failure(self, trouble: Trouble, call: Call) -> Exception:
        """Make the error with which a request fails at once; a timeout takes its time."""
        if trouble.kind == "timeout" and call.timeout is not None:
            self.clock.reach(self.clock.now + call.timeout)
        return failures.exception(trouble, call)

    def _made_up(self, asked: Request, request: GenerationRequest) -> Answer:
        """An answer that the request allows."""
        numbers = random_numbers(asked, self.seed)
        answer = make_up(asked, numbers)
        if request.constraint is None:
            return answer
        text = "".join(map(str, self._reply(answer, asked)[0].content))
        asked.tool_calls.clear()  # the one that is played notes them
        tokens = steer(text, request.constraint, self.tokenizer, numbers)
        return answer if tokens == self.tokenizer.encode(text) else Answer(reply=Reply(tokens))

    def _reply(self, answer: Answer, asked: Request) -> tuple[Reply, Mark | None]:
        """An answer's parts in the model's markup."""
        if not answer.parts:
            return answer.reply, None
        text, mark = "", None
        for i, part in enumerate(answer.parts, 1):
            if isinstance(part, ToolCall):
                text += self._call(part, asked, last=i == len(answer.parts))
            elif isinstance(part, Reasoning):
                text += f"{self.tokenizer.think_start}{part.text}{self.tokenizer.think_end}"
            elif isinstance(part, Marked):
                text, mark = text + part.text, part.mark
            else:
                text += part_text(part)
        ends = "length" if mark == "content_filter" else answer.reply.finish_reason
        pieces = self.tokenizer.split(text) or [""] * (ends == "length")
        return replace(answer.reply, content=pieces, finish_reason=ends), mark

    def _call(self, call: ToolCall, asked: Request, *, last: bool) -> str:
        """A call as the model writes it; `last`: the answer ends with it."""
        if call.offered and call.name not in asked.tool_names:
            offered = f"only {', '.join(asked.tool_names)}" if asked.tool_names else "no tools at all"
            raise UnexpectedRequest(
                f"the reply calls '{call.name}', but {asked.brief()} offers {offered}; "
                f"to play it nevertheless, script tool_call({call.name!r}, ..., offered=False)"
            )
        asked.tool_calls.append((call.name, json_or_text(call.text)))
        written = call.text
        if call.name in asked.custom_tool_names:
            written = json.dumps({"input": call.text}, ensure_ascii=False)
        elif _begins_with_json(written) and not isinstance(json_or_text(written), dict):
            written = json.dumps(written, ensure_ascii=False)  # what follows a whole value would be none of the call's
        start, end = self.tokenizer.tool_call_start, self.tokenizer.tool_call_end
        # The parser takes text that is not JSON up to its end: a marker behind an open string would be part of it.
        rest = f"}}\n{end}" if json_or_text(written) is not written else f"\n{end}" * (not last)
        return f'{start}\n{{"name": {json.dumps(call.name)}, "arguments": {written}{rest}'

    def _row(self, request: GenerationRequest, sink: Sink, index: int, ticket: Ticket) -> PlayedRow:
        if not isinstance(request, _StagedRequest) or request.reply is None or request.asked is None:
            raise UnexpectedRequest("a scripted client's engine answers its clients only")
        row = PlayedRow(request, sink, index, ticket, request.reply, self.model, False, self.clock, request.patience)
        request.asked.choices.append(row)
        return row

    def _play(self, rows: list[PlayedRow]) -> None:
        if not all(row.takes_no_time(MAX_INLINE_TOKENS) for row in rows):
            super()._play(rows)
            return
        events: list[tuple[PlayedRow, Event]] = []
        left = rows
        while left:
            step = [(row, row.next()) for row in left]
            events += step
            left = [row for row, event in step if not is_last(event)]
        deliver_events(events, ())


def _dimensions(model: str) -> int:
    """Number of dimensions that OpenAI's models have."""
    return MAX_DIMENSIONS if model == "text-embedding-3-large" else 1536


def rows_of(answer: Answer, asked: Request) -> Sequence[Sequence[float]]:
    """A vector for each text of a request; one of them may be for all.

    Raises:
        UnexpectedRequest: the answer has none, or another number of them.
    """
    if answer.vectors is None or answer.vectors.api != asked.api:
        kind = "relevance(0.9, 0.1)" if asked.api == "rerank" else "embedding([0.6, 0.8])"
        raise UnexpectedRequest(f"{asked.brief()} is answered with {kind}, or a failure, and not with {answer!r}")
    rows = answer.vectors.rows
    if len(rows) not in (len(asked.texts), 1 if asked.api == "embeddings" else -1):
        raise UnexpectedRequest(f"the reply has {len(rows)} vectors, and {asked.brief()} wants {len(asked.texts)}")
    return rows if len(rows) == len(asked.texts) else rows * len(asked.texts)


def _begins_with_json(text: str) -> bool:
    try:
        json.JSONDecoder().raw_decode(text)
    except ValueError:
        return False
    return True


@functools.cache
def _usual() -> ScriptedEngine:
    """Engine for all scripted clients, made once: a tokenizer, and the endpoints' description of its model."""
    return ScriptedEngine(tokenizer=ScriptedTokenizer())

"""The engine behind a scripted client: it sees whole requests, and decides what each is answered with."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

import openai

from ..errors import BadRequest, RequestError
from ..formats.values import json_or_text
from ..runtime.served_models import serve
from ..sdk import private as sdk
from ..sdk.event_stream import CUT
from ..speech import SAMPLE_RATE, Spoken
from ..types import (
    EmbeddingRequest,
    GenerationRequest,
    Prompt,
    RecognitionRequest,
    RowError,
    SamplingParams,
    SpeechRequest,
    Work,
)
from . import marks
from .answers import Answer, Mark, Marked, Reasoning, ToolCall, Trouble, part_text
from .audio.uploads import describe
from .checks import Budget
from .made_up import make_up, random_numbers, steer
from .model.clock import Clock, ClockMode
from .model.engine import NO_TOKENS, ScriptedEngine
from .model.replies import Pair, Patience, Place, PlayedRow, Reply
from .model.replies import Script as PlayedScript
from .model.sounds import PlayedSpeech, PlayedTranscript, make_up_speech, speech_reply
from .model.tokenizer import ScriptedTokenizer
from .requests import Request, api_of, plain
from .script import Script, UnexpectedRequest, decide, says_nothing

if TYPE_CHECKING:
    import httpx2 as httpx

    from ..client.call import Call
    from ..endpoints.turn import Turn
else:
    httpx = sdk.httpx


def as_exception(trouble: Trouble, call: Call, *, begun: bool = False) -> Exception:
    """Make the exception that the caller of a request gets.

    Args:
        trouble: what goes wrong; not a hang.
        call: the request.
        begun: after the first tokens of the answer. An error in the middle of a stream has no status any more.
    """
    if trouble.kind == "timeout":
        late = openai.APITimeoutError(request=call.request)
        late.__cause__ = httpx.ReadTimeout("timed out")
        return late
    if trouble.kind == "connection":
        lost = openai.APIConnectionError(message=trouble.message, request=call.request)
        lost.__cause__ = httpx.RemoteProtocolError(CUT) if begun else httpx.ConnectError("Connection refused")
        return lost
    error = trouble.error
    assert error is not None
    if not isinstance(error, RequestError) or trouble.kind == "raise":
        return error
    if not begun or not call.body.get("stream"):
        return sdk.status_error(call.client, error, call.request)
    if call.path.startswith("/responses"):
        return RowError(trouble.message)  # which becomes the stream's last events
    return openai.APIError(trouble.message, request=call.request, body=error.body()["error"])


MAX_DIMENSIONS = 3072


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

    max_inline_tokens = 4096  # longer ones are played step by step: with `ignore_eos` they go on for ever

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
        self.model.takes_any_token = True
        serve(self, serve(_usual()))  # to describe a model takes longer than many tests
        self.seed, self.clock, self.script = seed, Clock(clock), Script()
        self.calls: list[Request] = []
        self.raised: list[BaseException] = []
        self.budgets: list[Budget] = []
        self.clock.on_change(self._player.wake)

    def stage_call(self, call: Call, turn: Turn) -> None:
        """Choose the replies to a round of a request's turn. Runs just before the round is submitted.

        Raises:
            openai.APIError: the script has the request fail.
            RequestError: the script has no reply, or one of its functions raised; that is the cause.
        """
        if turn.works:
            try:
                match turn.works:
                    case [RecognitionRequest() as work]:
                        self._stage_transcription(call, turn, work)
                    case [SpeechRequest() as work]:
                        self._stage_speech(call, turn, work)
                    case [EmbeddingRequest() as work]:
                        self._stage_vectors(call, turn, work)
                    case rows:
                        self._stage_rows(call, turn, [row for row in rows if isinstance(row, GenerationRequest)])
            except (openai.OpenAIError, RequestError):
                raise
            except Exception as error:
                if any(error is each for each in self.raised):
                    raise _refusal(error) from error
                raise

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

    def _stage_rows(self, call: Call, turn: Turn, rows: Sequence[GenerationRequest]) -> None:
        prompts = {id(each.prompt): each.prompt.tokens for each in rows}
        asked = self._note(call, list(prompts.values()))
        with _noting_errors(asked.errors):
            later = sum(map(bool, turn.rounds)) > 1
            each_asked = [(replace(asked, choice=i), each) for i, each in enumerate(rows)]
            played = [self._choose(call, one, each, later=later)[1:] for one, each in each_asked]
        marked = {i: mark for i, (_, mark) in enumerate(played) if mark is not None}
        if marked:
            marks.apply_marks(turn.assembler, marked)
        for each, (script, _) in zip(rows, played, strict=True):
            self._set_reply(call, turn, asked, each, partial(PlayedRow, script=script, obey_guide=False))

    def _stage_vectors(self, call: Call, turn: Turn, request: EmbeddingRequest) -> None:
        asked = self._note(call, request.texts)
        asked.texts = [t.document if isinstance(t, Pair) else self.tokenizer.decode(t) for t in request.texts]
        with _noting_errors(self.raised, asked.errors):
            taken = self.script.take(asked)
            answer = Answer() if taken is None else decide(taken[0], asked)
            rows = rows_of(answer, asked) if taken is not None and answer.trouble is None else None
        trouble = answer.trouble
        if trouble is not None and trouble.kind != "hang":
            asked.errors.append(self._failure(trouble, call))
            raise asked.errors[-1]
        usual = MAX_DIMENSIONS if asked.model == "text-embedding-3-large" else 1536  # as OpenAI's models have them
        dimensions = max(usual, asked.body.get("dimensions") or 0)
        end = NO_TOKENS if trouble is None else replace(NO_TOKENS, hang=True)
        given = partial(self._vectors, rows=rows, dimensions=dimensions, reply=end)
        request.reply = partial(given, clock=self.clock, patience=_patience(call, turn))

    def _stage_transcription(self, call: Call, turn: Turn, work: RecognitionRequest) -> None:
        asked = self._note(call, [self.tokenizer.encode(work.prompt or "")])
        with _noting_errors(asked.errors):
            plain_row = GenerationRequest(Prompt([]), SamplingParams(), 1)
            answer, script, _ = self._choose(call, asked, plain_row)
            self._check_times(answer, asked, work)
        self._set_reply(call, turn, asked, work, partial(PlayedTranscript, script=script, heard=answer.heard))

    def _check_times(self, answer: Answer, asked: Request, work: RecognitionRequest) -> None:
        """Check that a file is as long as its segments say.

        Raises:
            UnexpectedRequest: it is shorter.
        """
        seconds, end = len(work.samples) / SAMPLE_RATE, 0.0 if answer.heard is None else answer.heard.end
        if end > seconds:
            text = f"the reply has a segment that ends at {end:g} s, and the file of {asked.brief()} has {seconds:g} s"
            self.raised.append(UnexpectedRequest(text))
            raise self.raised[-1]

    def _stage_speech(self, call: Call, turn: Turn, work: SpeechRequest) -> None:
        asked = self._note(call, [self.tokenizer.encode(work.text)])
        with _noting_errors(self.raised, asked.errors):
            taken = self.script.take(asked)
            answer = Answer() if taken is None else decide(taken[0], asked)
            pieces, script = self._speech(answer, asked, work)
        trouble = answer.trouble
        if trouble is not None and trouble.kind != "hang":
            begun = bool(answer.tokens)
            error = as_exception(trouble, call, begun=True) if begun else self._failure(trouble, call)
            asked.errors.append(error)
            if not begun:
                raise error
            script.reply = replace(script.reply, error=error, hang=False)
        self._set_reply(call, turn, asked, work, partial(PlayedSpeech, script=script, pieces=pieces))

    def _set_reply(self, call: Call, turn: Turn, asked: Request, work: Work, play: Callable[..., PlayedRow]) -> None:
        """Answer a piece of work with what `play` makes of it and its place."""
        played = partial(play, model=self._model, clock=self.clock, patience=_patience(call, turn))

        def reply(work: Work, place: Place) -> PlayedRow:
            row = played(work, place)
            asked.choices.append(row)
            return row

        work.reply = reply

    def _speech(self, answer: Answer, asked: Request, work: SpeechRequest) -> tuple[Sequence[Spoken], PlayedScript]:
        """The pieces of an answer, and the script that plays them; with a trouble, it hangs where that comes."""
        if answer.sound is None and not says_nothing(answer):
            raise UnexpectedRequest(f"{asked.brief()} is answered with speech(...), or a failure, not with {answer!r}")
        pieces = make_up_speech(work) if answer.sound is None else answer.sound.pieces()
        reply = replace(answer.reply, content=speech_reply(pieces).content, finish_reason="stop")
        if answer.trouble is not None:
            reply = replace(reply, fail_after=answer.tokens or 0, hang=True)
        return pieces, PlayedScript(reply, self.tokenizer)

    def _note(self, call: Call, prompts: Sequence[Sequence[int]]) -> Request:
        body = {name: plain(value) for name, value in call.body.items()}
        if "file" in body:
            body["file"] = describe(call.body["file"])
        asked = Request(
            api=api_of(call.path),
            body=body,
            prompt="\n".join(map(self.tokenizer.decode, prompts)),
            prompt_tokens=sum(map(len, prompts)),
            attempt=call.attempt,
        )
        self.calls.append(asked)
        return asked

    def _choose(
        self, call: Call, asked: Request, request: GenerationRequest, *, later: bool = False
    ) -> tuple[Answer, PlayedScript, Mark | None]:
        """Choose the answer of a choice, the script that plays it, and its mark.

        Args:
            later: the answer has called hosted tools before.
        """
        with _noting_errors(self.raised):
            taken = self.script.take(asked)
            answer = self._made_up(asked, request, later=later) if taken is None else decide(taken[0], asked)
            reply, mark = self._reply(answer, asked)
            played = PlayedScript(replace(reply, fail_after=answer.tokens, hang=True), self.tokenizer)
        trouble = answer.trouble
        if trouble is None:
            return answer, PlayedScript(reply, self.tokenizer), mark
        if trouble.kind == "hang":
            return answer, played, mark
        if not played.fails_after:
            raise self._failure(trouble, call)
        error = as_exception(trouble, call, begun=True)
        asked.errors.append(error)
        return answer, PlayedScript(replace(reply, error=error, fail_after=answer.tokens), self.tokenizer), mark

    def _failure(self, trouble: Trouble, call: Call) -> Exception:
        """Make the error with which a request fails at once; a timeout takes its time."""
        if trouble.kind == "timeout" and call.timeout is not None:
            self.clock.reach(self.clock.now + call.timeout)
        return as_exception(trouble, call)

    def _made_up(self, asked: Request, request: GenerationRequest, *, later: bool) -> Answer:
        """An answer that the request allows."""
        numbers = random_numbers(asked, self.seed)
        answer = make_up(asked, numbers, later=later)
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
            if asked.has_sound and isinstance(part, ToolCall | Reasoning | Marked):
                raise UnexpectedRequest(
                    f"{asked.brief()} is answered with a text, transcription(...), or a failure, not with {part!r}"
                )
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
        tool = asked.offered_tool(call.name)
        if tool is None and call.offered:
            offered = f"only {', '.join(asked.tool_names)}" if asked.tool_names else "no tools at all"
            raise UnexpectedRequest(
                f"the reply calls '{call.name}', but {asked.brief()} offers {offered}; "
                f"to play it nevertheless, script tool_call({call.name!r}, ..., offered=False)"
            )
        name, full_name = (call.name, call.name) if tool is None else (tool.written_name, tool.full_name)
        asked.tool_calls.append((full_name, json_or_text(call.text)))
        written = call.text
        if tool is not None and tool.is_custom:
            written = json.dumps({"input": call.text}, ensure_ascii=False)
        elif _begins_with_json(written) and not isinstance(json_or_text(written), dict):
            written = json.dumps(written, ensure_ascii=False)  # what follows a whole value would be none of the call's
        start, end = self.tokenizer.tool_call_start, self.tokenizer.tool_call_end
        # The parser takes text that is not JSON up to its end: a marker behind an open string would be part of it.
        rest = f"}}\n{end}" if json_or_text(written) is not written else f"\n{end}" * (not last)
        return f'{start}\n{{"name": {json.dumps(name)}, "arguments": {written}{rest}'


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


@contextlib.contextmanager
def _noting_errors(*lists: list[BaseException]) -> Iterator[None]:
    """Note what is raised."""
    try:
        yield
    except BaseException as error:
        for errors in lists:
            errors.append(error)
        raise


def _patience(call: Call, turn: Turn) -> Patience | None:
    return None if call.timeout is None else Patience(call.timeout, not turn.stream)


def _refusal(error: Exception) -> RequestError:
    """The error that code which makes its own client gets for a fault of the script: no code retries a 400."""
    if isinstance(error, UnexpectedRequest):
        return BadRequest(str(error), code="not_scripted")
    return BadRequest(f"A function of the script raised {error!r}.", code="script_failed")


def _begins_with_json(text: str) -> bool:
    try:
        json.JSONDecoder().raw_decode(text)
    except ValueError:
        return False
    return True


@cache
def _usual() -> ScriptedEngine:
    """Engine for all scripted clients, made once: a tokenizer, and the endpoints' description of its model."""
    return ScriptedEngine(tokenizer=ScriptedTokenizer())

"""An engine that plays a cassette: its tokens are what was recorded, through the same output code as a model's."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...endpoints.hosted.table import BY_NAME
from ...endpoints.responses.mcp import McpAssembler
from ...runtime.served_models import serve
from ...types import EmbeddingRequest, GenerationRequest, Json, RecognitionRequest, SpeechRequest, Work
from .. import marks
from ..answers import Mark
from ..audio.uploads import describe, read_again
from ..model.engine import ScriptedEngine
from ..model.replies import LIKELY_LOGPROB, Logprob, Place, PlayedRow, Reply, Script
from ..model.tokenizer import Piece, ScriptedTokenizer
from ..requests import api_of, plain
from . import audio, hosted, mcp
from .cassette import Cassette, RecordMode, Upload
from .matching import Normalize, delivery
from .tape import Interaction, spelling_bytes

if TYPE_CHECKING:
    import openai

    from ...client.call import Call
    from ...client.local import LocalOpenAI
    from ...endpoints.turn import Turn

_ENDLESS = 2**31
"""Most tokens of a recorded answer: it ends where it ended."""


@contextlib.contextmanager
def play_cassette(
    path: str | Path,
    *,
    record_mode: RecordMode = "none",
    source: openai.OpenAI | None = None,
    normalize: Normalize | None = None,
) -> Iterator[LocalOpenAI]:
    """Client that answers from a cassette inside the context. The cassette is saved unless the context raises.

    Args:
        path: File of the cassette.
        record_mode: "none", "once", "new_episodes", "all", or "rewrite", as for pytest's `--record-mode`.
        source: Client that answers while recording: a local client, or any other sync client of the SDK.
        normalize: Replacements in texts of requests, such as `{r"\\d{4}-\\d\\d-\\d\\d": "<date>"}`, or a function of a
            text. Normalizing a normalized text must not change it.

    Example:
        >>> import os, tempfile
        >>> from localai_shim.testing import play_cassette, scripted
        >>> path = os.path.join(tempfile.mkdtemp(), "hello.jsonl")
        >>> with scripted("Hello!") as source, play_cassette(path, record_mode="once", source=source) as client:
        ...     answer = client.responses.create(model="any", input="Hi")
        >>> with play_cassette(path) as client:  # and now without it
        ...     client.responses.create(model="any", input="Hi").output_text
        'Hello!'
    """
    from ...client.local import LocalOpenAI

    cassette = Cassette(Path(path), record_mode, source, [normalize])
    with CassetteEngine(cassette) as engine, LocalOpenAI(engine=engine) as client:
        yield client
    cassette.save()


class CassetteEngine(ScriptedEngine):
    """Plays a cassette to clients, and records what is missing if its mode allows that.

    Args:
        cassette: what it plays.
    """

    def __init__(self, cassette: Cassette) -> None:
        super().__init__(name="cassette", context_length=None, dimensions=_ENDLESS)
        self.model.takes_any_token = True
        self.cassette = cassette
        described = serve(ScriptedEngine(tokenizer=self.tokenizer))
        hooks: dict[str, Callable[..., object]] = dict.fromkeys(BY_NAME, hosted.not_recorded)
        serve(self, replace(described, hooks={**hooks, "mcp": mcp.PlayedServers()}))

    def stage_call(self, call: Call, turn: Turn) -> None:
        """Put what was recorded into the place of what a model would say. Runs where the request was turn."""
        if not (turn.works or isinstance(turn.assembler, McpAssembler)):
            return
        try:
            played = self.cassette.answer(api_of(call.path), _request(call), self._file(call))
        except RecursionError:
            refused = f"{self.cassette.path}: a request is nested so deeply that it cannot be compared."
            raise self.cassette.refuse(refused) from None
        hosted.replay(turn.assembler, played)
        turn.stage = partial(self._stage_round, played)
        self._stage_round(played, turn)
        chosen = range(len(turn.works) or 1)
        marked: dict[int, Mark] = {index: mark for index in chosen if (mark := _mark(played, index)) is not None}
        marks.apply_marks(turn.assembler, marked)
        marks.change_answers(turn.assembler, lambda answer: _sign(answer, played))

    def _file(self, call: Call) -> Upload | None:
        """The file that a request transcribes.

        Raises:
            RequestError: it cannot be read twice.
        """
        if "file" not in call.body:
            return None
        found = read_again(call.body["file"])
        if found is None:
            text = f"{self.cassette.path}: the file is a stream that can be read once only. Pass its bytes."
            raise self.cassette.refuse(text)
        return found

    def _stage_round(self, played: Interaction, turn: Turn) -> None:
        """Put what was recorded of a round into the place of what a model would say."""
        for index, work in enumerate(turn.works):
            number = sum(map(bool, turn.rounds)) - 1  # before the first round, MCP servers list their tools
            work.reply = partial(self._replay, hosted.round_of(played, number), index)

    def _replay(self, played: Interaction, choice: int, work: Work, place: Place) -> PlayedRow:
        """The row of a recorded answer, which ends where that ended, whatever else was asked for; or its vectors."""
        if isinstance(work, EmbeddingRequest):
            return self._vectors(work, place, played.vectors())
        if isinstance(work, SpeechRequest):
            return audio.play_speech(played, work, place, self.model)
        if isinstance(work, RecognitionRequest):
            reply = _reply(played, choice, self.tokenizer)
            return audio.play_transcription(played, work, place, reply, self.model)
        assert isinstance(work, GenerationRequest)
        reply = _reply(played, choice, self.tokenizer)
        row = GenerationRequest(work.prompt, work.sampling, _ENDLESS, timings=work.timings)
        return PlayedRow(row, place, Script(reply, self.tokenizer), self.model, False)


def _request(call: Call) -> Json:
    """Request as plain JSON; objects that the endpoint has stored replace their IDs."""
    body: Json = {name: plain(value) for name, value in call.body.items()}
    if "file" in body:
        body["file"] = describe(call.body["file"])
    left_out = delivery(api_of(call.path))
    stored = [name for name in ("previous_response_id", "conversation") if body.pop(name, None) is not None]
    if stored:
        body["input"] = [_item(item) for item in _items(call)]
    return {name: value for name, value in body.items() if name not in left_out and value is not None}


def _items(call: Call) -> Sequence[Json]:
    from ...endpoints.fields import Fields
    from ...endpoints.responses.context import read_context, read_input

    fields, store = Fields(call.body), call.runtime.store
    context = read_input(fields, read_context(fields, store), store)
    return [item for item in context.items if item["type"] != "reasoning"]


def _item(item: Json) -> Json:
    """An item without status and, except for MCP servers, without id: both differ from one store to the next."""
    left_out = ("status",) if item["type"] in mcp.TYPES else ("id", "status")
    return {name: value for name, value in item.items() if name not in left_out and value is not None}


# -- deltas to tokens -----------------------------------------------------------------------------------------------


def _reply(played: Interaction, choice: int, tokenizer: ScriptedTokenizer) -> Reply:
    """A choice's deltas in the model's markup; each is a token."""
    deltas = [delta for delta in played.deltas if delta.get("choice", 0) == choice]
    scored = any("tokens" in delta for delta in deltas)
    pieces: list[Piece] = []
    scores: dict[int, Logprob] = {}
    for delta, before, after in zip(deltas, [{}, *deltas], [*deltas[1:], {}], strict=False):
        thinking = "reasoning" in delta
        if thinking and "reasoning" not in before:
            pieces.append(_marker(tokenizer.think_start))
        text = delta.get("reasoning") or (not scored and (delta.get("content") or delta.get("refusal")))
        if text:
            pieces.append(text.encode())  # bytes are never a marker
        for token in delta.get("tokens", ()):
            piece = spelling_bytes(token["token"])
            scores[len(pieces)] = {spelling_bytes(other): logprob for other, logprob in token["top"]} | {
                piece: token["logprob"]
            }
            pieces.append(piece)
        if thinking and "reasoning" not in after:
            pieces.append(_marker(tokenizer.think_end))
    for index in dict.fromkeys(delta["call"] for delta in deltas if "call" in delta):
        pieces += _call([delta for delta in deltas if delta.get("call") == index], tokenizer)
    is_cut = played.end(choice) in ("length", "content_filter")
    pieces = pieces or [b""] * is_cut
    logprobs = [scores.get(i, LIKELY_LOGPROB) for i in range(len(pieces))] if scored else None
    return Reply(pieces, finish_reason="length" if is_cut else "stop", logprobs=logprobs)


def _mark(played: Interaction, choice: int) -> Mark | None:
    if played.refuses(choice):
        return "refusal"
    return "content_filter" if played.end(choice) == "content_filter" else None


def _marker(text: str | None) -> str:
    assert text is not None
    return text


def _call(deltas: Sequence[Json], tokenizer: ScriptedTokenizer) -> list[Piece]:
    """A call as the model writes it."""
    name = "".join(delta.get("name", "") for delta in deltas)
    written = [delta["arguments"] for delta in deltas if "arguments" in delta] or [hosted.arguments(deltas)]
    ending = b"}\n"
    is_hosted = any("item" in delta for delta in deltas)
    if not (is_hosted or _is_object("".join(written))):  # a custom tool's text, which models write as an argument
        written = ['{"input": "', *(json.dumps(text, ensure_ascii=False)[1:-1] for text in written), '"}']
    head = f'\n{{"name": {json.dumps(name)}, "arguments": '.encode()
    body = [text.encode() for text in written if text]
    return [_marker(tokenizer.tool_call_start), head, *body, ending, _marker(tokenizer.tool_call_end)]


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _complete(recorded: Json, made: Json) -> Json:
    """The usage that was recorded, with the made one's details if it has none: services leave fields out."""
    details = {name: value | (recorded.get(name) or {}) for name, value in made.items() if isinstance(value, dict)}
    return recorded | {name: value for name, value in details.items() if value}


def _sign(made: object, played: Interaction) -> None:
    """Give an answer the model, the fingerprint and the usage that were recorded."""
    answer = getattr(made, "response", made)
    if played.api.startswith("audio."):
        audio.sign(answer, played)
        return
    if hasattr(answer, "model"):
        answer.model = played.model
    if hasattr(answer, "system_fingerprint"):
        answer.system_fingerprint = played.fingerprint
    if hasattr(answer, "usage") and answer.usage is not None and played.usage is not None:
        answer.usage = type(answer.usage).model_validate(_complete(played.usage, answer.usage.to_dict()))
    for choice in getattr(answer, "choices", ()):
        if choice.finish_reason is not None:
            choice.finish_reason = played.end(choice.index) or choice.finish_reason

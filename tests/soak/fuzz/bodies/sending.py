"""Sends a request in the way that it names, and looks at what comes of it."""

from __future__ import annotations

import asyncio
import inspect
import json
import traceback
from typing import Any

import openai
import pydantic
from openai import AsyncStream, Stream
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, http_client
from localai_shim.testing import ScriptedEngine, ScriptedTokenizer
from localai_shim.testing.model.replies import Reply
from tests import inside
from tests.endpoints.responses.legal import check_stream as check_events
from tests.endpoints.responses.legal_response import revalidate
from tests.endpoints.scripting import check_stream as check_chunks
from tests.soak.fuzz.bodies.cases import Request, raw_json

SECONDS = 20.0
"""After which an answer has to be there: a thousand times what one takes."""
REPLIES = [
    "Hello there, how are you?",
    "",
    "<think>Let me see.</think>It is 5.",
    '<tool_call>\n{"name": "look_up", "arguments": {"a": "b"}}\n</tool_call>',
    '<tool_call>\n{"name": "look_up", "arguments": {"a": </tool_call> and <tool_call>',
    '{"a": "text", "b": 3}',
    "é🙂\u202e \0 <|im_end|> </think>",
    'Both. <tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>'
    '<tool_call>\n{"name": "x", "arguments": {"a": 1}}\n</tool_call>',
]
_CASTS: dict[str, tuple[Any, Any]] = {
    "/chat/completions": (ChatCompletion, ChatCompletionChunk),
    "/completions": (Completion, Completion),
    "/responses": (Response, ResponseStreamEvent),
    "/embeddings": (CreateEmbeddingResponse, None),
}


class Wrong(AssertionError):
    """A request did not end as one may."""


class Sender:
    """Clients for all requests of a block: of a scripted engine, and of a real model."""

    def __init__(self) -> None:
        self._reply = 0
        self.engine = ScriptedEngine(lambda *_: Reply(REPLIES[self._reply]), tokenizer=ScriptedTokenizer())
        self._scripted = (
            LocalOpenAI(engine=self.engine, timeout=SECONDS),
            AsyncLocalOpenAI(engine=self.engine, timeout=SECONDS),
        )
        self._real = LocalOpenAI(timeout=SECONDS), AsyncLocalOpenAI(timeout=SECONDS)
        self._http = http_client(engine=self.engine, timeout=SECONDS)
        self._loop = asyncio.Runner()
        conversation = self._scripted[0].conversations.create(items=[])
        self._conversation = conversation.id
        self.outcomes: dict[str, int] = {}

    def close(self) -> None:
        self._loop.run(self._scripted[1].close())
        self._loop.run(self._real[1].close())
        self._loop.close()
        self._scripted[0].close()
        self._real[0].close()
        self._http.close()
        self.engine.close()

    def check(self, request: Request) -> None:
        """Send a request.

        Raises:
            Wrong: it ended otherwise than with a valid answer or the SDK's error, or something was left.
        """
        self._reply = request.reply
        try:
            if request.way == "raw":
                self._send_raw(request)
            elif request.asynchronous:
                self._loop.run(self._send_async(request))
            else:
                self._send(request)
            outcome = "answer"
        except Wrong:
            raise
        except openai.APIStatusError as error:
            outcome = f"{error.status_code}"
            _check_error(error.status_code, error.body)
        except (openai.APITimeoutError, openai.APIConnectionError) as error:
            raise Wrong(f"{error!r}") from error
        except openai.OpenAIError as error:
            outcome = type(error).__name__
        except Exception as error:
            if not _is_the_sdks(error):
                raise Wrong(f"{error!r}") from error
            outcome = "the SDK's own error"
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self._check_rows(request)
        for kept in (self.engine.requests, self.engine.prompts, self.engine.embedded):
            kept.clear()

    def _client(self, request: Request) -> Any:
        return (self._real if request.real else self._scripted)[request.asynchronous]

    def _path(self, request: Request) -> str:
        return request.path.replace("{conversation}", self._conversation)

    def _arguments(self, request: Request, client: Any) -> tuple[Any, dict[str, Any]] | None:
        """A method of the SDK and its arguments; None where there is none for it."""
        resources = {
            "/chat/completions": client.chat.completions,
            "/responses": client.responses,
            "/completions": client.completions,
            "/embeddings": client.embeddings,
        }
        resource = resources.get(request.path)
        name = {"helper": "stream", "parse": "parse"}.get(request.way, "create")
        method = getattr(resource, name, None)
        if method is None or request.way == "post":
            return None
        names = inspect.signature(getattr(method, "__wrapped__", method)).parameters
        given = {key: value for key, value in request.body.items() if key in names and key.isidentifier()}
        extra = {key: value for key, value in request.body.items() if key not in given}
        if "model" in names:
            given.setdefault("model", "m")
        for needed in ("messages", "input", "prompt"):
            if needed in names and needed not in given and names[needed].default is inspect.Parameter.empty:
                return None
        if request.way == "stream" and request.path != "/embeddings":
            given["stream"] = True
        return method, {**given, "extra_body": extra} if extra else given

    def _send(self, request: Request) -> None:
        client = self._client(request)
        found = self._arguments(request, client)
        if found is None:
            cast_to, chunk = _CASTS.get(request.path, (object, None))
            stream = request.body.get("stream") is True and chunk is not None
            made = client.post(
                self._path(request), cast_to=cast_to, body=request.body, stream=stream, stream_cls=Stream[chunk]
            )
        else:
            made = found[0](**found[1])
        if hasattr(made, "__enter__") and not isinstance(made, Stream):
            with made as events:
                for _ in events:
                    pass
            return
        if isinstance(made, Stream):
            _check_stream(request, list(made))
        else:
            _check_whole(made)

    async def _send_async(self, request: Request) -> None:
        client = self._client(request)
        found = self._arguments(request, client)
        if found is None:
            cast_to, chunk = _CASTS.get(request.path, (object, None))
            stream = request.body.get("stream") is True and chunk is not None
            made = await client.post(
                self._path(request), cast_to=cast_to, body=request.body, stream=stream, stream_cls=AsyncStream[chunk]
            )
        elif request.way == "helper":
            async with found[0](**found[1]) as events:
                async for _ in events:
                    pass
            return
        else:
            made = await found[0](**found[1])
        if isinstance(made, AsyncStream):
            _check_stream(request, [event async for event in made])
        else:
            _check_whole(made)

    def _send_raw(self, request: Request) -> None:
        try:
            content = raw_json(request.body)
        except (TypeError, ValueError, RecursionError):  # nobody can send it
            return
        response = self._http.post(
            f"https://any{self._path(request)}", content=content, headers={"content-type": "application/json"}
        )
        if response.status_code != 200:
            body = response.json()
            assert isinstance(body, dict)
            _check_error(response.status_code, body.get("error"))
        elif "event-stream" not in response.headers["content-type"]:
            json.loads(response.text)

    def _check_rows(self, request: Request) -> None:
        engines = [self.engine, inside.engine(self._real[0])] if request.real else [self.engine]
        for engine in engines:
            for _ in range(400):
                stats = engine.stats()
                if not (stats.running or stats.waiting):
                    break
                self._loop.run(asyncio.sleep(0.01))
            else:
                raise Wrong(f"rows are left: {stats.running} running, {stats.waiting} waiting")


def _check_error(status: int, body: object) -> None:
    if status >= 500:
        raise Wrong(f"{status}: {body}")
    if not isinstance(body, dict) or not isinstance(body.get("message"), str):
        raise Wrong(f"{status} with the body {body!r}")
    if status == 400 and body.get("param") is None and not body["message"].startswith(_UNNAMED):
        raise Wrong(f"400 that names no field: {body}")


_UNNAMED = ("The grammar of this request became too complex",)
"""Messages that need no field: what they tell of is the whole request."""


def _check_whole(made: Any) -> None:
    if isinstance(made, CreateEmbeddingResponse) and any(isinstance(each.embedding, str) for each in made.data):
        return  # base64, as asked for
    if isinstance(made, Completion) and any(choice.logprobs for choice in made.choices):
        return  # of an echoed prompt's first token there is none, which is null as OpenAI's
    if isinstance(made, openai.BaseModel):
        try:
            revalidate(made)
        except (AssertionError, pydantic.ValidationError) as error:
            raise Wrong(f"an answer that is not legal: {error}: {made}") from error


def _check_stream(request: Request, events: list[Any]) -> None:
    try:
        if request.path == "/responses":
            check_events(events)
        elif request.path == "/chat/completions":
            check_chunks(events)
        else:
            for event in events:
                for choice in event.choices:
                    choice.finish_reason = choice.finish_reason or "stop"  # null before the end, as OpenAI's
                _check_whole(event)
    except (AssertionError, pydantic.ValidationError) as error:
        raise Wrong(f"a stream that is not legal: {error}") from error


def _is_the_sdks(error: BaseException) -> bool:
    """True if an error was raised by the SDK over its arguments, before or after our part."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return not any("/localai_shim/" in file for file in files)

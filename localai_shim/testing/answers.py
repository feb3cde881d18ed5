"""Parts that scripts are written with: texts, tool calls, reasoning, refusals, failures, and the pace of an answer."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from ..errors import RequestError
from .model.replies import Reply
from .model.sounds import Heard, Sound
from .model.tokenizer import Piece

if TYPE_CHECKING:
    from .requests import Request


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that an answer makes; see `tool_call`."""

    name: str
    arguments: Mapping[str, object] | str
    offered: bool = True

    @property
    def text(self) -> str:
        """The arguments as the answer has them."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


def tool_call(
    name: str, arguments: Mapping[str, object] | str | None = None, /, *, offered: bool = True, **named: object
) -> ToolCall:
    """A call of a tool: `tool_call("get_weather", city="Paris")`.

    Args:
        name: of the function or custom tool; in a namespace `get_customer` or `crm.get_customer`.
        arguments: All arguments as a mapping, or their text, which is played unchanged, even if malformed. For a
            custom tool, the text is its input.
        offered: Require that the request offers the tool. False plays a call of any name.
        **named: arguments by name.

    Example:
        >>> from localai_shim.testing import scripted, tool_call
        >>> tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
        >>> with scripted(tool_call("get_weather", city="Paris")) as client:
        ...     answer = client.responses.create(model="any", input="Weather?", tools=[tool])
        >>> answer.output[0].name, answer.output[0].arguments
        ('get_weather', '{"city": "Paris"}')
    """
    if isinstance(arguments, str):
        if named:
            raise TypeError("pass the arguments as one text, or by name, not both")
        return ToolCall(name, arguments, offered)
    return ToolCall(name, {**(arguments or {}), **named}, offered)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Thoughts of the model before it answers."""

    text: str


def reasoning(text: str) -> Reasoning:
    """Reasoning before an answer: `[reasoning("Paris is in France."), "France"]`.

    Example:
        >>> from localai_shim.testing import reasoning, scripted
        >>> with scripted([reasoning("Paris is in France."), "France"]) as client:
        ...     answer = client.responses.create(model="any", input="Where is Paris?")
        >>> [item.type for item in answer.output], answer.output_text
        (['reasoning', 'message'], 'France')
    """
    return Reasoning(text)


Mark = Literal["refusal", "content_filter"]


@dataclass(frozen=True, slots=True)
class Marked:
    """Text that is not ordinary content."""

    text: str
    mark: Mark


def refusal(text: str = "I'm sorry, but I can't help with that.") -> Marked:
    """An answer whose message has a `refusal`, and no content.

    Example:
        >>> from localai_shim.testing import refusal, scripted
        >>> with scripted(refusal("I will not say.")) as client:
        ...     answer = client.chat.completions.create(model="any", messages=[{"role": "user", "content": "Hi"}])
        >>> answer.choices[0].message.refusal, answer.choices[0].message.content
        ('I will not say.', None)
    """
    return Marked(text, "refusal")


def content_filter(text: str = "") -> Marked:
    """An answer that a content filter cut after this text: its finish reason is `content_filter`.

    Example:
        >>> from localai_shim.testing import content_filter, scripted
        >>> with scripted(content_filter("The weather is ")) as client:
        ...     answer = client.chat.completions.create(model="any", messages=[{"role": "user", "content": "Hi"}])
        >>> answer.choices[0].finish_reason
        'content_filter'
    """
    return Marked(text, "content_filter")


@runtime_checkable
class JsonModel(Protocol):
    """An instance of a pydantic model, which is played as its JSON."""

    def model_dump_json(self) -> str: ...


Part = str | ToolCall | Reasoning | Marked | JsonModel | Mapping[str, object]
"""A piece of an answer; a mapping is played as JSON."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One scripted answer: parts, one after the other, how they are played, and what goes wrong."""

    parts: tuple[Part, ...] = ()
    reply: Reply = field(default_factory=Reply)
    """Settings for playing the parts; without parts, the reply that is played."""
    trouble: Trouble | None = None
    tokens: int | None = None
    """Tokens before the trouble; None: all."""
    vectors: Vectors | None = None
    """Vectors to answer with; then there are no parts."""
    heard: Heard | None = None
    """The parts are what is said in a file."""
    sound: Sound | None = None
    """Speech to answer with; then there are no parts."""

    @property
    def api(self) -> str | None:
        """The only endpoint whose requests it answers; None: it has a text, or nothing."""
        audio = "audio.transcriptions" if self.heard else "audio.speech" if self.sound else None
        return self.vectors.api if self.vectors else audio


@dataclass(frozen=True, slots=True)
class Vectors:
    """The answer to a request for embeddings, or for a reranking, whose vectors are scores."""

    api: Literal["embeddings", "rerank"]
    rows: tuple[tuple[float, ...], ...]


def embedding(*vectors: Sequence[float]) -> Answer:
    """Answer for `client.embeddings`: `embedding([0.6, 0.8])`, a vector for each text, or one for all of them.

    They are played as they are, of any length.

    Example:
        >>> from localai_shim.testing import embedding, scripted
        >>> with scripted(embedding([0.5, 0.25])) as client:
        ...     client.embeddings.create(model="any", input="rain").data[0].embedding
        [0.5, 0.25]
    """
    rows = tuple(tuple(map(float, vector)) for vector in vectors)
    if not rows or not rows[0] or len(set(map(len, rows))) > 1:
        raise ValueError(f"pass vectors with equally many numbers, such as embedding([0.6, 0.8]), not {vectors!r}")
    return Answer(vectors=Vectors("embeddings", rows))


def relevance(*scores: float) -> Answer:
    """Answer for a reranking: a score for each document, in the order in which they were sent.

    Example:
        >>> from localai_shim import rerank
        >>> from localai_shim.testing import relevance, scripted
        >>> with scripted(relevance(0.1, 0.9)) as client:
        ...     [result.index for result in rerank(client, "rain", ["sun", "rain"]).results]
        [1, 0]
    """
    return Answer(vectors=Vectors("rerank", tuple((float(score),) for score in scores)))


def timed(*parts: Part, first_token: float = 0.0, tokens_per_second: float = math.inf) -> Answer:
    """An answer that takes time, on the client's clock.

    Args:
        *parts: of the answer.
        first_token: seconds before the first token.
        tokens_per_second: how fast the others come.

    Example:
        >>> from localai_shim.testing import scripted, timed
        >>> with scripted(timed("one two", first_token=2, tokens_per_second=4)) as client:
        ...     answer = client.responses.create(model="any", input="Count")
        ...     client.clock.now  # seconds, and nobody has waited
        2.5
    """
    return Answer(parts, Reply(delay=first_token, interval=1 / tokens_per_second))


def truncated(*parts: Part) -> Answer:
    """An answer that ends with the finish reason `length`, as if the model's limit were reached.

    Example:
        >>> from localai_shim.testing import scripted, truncated
        >>> with scripted(truncated("The weather")) as client:
        ...     client.responses.create(model="any", input="Hi").incomplete_details.reason
        'max_output_tokens'
    """
    return Answer(parts, Reply(finish_reason="length"))


# -- failures -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trouble:
    """Trouble with a request, before its first byte or, with `after`, in the middle of its answer."""

    kind: Literal["status", "timeout", "connection", "hang", "raise"]
    message: str = ""
    error: Exception | None = None
    """Of `raise` the error itself; of `status` what the service would have sent."""

    def after(self, *parts: Part, tokens: int | None = None) -> Answer:
        """An answer that begins well, and then has this trouble.

        Args:
            *parts: what comes before.
            tokens: number of its tokens before the trouble; None: all.
        """
        return Answer(parts, trouble=self, tokens=tokens)


def api_error(
    status: int,
    message: str,
    *,
    type: str | None = "invalid_request_error",
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Trouble:
    """An error of the service: the SDK's exception for the status, with OpenAI's body.

    Example:
        >>> import openai
        >>> from localai_shim.testing import api_error, scripted
        >>> with scripted(api_error(400, "No such voice.", param="voice")) as client:
        ...     try:
        ...         client.responses.create(model="any", input="Hi")
        ...     except openai.BadRequestError as error:
        ...         print(error.param)
        voice
    """
    return Trouble("status", message, RequestError(message, param, code, status, type, dict(headers or {})))


def rate_limit(retry_after: float | None = None, message: str = "", *, quota: bool = False) -> Trouble:
    """429, with the headers that OpenAI sends.

    Args:
        retry_after: Seconds in the `retry-after` header; None omits it.
        message: of the error.
        quota: Report that no credit is left (`insufficient_quota`), instead of too many requests.

    Example:
        >>> from localai_shim.testing import rate_limit, scripted
        >>> with scripted(rate_limit(retry_after=20), "Fine.") as client:
        ...     text = client.responses.create(model="any", input="Hi").output_text  # the SDK's own retry
        ...     print(text, client.clock.sleeps)
        Fine. [20.0]
    """
    if quota:
        text = message or "You exceeded your current quota, please check your plan and billing details."
        return api_error(429, text, type="insufficient_quota", code="insufficient_quota")
    wait = "" if retry_after is None else f" Please try again in {retry_after:g}s."
    headers = {"x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "0"}
    if retry_after is not None:
        headers |= {"retry-after": f"{math.ceil(retry_after)}", "retry-after-ms": f"{retry_after * 1000:g}"}
        headers["x-ratelimit-reset-requests"] = f"{retry_after:g}s"
    text = message or f"Rate limit reached on requests per min (RPM): Limit 500, Used 500, Requested 1.{wait}"
    return api_error(429, text, type="requests", code="rate_limit_exceeded", headers=headers)


def server_error(status: int = 500, message: str = "") -> Trouble:
    """An internal error of the service; 503 means that it is overloaded.

    Example:
        >>> from localai_shim.testing import scripted, server_error
        >>> with scripted(server_error(503), "Fine.") as client:
        ...     client.responses.create(model="any", input="Hi").output_text
        'Fine.'
    """
    texts = {503: "The engine is currently overloaded, please try again later."}
    own = "The server had an error while processing your request. Sorry about that!"
    return api_error(status, message or texts.get(status, own), type="server_error")


def context_length_exceeded(limit: int = 128_000, tokens: int | None = None) -> Trouble:
    """400: the prompt is longer than the model's context.

    Example:
        >>> import openai
        >>> from localai_shim.testing import context_length_exceeded, scripted
        >>> with scripted(context_length_exceeded(8192)) as client:
        ...     try:
        ...         client.responses.create(model="any", input="Hi")
        ...     except openai.BadRequestError as error:
        ...         print(error.code)
        context_length_exceeded
    """
    text = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in "
        f"{tokens or limit + 1} tokens. Please reduce the length of the messages."
    )
    return api_error(400, text, code="context_length_exceeded", param="messages")


def authentication_error() -> Trouble:
    """401: the key is wrong.

    Example:
        >>> import openai
        >>> from localai_shim.testing import authentication_error, scripted
        >>> with scripted(authentication_error()) as client:
        ...     try:
        ...         client.responses.create(model="any", input="Hi")
        ...     except openai.AuthenticationError as error:
        ...         print(error.code)
        invalid_api_key
    """
    return api_error(401, "Incorrect API key provided: local.", code="invalid_api_key")


def timeout() -> Trouble:
    """The request times out immediately; on a virtual clock its whole timeout passes.

    Example:
        >>> from localai_shim.testing import scripted, timeout
        >>> with scripted(timeout(), "Fine.") as client:
        ...     client.responses.create(model="any", input="Hi").output_text  # the SDK's second attempt
        'Fine.'
    """
    return Trouble("timeout", "Request timed out.")


def connection_error() -> Trouble:
    """The service cannot be reached; with `after`, the connection drops during the answer.

    Example:
        >>> from localai_shim.testing import connection_error, scripted
        >>> with scripted(connection_error(), client={"max_retries": 0}) as client:
        ...     client.responses.create(model="any", input="Hi")
        Traceback (most recent call last):
        openai.APIConnectionError: Connection error.
    """
    return Trouble("connection", "Connection error.")


def hang() -> Trouble:
    """No answer until the request times out (in real time, or when the clock is advanced) or is canceled.

    Example:
        >>> import openai
        >>> from localai_shim.testing import hang, scripted
        >>> with scripted(hang(), client={"max_retries": 0}) as client:
        ...     try:
        ...         client.responses.create(model="any", input="Hi", timeout=0.01)
        ...     except openai.APITimeoutError:
        ...         print("given up")
        given up
    """
    return Trouble("hang")


def cut(*parts: Part, tokens: int | None = None) -> Answer:
    """An answer whose connection drops after these parts, or after `tokens` tokens.

    A stream then raises `openai.APIConnectionError`, or `httpx.RemoteProtocolError` with openai 2.x.

    Example:
        >>> from localai_shim.testing import cut, scripted
        >>> with scripted(cut("one two three", tokens=2)) as client:
        ...     stream = client.chat.completions.create(
        ...         model="any", messages=[{"role": "user", "content": "Count"}], stream=True
        ...     )
        ...     try:
        ...         for chunk in stream:
        ...             print(chunk.choices[0].delta.content or "", end="")
        ...     except Exception:  # openai.APIConnectionError, with openai 2.x httpx.RemoteProtocolError
        ...         print(" ... and no more")
        one two ... and no more
    """
    return connection_error().after(*parts, tokens=tokens)


# -- what may stand in a script ---------------------------------------------------------------------------------------

Scripted = Part | Sequence[Part | Piece] | Reply | Answer | Trouble | Exception
"""Replies that a request may be answered with; a sequence of nothing but pieces is the tokens of an answer."""
ScriptedReply = Scripted | Callable[["Request"], Scripted | Awaitable[Scripted]]
"""The same, or a function of the request that returns it."""


def read_answer(given: object) -> Answer:
    """Make an answer of an entry of a script.

    Raises:
        TypeError: it is none.
    """
    if isinstance(given, Answer):
        return given
    if isinstance(given, Reply):
        return Answer(reply=given)
    if isinstance(given, Trouble):
        return Answer(trouble=given)
    if isinstance(given, Exception):
        return Answer(trouble=Trouble("raise", error=given))
    if isinstance(given, list | tuple):
        if given and all(isinstance(part, str | bytes | int) for part in given):
            return Answer(reply=Reply(list(given)))
        return Answer(tuple(map(_checked, given)))
    return Answer((_checked(given),))


def _checked(part: object) -> Part:
    if isinstance(part, str | ToolCall | Reasoning | Marked | JsonModel | Mapping) and not isinstance(part, type):
        return part
    raise TypeError(
        f"{part!r} is not an answer: script texts, tool_call(...), reasoning(...), refusal(), lists of these, dicts "
        "and pydantic models (played as JSON), failures such as rate_limit(), exceptions, or functions that return one"
    )


def part_text(part: str | JsonModel | Mapping[str, object]) -> str:
    """A part of an answer's content, as text."""
    if isinstance(part, str):
        return part
    return json.dumps(part, ensure_ascii=False) if isinstance(part, Mapping) else part.model_dump_json()

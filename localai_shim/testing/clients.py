"""The clients that tests get: `LocalOpenAI` and `AsyncLocalOpenAI` on a script, with what a test writes and asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar, Unpack

import openai

from ..client.arguments import AsyncClientArguments, ClientArguments
from ..client.local import AsyncLocalOpenAI, LocalOpenAI
from ..errors import RequestError
from ..runtime.engines import Runtime
from ..sdk import private as sdk
from .answers import ScriptedReply
from .checks import Budget, Usage, check_called, check_tool_called, check_tool_result, usage_of
from .model.clock import Clock
from .requests import Request
from .script import Criteria, Rule, check_criteria
from .stage import Stage

if TYPE_CHECKING:
    from ..sdk.private import RequestOptions


class IncompleteScript(AssertionError):
    """Replies that were not played, requests that had none, or a budget that was exceeded.

    Example:
        >>> from localai_shim.testing import IncompleteScript, scripted
        >>> try:
        ...     with scripted("Nobody asks for this."):
        ...         pass
        ... except IncompleteScript:
        ...     print("a reply was left")
        a reply was left
    """


class Scripted:
    """Parts of both scripted clients that are not the SDK's own methods."""

    _runtime: Runtime

    @property
    def stage(self) -> Stage:
        """The engine that plays; `ScriptedOpenAI(engine=client.stage)` is another client of the same script."""
        stage = self._runtime.engine_of("")
        assert isinstance(stage, Stage)
        return stage

    def script(self, *replies: ScriptedReply) -> Self:
        """Add replies, which are played in order, one per request (with `n`, one per choice).

        A reply is a text, `tool_call(...)`, `reasoning(...)`, `refusal()`, a dict or pydantic model (played as JSON), a
        list of these for one answer, a failure such as `rate_limit()`, an exception, or a sync or async function of
        the `Request` that returns one. `embedding(...)` and `relevance(...)` answer embedding and reranking requests,
        whose answers are generated otherwise.
        `transcription(...)` answers requests for transcriptions, as texts do, and `speech(...)` those for speech, which
        get a tone otherwise.

        Example:
            >>> from localai_shim.testing import ScriptedOpenAI, rate_limit
            >>> client = ScriptedOpenAI()
            >>> client.script("One.", rate_limit(), lambda request: request.user.upper())
            <...ScriptedOpenAI object at ...>
            >>> [client.responses.create(model="any", input="two").output_text for _ in range(2)]
            ['One.', 'TWO']
        """
        self.stage.script.ordered.extend(replies)
        return self

    def when(self, **criteria: Unpack[Criteria]) -> Rule:
        """Create a rule for matching requests: `client.when(user="Paris").reply("It rains.")`. It precedes the script.

        Args:
            api: Endpoint, such as "chat.completions" or "embeddings". Without it, requests for embeddings, rerankings
                and speech match only rules whose reply is of their kind.
            user: Text, or compiled regular expression, in the last user message, an embedded text, a text to speak, or
                the prompt of a transcription.
            system: Text in the system or developer messages.
            tool: Name of an offered tool.
            tool_result: Text in a tool result since the model's last message.
            model: Model name.
            schema: JSON schema of the answer, its name, or its pydantic class.
            predicate: Function of the `Request`.

        Raises:
            TypeError: Unknown criterion.

        Example:
            >>> from localai_shim.testing import ScriptedOpenAI
            >>> client = ScriptedOpenAI()
            >>> rule = client.when(user="Paris").reply("It rains.").always()
            >>> client.responses.create(model="any", input="Weather in Paris?").output_text
            'It rains.'
        """
        rule = Rule(criteria)
        self.stage.script.rules.append(rule)
        return rule

    @property
    def calls(self) -> list[Request]:
        """The requests so far, retries included."""
        return self.stage.calls

    @property
    def last_call(self) -> Request:
        """The latest request. Raises AssertionError when there was none."""
        if not self.calls:
            raise AssertionError("there was no request")
        return self.calls[-1]

    @property
    def clock(self) -> Clock:
        """The time that answers and retries take."""
        return self.stage.clock

    @property
    def usage(self) -> Usage:
        """The tokens of all requests so far."""
        return usage_of(self.calls)

    def assert_called(self, *, times: int | None = None, **criteria: Unpack[Criteria]) -> None:
        """Fail unless a request matched, or exactly `times` did; criteria as for `when`.

        Example:
            >>> from localai_shim.testing import scripted
            >>> with scripted("Hello!") as client:
            ...     answer = client.responses.create(model="gpt-4o", input="Hi there")
            ...     client.assert_called(times=1, model="gpt-4o", user="Hi")
        """
        check_criteria(criteria)
        check_called(self.calls, times, criteria)

    def assert_not_called(self, **criteria: Unpack[Criteria]) -> None:
        """Fail if a request matched.

        Example:
            >>> from localai_shim.testing import ScriptedOpenAI
            >>> ScriptedOpenAI().assert_not_called(tool="send_mail")
        """
        self.assert_called(times=0, **criteria)

    def assert_tool_called(self, name: str, /, **arguments: object) -> None:
        """Fail unless an answer called this tool with these arguments, among others.

        Example:
            >>> from localai_shim.testing import scripted, tool_call
            >>> tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
            >>> with scripted(tool_call("look", where="up")) as client:
            ...     answer = client.responses.create(model="any", input="Hi", tools=[tool])
            ...     client.assert_tool_called("look", where="up")
        """
        check_tool_called(self.calls, name, arguments)

    def assert_tool_result(self, text: str) -> None:
        """Fail unless a request brought a tool's result with this text in it.

        Example:
            >>> from localai_shim.testing import scripted
            >>> asked = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            >>> messages = [
            ...     {"role": "user", "content": "Look."},
            ...     {"role": "assistant", "tool_calls": [asked]},
            ...     {"role": "tool", "tool_call_id": "1", "content": "a grey cat"},
            ... ]
            >>> with scripted("A cat.") as client:
            ...     answer = client.chat.completions.create(model="any", messages=messages)
            ...     client.assert_tool_result("cat")
        """
        check_tool_result(self.calls, text)

    def token_budget(
        self,
        *,
        max_total: int | None = None,
        max_prompt: int | None = None,
        max_completion: int | None = None,
        max_requests: int | None = None,
    ) -> Budget:
        """Limit what is spent from here on, to the end of the test, or within a `with` block.

        Example:
            >>> from localai_shim.testing import scripted
            >>> with scripted("Hello!") as client:
            ...     with client.token_budget(max_total=500):
            ...         answer = client.responses.create(model="any", input="Hi")
        """
        limits = {
            "max_total": max_total,
            "max_prompt": max_prompt,
            "max_completion": max_completion,
            "max_requests": max_requests,
        }
        self.stage.budgets.append(Budget(self.calls, limits))
        return self.stage.budgets[-1]

    def assert_complete(self) -> None:
        """Fail unless all replies were played, no request went without one, and no budget is exceeded.

        Example:
            >>> from localai_shim.testing import ScriptedOpenAI
            >>> client = ScriptedOpenAI().script("Hello!")
            >>> answer = client.responses.create(model="any", input="Hi")
            >>> client.assert_complete()
        """
        problems = self.stage.problems()
        if problems:
            raise IncompleteScript("\n".join(problems))


ArgumentsT = TypeVar("ArgumentsT", ClientArguments, AsyncClientArguments)


def _on_stage(arguments: ArgumentsT, kind: type) -> ArgumentsT:
    """A client's arguments, with a new stage unless they bring one, by themselves or with an http client."""
    if not isinstance(arguments.get("http_client"), kind) and arguments.get("engine") is None:
        arguments["engine"] = Stage()
    return arguments


def _delay(client: sdk.Client, stage: Stage, options: RequestOptions, taken: int, error: openai.APIError) -> float:
    """Seconds after which the SDK would try again. Raises the error where it would not, or nothing was scripted."""
    cause = error.__cause__
    if isinstance(cause, RequestError):
        cause = cause.__cause__
    if cause is not None and stage.failed_with(cause):  # what is none of the SDK's, such as an unexpected request
        raise cause
    retried = isinstance(error, openai.APITimeoutError) or stage.failed_with(error)
    response = error.response if isinstance(error, openai.APIStatusError) else None
    delay = sdk.retry_delay(client, options, taken, response) if retried else None
    if delay is None:
        raise error
    return delay


class ScriptedOpenAI(Scripted, LocalOpenAI):
    """A `LocalOpenAI` that returns scripted answers without a model.

    Scripted errors are retried as the OpenAI SDK would, on the client's clock.

    Args:
        **options: Arguments of `LocalOpenAI`. Pass another scripted client's stage as `engine` to share its script.

    Example:
        >>> from localai_shim.testing import ScriptedOpenAI
        >>> client = ScriptedOpenAI().script("Hello!")
        >>> client.responses.create(model="any", input="Hi").output_text
        'Hello!'
        >>> client.last_call.user
        'Hi'
    """

    def __init__(self, **options: Unpack[ClientArguments]) -> None:
        super().__init__(None, **_on_stage(options, sdk.LocalHttpClient))

    if not TYPE_CHECKING:

        def request(self, cast_to, options, *, stream=False, stream_cls=None):
            """Serve a request from the script, with the SDK's retries."""
            stage, taken = self.stage, 0
            while True:
                try:
                    return super().request(cast_to, options, stream=stream, stream_cls=stream_cls)
                except openai.APIError as error:
                    delay = _delay(self, stage, options, taken, error)
                taken += 1
                options = sdk.as_retry(options, taken)
                stage.clock.sleep(delay)


class AsyncScriptedOpenAI(Scripted, AsyncLocalOpenAI):
    """Async form of `ScriptedOpenAI`.

    Example:
        >>> import asyncio
        >>> from localai_shim.testing import AsyncScriptedOpenAI
        >>> client = AsyncScriptedOpenAI().script("Hello!")
        >>> asyncio.run(client.responses.create(model="any", input="Hi")).output_text
        'Hello!'
    """

    def __init__(self, **options: Unpack[AsyncClientArguments]) -> None:
        super().__init__(None, **_on_stage(options, sdk.LocalAsyncHttpClient))

    if not TYPE_CHECKING:

        async def request(self, cast_to, options, *, stream=False, stream_cls=None):
            """Serve a request from the script, with the SDK's retries."""
            stage, taken = self.stage, 0
            while True:
                try:
                    return await super().request(cast_to, options, stream=stream, stream_cls=stream_cls)
                except openai.APIError as error:
                    delay = _delay(self, stage, options, taken, error)
                taken += 1
                options = sdk.as_retry(options, taken)
                await stage.clock.sleep_async(delay)


# -- of the checkpoint that ships with the package, on the real engine -----------------------------------------------

TINY_SEED = 0
"""Of requests that bring none."""


class _Seeded:
    if not TYPE_CHECKING:

        def _call(self, cast_to, options, stream, stream_cls):
            return super()._call(cast_to, sdk.with_body_field(options, "seed", TINY_SEED), stream, stream_cls)


class TinyOpenAI(_Seeded, LocalOpenAI):
    """A `LocalOpenAI` whose requests have a seed."""


class AsyncTinyOpenAI(_Seeded, AsyncLocalOpenAI):
    """Async form of `TinyOpenAI`."""

"""RayOpenAI and AsyncRayOpenAI: the SDK's own clients, whose requests go to replicas that Ray runs.

All replicas together answer the lines of a batch's input file.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, cast

import openai

from ...client.arguments import AsyncClientArguments, ClientArguments, check_arguments, check_options, stock_arguments
from ...client.batch_lines import read_requests
from ...client.local import OfflineClient
from ...endpoints.batches.lines import Line, answer_text, error_text
from ...errors import BadRequest
from ...options import OWN, LocalOptions, ModelPath
from ...sdk import private as sdk
from ...threads import greenlets
from .pool import STATS_SECONDS, Pool, PoolStats
from .transport import AsyncRayHttpClient, RayHttpClient, sentence

REPLICAS = 2

HttpT = TypeVar("HttpT", bound=RayHttpClient | AsyncRayHttpClient)


class Placement(TypedDict, total=False):
    """Arguments for what Ray starts, in addition to those of a local client."""

    replicas: int
    num_cpus: float | None
    num_gpus: float | None
    ray_options: Mapping[str, object] | None


class RayOptions(Placement, LocalOptions, total=False):
    """Arguments of the http clients."""


class RayArguments(Placement, ClientArguments, total=False):
    """Arguments of `RayOpenAI`."""


class AsyncRayArguments(Placement, AsyncClientArguments, total=False):
    """Arguments of `AsyncRayOpenAI`."""


def _check_hooks(hooks: object) -> None:
    """Refuse functions for hosted tools that cannot be sent to the replicas' processes.

    Raises:
        ValueError: says which one.
    """
    import ray.cloudpickle

    for name, hook in hooks.items() if isinstance(hooks, Mapping) else ():
        try:
            ray.cloudpickle.dumps(hook)
        except Exception as error:  # which objects raise of many kinds
            raise ValueError(
                f"`hosted_tools`: {name!r} runs in the replicas' processes, and cannot be sent there: {error}. Create "
                "locks, connections, and clients when the function is called."
            ) from error


def _start(model: ModelPath | None, given: RayOptions | RayArguments | AsyncRayArguments) -> Pool:
    greenlets.refuse("Replicas")
    if given.get("engine") is not None:
        raise ValueError("`engine` runs in this process: replicas take `model` or `models`")
    if given.get("record_timeline"):
        raise ValueError(
            "`record_timeline` needs a model in this process: leave it out, because replicas record no timelines"
        )
    _check_hooks(given.get("hosted_tools"))
    local = cast(LocalOptions, {name: value for name, value in given.items() if name in OWN})
    chosen = {"num_cpus": given.get("num_cpus"), "num_gpus": given.get("num_gpus"), **(given.get("ray_options") or {})}
    ray_options = {name: value for name, value in chosen.items() if value is not None}
    return Pool.start(model, local, given.get("replicas", REPLICAS), ray_options)


def _started(
    kind: type[HttpT],
    model: ModelPath | None,
    given: RayOptions | RayArguments | AsyncRayArguments,
    timeout: sdk.Timeout,
) -> HttpT:
    """An http client of replicas that are started.

    Raises:
        ValueError: the timeout is none.
    """
    sdk.read_seconds(timeout)
    pool = _start(model, given)
    try:
        return kind(pool, timeout)
    except BaseException:
        pool.give_up()
        raise


def _without_placement(given: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in given.items() if name not in Placement.__annotations__}


class _RayClient(OfflineClient):
    """Parts that both clients have in common."""

    _pool: Pool
    _given: Mapping[str, object]
    """The SDK's own constructor arguments, for copies in other processes."""

    @contextmanager
    def _opening(
        self,
        cls: type,
        kind: type[RayHttpClient | AsyncRayHttpClient],
        model: ModelPath | None,
        given: RayArguments | AsyncRayArguments,
    ) -> Iterator[dict[str, Any]]:
        """The arguments of the SDK's constructor, which is called within this: replicas end if it fails. A copy comes
        with the http client of what it copies.
        """
        stock = _without_placement(given)
        check_arguments(cls, stock)
        named = given.get("http_client")
        http_client = named if isinstance(named, kind) else _started(kind, model, given, sdk.timeout_of(named))
        self._pool = http_client.pool
        try:
            made = stock_arguments(stock, http_client)
            self._given = {name: value for name, value in made.items() if name != "http_client"}
            yield made
        except BaseException:
            if http_client is not named:
                self._pool.give_up()
            raise

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        """A handle: in another process it sends requests to the same replicas, and closing it ends none of them."""
        return _restored, (type(self), self._pool, self._given)

    def scale(self, replicas: int) -> None:
        """Change the number of replicas. A removed replica ends after its last request.

        Its stored responses and conversations are lost, unless there is a `store`.

        Raises:
            RuntimeError: This is a handle in another process.
            ValueError: Not a valid number of replicas.
        """
        self._pool.scale(replicas)


@contextmanager
def _with_reasons() -> Iterator[None]:
    """Give the SDK's "Connection error." the text of its cause."""
    try:
        yield
    except openai.APIConnectionError as error:
        if type(error) is openai.APIConnectionError and error.__cause__ is not None:
            error.message = sentence(error.__cause__)
            error.args = (error.message, *error.args[1:])
        raise


def _restored(cls: type[Any], pool: Pool, given: Mapping[str, Any]) -> object:
    http = RayHttpClient if issubclass(cls, sdk.OpenAI) else AsyncRayHttpClient
    return cls(**given, http_client=http(pool, given.get("timeout", openai.DEFAULT_TIMEOUT)))


class RayOpenAI(_RayClient, sdk.OpenAI):
    """An `openai.OpenAI` client for replicas of a local model, each in a process that Ray runs.

    It joins the Ray cluster that this process is connected to, or the cluster in `RAY_ADDRESS`. Otherwise it starts Ray
    on this machine, and stops it when the client is closed.

    Args:
        model: Folder or Hub ID that every node can find. None loads the bundled model.
        replicas: Number of processes that load the model (2).
        num_cpus: CPU cores that Ray reserves per replica. By default none is reserved, and one is used.
        num_gpus: GPUs that Ray reserves per replica. Without it, replicas see no CUDA GPU.
        ray_options: Other options of Ray actors, such as `{"resources": {"mlx": 1}}` or a `runtime_env`.
        **options: Arguments of `LocalOpenAI`, except `engine`. By default, each replica has its own `store` in memory;
            a file must be reachable by all replicas.

    Raises:
        FileNotFoundError, TypeError, ValueError: As for `LocalOpenAI`.

    Example:
        >>> from localai_shim.ray import RayOpenAI
        >>> with RayOpenAI(replicas=2) as client:
        ...     client.responses.create(model="any", input="What is 2 + 3?", temperature=0).output_text
        '2 + 3 = 5.'
    """

    def __init__(self, model: ModelPath | None = None, **options: Unpack[RayArguments]) -> None:
        with self._opening(RayOpenAI, RayHttpClient, model, options) as made:
            super().__init__(**made)

    if not TYPE_CHECKING:

        def request(self, cast_to, options, *, stream=False, stream_cls=None):
            """Send a request as the SDK does; an error of the connection says the reason."""
            with _with_reasons():
                return super().request(cast_to, options, stream=stream, stream_cls=stream_cls)

    def stats(self, model: str = "") -> PoolStats:
        """Return statistics of each replica, and their sum. Replicas that do not answer within seconds have none.

        Args:
            model: Model name. Not required with one model.

        Raises:
            ValueError: No such model.
        """
        asked = self._pool.ask(model)
        futures.wait(asked.values(), STATS_SECONDS)
        return self._pool.stats(asked)


class AsyncRayOpenAI(_RayClient, sdk.AsyncOpenAI):
    """An `openai.AsyncOpenAI` client for replicas of a local model, for asyncio.

    Args:
        model: As for `RayOpenAI`.
        replicas: As for `RayOpenAI`.
        num_cpus: As for `RayOpenAI`.
        num_gpus: As for `RayOpenAI`.
        ray_options: As for `RayOpenAI`.
        **options: As for `RayOpenAI`.

    Raises:
        FileNotFoundError, TypeError, ValueError: As for `AsyncLocalOpenAI`.
    """

    def __init__(self, model: ModelPath | None = None, **options: Unpack[AsyncRayArguments]) -> None:
        with self._opening(AsyncRayOpenAI, AsyncRayHttpClient, model, options) as made:
            super().__init__(**made)

    if not TYPE_CHECKING:

        async def request(self, cast_to, options, *, stream=False, stream_cls=None):
            """Send a request as the SDK does; an error of the connection says the reason."""
            with _with_reasons():
                return await super().request(cast_to, options, stream=stream, stream_cls=stream_cls)

    async def stats(self, model: str = "") -> PoolStats:
        """Return the statistics described in `RayOpenAI.stats`."""
        asked = self._pool.ask(model)
        if asked:
            await asyncio.wait(map(asyncio.wrap_future, asked.values()), timeout=STATS_SECONDS)
        return self._pool.stats(asked)


# -- for clients that other code builds -----------------------------------------------------------------------------


def http_client(
    model: ModelPath | None = None, *, timeout: sdk.Timeout = openai.DEFAULT_TIMEOUT, **options: Unpack[RayOptions]
) -> RayHttpClient:
    """Create an HTTP client for `openai.OpenAI(http_client=...)` that answers requests with replicas.

    Args:
        model: As for `RayOpenAI`.
        timeout: Seconds, or an `httpx.Timeout`, for requests without a timeout (600 by default).
        **options: Arguments of `RayOpenAI`, except those of the SDK.
    """
    check_options("http_client", _without_placement(options))
    return _started(RayHttpClient, model, options, timeout)


def async_http_client(
    model: ModelPath | None = None, *, timeout: sdk.Timeout = openai.DEFAULT_TIMEOUT, **options: Unpack[RayOptions]
) -> AsyncRayHttpClient:
    """An http client like that of `http_client`, for `openai.AsyncOpenAI(http_client=...)`."""
    check_options("async_http_client", _without_placement(options))
    return _started(AsyncRayHttpClient, model, options, timeout)


LINES_PER_REPLICA = 96
"""Lines that a replica has at once: as many as decode together by default, and half as many that wait."""
AHEAD = 4  # times as many are read before a slow line's answer is waited for
MAX_RETRIES = 5
"""Times that a line is sent again where replicas die: none starts as soon as another has died."""


def answer_lines(
    client: RayOpenAI,
    lines: Iterable[str | bytes],
    *,
    on_progress: Callable[[int, int], object] | None = None,
    done: Collection[str] = (),
) -> Iterator[str]:
    """Answer lines as `localai_shim.client.batch_lines.answer_lines` does, with the same arguments.

    Yields:
        The lines of the output file, in the order of the requests.
    """
    failed: list[str] = []  # what could not be read, until it is yielded
    counts = [0, 0]
    requests = (line for line in read_requests(lines, None, failed) if line.custom_id not in done)
    for text, ok in _answers(client.with_options(timeout=None, max_retries=MAX_RETRIES), requests, failed):
        counts[not ok] += 1
        if on_progress is not None:
            on_progress(*counts)
        yield text


def _answers(client: RayOpenAI, requests: Iterable[Line], failed: list[str]) -> Iterator[tuple[str, bool]]:
    """The line of each answer, and whether it is one."""
    width = LINES_PER_REPLICA * len(client._pool)
    threads = futures.ThreadPoolExecutor(width, "localai_shim-lines")
    running: deque[futures.Future[tuple[str, bool]]] = deque()
    try:
        for line in itertools.chain(requests, (None,)):
            while failed:
                running.append(threads.submit(_refused, failed.pop(0)))
            if line is not None:
                running.append(threads.submit(_answer, client, line))
            while running and (line is None or len(running) >= AHEAD * width or running[0].done()):
                yield running.popleft().result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _refused(text: str) -> tuple[str, bool]:
    return text, False


def _answer(client: RayOpenAI, line: Line) -> tuple[str, bool]:
    for name in ("stream", "background"):
        if line.body.get(name):
            error = BadRequest(f"'{name}' is not supported in a batch: leave it out.", param=name)
            return answer_text(line.custom_id, error.status, "", json.dumps(error.body()).encode()), False
    try:
        response = client.post(line.url.removeprefix("/v1"), body=line.body, cast_to=sdk.httpx.Response)  # type: ignore[attr-defined]
    except openai.APIStatusError as failure:
        response = failure.response
    except openai.OpenAIError as failure:
        return error_text(line.custom_id, "request_failed", str(failure)), False
    request_id = response.headers.get("x-request-id", "")
    return answer_text(line.custom_id, response.status_code, request_id, response.content), response.is_success

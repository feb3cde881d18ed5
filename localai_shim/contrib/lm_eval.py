"""A model for lm-evaluation-harness: its `local-completions`, answered in this process.

`python -m localai_shim.contrib.lm_eval` is its command line with `--model localai`; see docs/evaluation.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import openai
from lm_eval import utils
from lm_eval.api.registry import register_model
from lm_eval.models.openai_completions import LocalCompletionsAPI
from tqdm.asyncio import tqdm_asyncio

from ..client.local import AsyncLocalOpenAI
from ..types import Json

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

CONCURRENT_REQUESTS = 128
_MAX_STOP_STRINGS = 4  # that a request may have
_DEFAULT_CONTEXT_TOKENS = 2048  # of models that do not say how long their context is


@register_model("localai")
class LocalAI(LocalCompletionsAPI):  # type: ignore[misc]
    """Answers lm-evaluation-harness's requests with a local client.

    Args:
        pretrained: a folder with a checkpoint, or a hub id; None: the checkpoint in the package.
        client: what answers, instead of a model that is loaded for this object.
        num_concurrent: how many requests are in flight.
        max_length: most tokens of prompt and answer together; None: the model's context.
        tokenizer: where the tokenizer comes from; None: from the model.
        more: further arguments of `LocalCompletionsAPI`.
    """

    def __init__(
        self,
        pretrained: str | None = None,
        client: AsyncLocalOpenAI | None = None,
        num_concurrent: int = CONCURRENT_REQUESTS,
        max_length: int | None = None,
        tokenizer: str | None = None,
        **more: object,
    ) -> None:
        self._client = AsyncLocalOpenAI(pretrained, timeout=None) if client is None else client
        self._client._runtime.engine_of("").wait()  # until then a model's context may look longer than it is
        name, found = next(iter(self._client._runtime.names().items()))
        super().__init__(
            model=name,
            tokenizer=tokenizer or found.root,
            tokenizer_backend="huggingface",
            num_concurrent=max(2, int(num_concurrent)),  # for one the harness has other code, which posts by itself
            max_length=int(max_length or found.context_length or _DEFAULT_CONTEXT_TOKENS),
            **more,
        )

    async def get_batched_requests(
        self,
        requests: Sequence[Instance],
        cache_keys: Sequence[object],
        *,
        generate: bool = True,
        ctxlens: Sequence[int] | None = None,
        **more: object,
    ) -> list[object]:
        """All requests of a task, as the harness makes, reads and caches them; only what carries them is another."""
        session, semaphore, size = _Session(self._client), asyncio.Semaphore(self._concurrent), self._batch_size
        calls = [
            self.amodel_call(
                session,
                semaphore,
                requests[i : i + size],
                generate=generate,
                cache_keys=cache_keys[i : i + size],
                ctxlens=None if ctxlens is None else ctxlens[i : i + size],
                **more,
            )
            for i in range(0, len(requests), size)
        ]
        answers: list[object] = await tqdm_asyncio.gather(*calls, desc="Requesting API")
        return answers

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[float]:
        """Score texts as the harness does, with the windows of all of them in flight together."""
        windows: list[tuple[None, list[int], list[int]]] = []
        counts = []
        for request in requests:
            [text] = request.args
            tokens, length = self.tok_encode(text), self.max_length - 1
            found = utils.get_rolling_token_windows(tokens, self.prefix_token_id, max_seq_len=length, context_len=1)
            made = [(None, *utils.make_disjoint_window(each)) for each in found]
            windows += made
            counts.append(len(made))
        scores: Iterator[tuple[float, bool]] = iter(self._loglikelihood_tokens(windows) if windows else ())
        totals = [sum(next(scores)[0] for _ in range(count)) for count in counts]
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals


class _Session:
    """Stands where the harness has a session of aiohttp."""

    def __init__(self, client: AsyncLocalOpenAI) -> None:
        self._client = client

    def post(self, url: object, *, json: Json, headers: object) -> _Response:
        return _Response(self._client, json)


class _Response:
    """A request, and its response once it is entered. Failures are raised as the client raises them."""

    ok = True

    def __init__(self, client: AsyncLocalOpenAI, payload: Json) -> None:
        self._client, self._payload = client, payload

    async def __aenter__(self) -> _Response:
        stop = self._payload.get("stop")
        stops: list[str] = stop if isinstance(stop, list) else []
        body = {**self._payload, "stop": stops[:_MAX_STOP_STRINGS]} if stops else self._payload
        answer = await self._client.post("/completions", cast_to=openai.types.Completion, body=body)
        made: Json = answer.to_dict(mode="json")
        for choice in made["choices"]:
            choice["text"] = _cut(choice["text"], stops[_MAX_STOP_STRINGS:])
        self._answer = made
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """There is nothing to release."""

    def raise_for_status(self) -> None:
        """There was no failure."""

    async def json(self) -> Json:
        return self._answer


def _cut(text: str, stops: Sequence[str]) -> str:
    """The text up to the first of some strings; requests may have four of them, and tasks have more."""
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]


def main() -> None:
    """lm-evaluation-harness's command line."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()

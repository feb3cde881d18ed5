"""Answer a file of requests with Ray Data, on as many machines as the cluster has, each with a model of its own.

python examples/ray_data.py requests.jsonl answers.jsonl [MODEL]     # needs ray[data]

Answers stand in the order of the requests, so that a second run goes on where the first was stopped.
"""

import asyncio
import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import openai
import ray.data

from localai_shim import AsyncLocalOpenAI


class Answer:
    """One engine, in a process of its own, which answers the requests of a block at once."""

    def __init__(self, model: str | None) -> None:
        self.client = AsyncLocalOpenAI(model=model)

    async def __call__(self, block: dict[str, Any]) -> dict[str, list[str]]:
        return {
            "answer": await asyncio.gather(*map(self.answer, block["item"]))
        }

    async def answer(self, line: str) -> str:
        """The answer's line of JSON; a request that fails has the reason there."""
        try:
            request = json.loads(line)
            answer = await self.client.post(
                request["url"].removeprefix("/v1"),
                body=request["body"],
                cast_to=object,
            )
            return json.dumps(
                {
                    "custom_id": request["custom_id"],
                    "body": answer,
                    "error": None,
                }
            )
        except (ValueError, TypeError, KeyError, openai.OpenAIError) as error:
            name = (
                request.get("custom_id") if isinstance(request, dict) else None
            )
            return json.dumps(
                {"custom_id": name, "body": None, "error": str(error)}
            )


def main(
    requests: str,
    answers: str,
    model: str | None = None,
    replicas: int = 2,
    **resources: float,
) -> list[str]:
    """Answer what has no answer yet; returns the failing requests, each with the reason.

    Args:
        requests: a file as OpenAI's batches take it.
        answers: a file that may have the answers to the first of them.
        model: a folder or a hub id, as every machine finds it.
        replicas: engines.
        **resources: what Ray gives each, such as `num_gpus=1`.
    """
    found = (
        Path(answers).read_bytes().splitlines(keepends=True)
        if Path(answers).exists()
        else []
    )
    whole = [
        line for line in found if line.endswith(b"\n")
    ]  # a killed run may have torn the last one
    Path(answers).write_bytes(b"".join(whole))
    with open(requests, encoding="utf-8") as lines:
        left = list(islice(filter(str.strip, lines), len(whole), None))
    if left:
        ray.data.DataContext.get_current().execution_options.preserve_order = (
            True
        )
        data = ray.data.from_items(left).map_batches(
            Answer,
            fn_constructor_args=(model,),
            batch_size=64,
            compute=ray.data.ActorPoolStrategy(
                size=replicas, max_tasks_in_flight_per_actor=4
            ),
            **resources,
        )
        with open(answers, "a", encoding="utf-8") as out:
            for row in data.iter_rows():
                out.write(row["answer"] + "\n")
    with open(answers, encoding="utf-8") as lines:
        return [
            f"{each['custom_id']}: {each['error']}"
            for each in map(json.loads, lines)
            if each["error"]
        ]


if __name__ == "__main__":
    for failure in main(*sys.argv[1:4]):
        print(failure, file=sys.stderr)

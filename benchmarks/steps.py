"""What steps of several tokens can be worth at most: what they take without any engine, and the tokens they give."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import mlx.core as mx

from localai_shim.engine import kv
from localai_shim.engine.drafts.sources import _Seen
from localai_shim.engine.ports import StepInput
from localai_shim.models.loading import load_model
from localai_shim.output.prediction import Prediction

from .figures import print_table

TOKENS = (1, 2, 3, 5, 9, 16)  # of each row
ROW_TOKENS = 150  # that rows have before
_RUNS = 12

Costs = dict[int, float]
"""By tokens of each row: what the model's step takes, in steps of one token."""
Gives = Callable[[int], float]
"""By most drafts of each row: tokens that a step gives of a row on average."""


def costs(folder: Path, counts: Sequence[int]) -> dict[int, Costs]:
    """By rows, what the bare model's steps take: the least of some runs, in turns, with nothing beside them."""
    model, found = load_model(str(folder), {}), {}
    for rows in counts:
        cache = kv.Buckets(model.weight_bytes, max(TOKENS))
        prompts = []
        for _ in range(rows):
            row = model.new_cache()
            model.prefill(StepInput(mx.arange(ROW_TOKENS)[None] + 5, row))
            prompts.append(row)
        places = cache.join(prompts)
        seconds = dict.fromkeys(TOKENS, float("inf"))
        for _ in range(_RUNS):
            for tokens in TOKENS:
                start = time.perf_counter()
                [step] = cache.advance_several(dict.fromkeys(places, tokens))
                inputs = StepInput(mx.full((rows, tokens), 7, mx.int32), step.layers, [tokens] * rows)
                mx.eval(mx.argmax(model.forward(inputs).logits, axis=-1))
                cache.settle(dict.fromkeys(places, 1))
                seconds[tokens] = min(seconds[tokens], time.perf_counter() - start)
        found[rows] = {tokens: its / seconds[1] for tokens, its in seconds.items()}
        words = ", ".join(f"{tokens}: {1e3 * its:.1f} ms" for tokens, its in seconds.items())
        print(f"bare steps of {rows} rows of {folder.name}, by tokens of each: {words}", flush=True)
    return found


def most(cost: Costs, gives: Gives, most_drafts: int = max(TOKENS) - 1) -> tuple[float, int]:
    """(most that drafts can be worth, drafts of each row): tokens that a step gives, over what it takes."""
    return max((gives(tokens - 1) / its, tokens - 1) for tokens, its in cost.items() if tokens - 1 <= most_drafts)


def following(rows: Sequence[tuple[Sequence[int], Prediction, Sequence[int]]]) -> Gives:
    """Of rows' prompts, predictions and answers, in tokens: each row by itself, by prediction and lookup."""

    def gives(most_drafts: int) -> float:
        steps = tokens = 0
        for prompt, prediction, answer in rows:
            after, seen, at = prediction.follow(), _Seen(prompt), 1
            while at < len(answer):
                drafts, coming = after(answer[:at], most_drafts), answer[at:]
                drafts = drafts or seen.after(answer[:at], most_drafts) if most_drafts else ()
                right = next((i for i, (a, b) in enumerate(zip(drafts, coming, strict=False)) if a != b), len(drafts))
                came = coming[: right + 1]
                at, steps, tokens = at + len(came), steps + 1, tokens + len(came)
        return tokens / max(1, steps)

    return gives


def show(name: str, table: dict[int, Costs], gives: dict[int, Gives]) -> dict[int, str]:
    """Print what was computed, and return a line for each number of rows."""
    rows, notes = [], {}
    for count, its in gives.items():
        for tokens, cost in table[count].items():
            given = its(tokens - 1)
            rows.append([f"{count} rows, {tokens - 1} drafts", f"{cost:.2f}", f"{given:.2f}", f"{given / cost:.2f}"])
        ratio, drafts = most(table[count], its)
        notes[count] = f"at most {ratio:.2f}, with {drafts} drafts, by what the bare model's steps take"
    print(f"{name}: what it can be worth")
    print_table(["", "step", "tokens per row", "at most"], rows)
    return notes

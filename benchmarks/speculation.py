"""What several tokens per step are worth: decode rates with and without drafts, in turns."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from transformers import AutoTokenizer

from localai_shim import AsyncLocalOpenAI
from localai_shim.builtin import CHECKPOINT
from localai_shim.engine.drafts import controller as speculation
from localai_shim.engine.drafts.sources import Drafter, ForcedTokens
from localai_shim.engine.row import Row
from localai_shim.output.detokenizer import TokenBytes
from localai_shim.output.prediction import Prediction
from tests.drafting import split

from . import steps, switching
from .bench import Bench
from .figures import Figure, Section, print_figures, ratios, spread
from .timeline import Run, StreamTimes

EDIT_EVERY = 40  # characters of a prediction, of which one is another
ACCEPTANCE, ORACLE_DRAFTS = 0.8, 4
KEYS = ("identification_number_of_the_customer", "preferred_language_of_correspondence", "date_of_the_last_delivery")
DRAFT_LAYERS, LATER_SHARE = 4, 0.05  # one layer in so many drafts; what the later ones add is scaled by this
TARGETS: dict[str, dict[int, float | None]] = {
    "prediction with small edits": {1: 3.0, 8: 2.0, 32: 1.5},
    "forced tokens of a schema": {1: 1.5, 8: 1.5},
    f"oracle, acceptance {ACCEPTANCE}, {ORACLE_DRAFTS} drafts": {1: 2.0, 8: 1.6},
    "text that does not repeat": {1: 0.97, 8: 0.97, 32: 0.97},
    "a draft model, the first quarter of the layers": {1: None, 8: None},
}

T = TypeVar("T")
Fields = Sequence[dict[str, Any]]
Found = dict[int, tuple[list[float], list[float]]]
"""By number of streams: decode rates without drafts and with them."""


class Oracle:
    """Knows what rows will emit, by their prompts."""

    source, trust = "oracle", ACCEPTANCE

    def __init__(self) -> None:
        self.known: dict[tuple[int, ...], Sequence[int]] = {}
        self.random = random.Random(1)

    def takes(self, row: Row) -> bool:
        return True

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> list[list[int]]:
        return [self._for(row, min(n, ORACLE_DRAFTS)) for row, n in zip(rows, most, strict=True)]

    def _for(self, row: Row, most: int) -> list[int]:
        coming = self.known.get(tuple(row.prompt_tokens), ())[row.generated : row.generated + most]
        return [token if self.random.random() < ACCEPTANCE else 5 for token in coming]


@contextmanager
def drafting(*drafters: Drafter) -> Iterator[None]:
    """Engines that are made meanwhile have these drafters only; none: their own."""
    own = speculation.own_drafters
    if drafters:
        speculation.own_drafters = lambda: list(drafters)
    try:
        yield
    finally:
        speculation.own_drafters = own


class Pair:
    """The same model with drafts and without."""

    def __init__(self, off: AsyncLocalOpenAI, on: AsyncLocalOpenAI) -> None:
        self.off, self.on = off, on

    @classmethod
    def of(cls, model: Path, *drafters: Drafter, draft_model: Path | None = None) -> Pair:
        """Two clients of a folder, the one with these drafters; none: with its own."""
        off = AsyncLocalOpenAI(model=model, speculation="off", keep_alive=0)
        with drafting(*drafters):
            on = AsyncLocalOpenAI(model=model, speculation="auto", draft_model=draft_model, keep_alive=0)
            asyncio.run(_stream(on, {"messages": [{"role": "user", "content": "Hello"}]}, 4))
        return cls(off, on)

    def close(self) -> None:
        for client in (self.on, self.off):
            asyncio.run(client.close())

    def compare(
        self, counts: Sequence[int], fields: Callable[[int], Fields], new_tokens: int, repeats: int, close: bool = True
    ) -> Found:
        """By number of streams, decode rates without and with drafts, in turns; then both clients are closed.

        Args:
            fields: makes the requests of so many streams, before each pair of runs.
        """
        found: Found = {}
        try:
            for count in counts:
                rates: tuple[list[float], list[float]] = ([], [])
                pairs = list(zip((self.off, self.on), rates, strict=True))
                for number in range(repeats + 1):
                    made = fields(count)
                    for client, its in in_turns(pairs, number):
                        ran = run(client, made, new_tokens)
                        rate = ran.decode_rate or ran.whole_rate
                        if number:  # the first ones warm up, and steps' costs are learned
                            its.append(rate)
                found[count] = rates
        finally:
            if close:
                self.close()
        return found


def in_turns(pairs: Sequence[T], number: int) -> Sequence[T]:
    """Two things in the order of a round: the second one of a pair is up to 7 % slower, whichever it is."""
    return pairs[:: 1 if number % 2 else -1]


def run(client: AsyncLocalOpenAI, fields: Fields, new_tokens: int) -> Run:
    """Streams that begin at once."""

    async def main() -> Run:
        streams = await asyncio.gather(*(_stream(client, each, new_tokens) for each in fields))
        return Run([times for times, _ in streams])

    return asyncio.run(main())


async def _stream(client: AsyncLocalOpenAI, fields: dict[str, Any], new_tokens: int) -> tuple[StreamTimes, str]:
    out, text = StreamTimes(time.perf_counter(), tokens=new_tokens), ""
    made = {"temperature": 0, **fields}
    extra = {"ignore_eos": True, **made.pop("extra_body", {})}
    stream = await client.chat.completions.create(
        model="bench", max_tokens=new_tokens, stream=True, extra_body=extra, **made
    )
    async for chunk in stream:
        if chunk.choices and (content := chunk.choices[0].delta.content):
            out.times.append(time.perf_counter())
            text += content
    return out, text


def known_answers(client: AsyncLocalOpenAI, fields: Fields, new_tokens: int) -> dict[tuple[int, ...], Sequence[int]]:
    """Tokens of the prompt -> tokens of the answer, for each request."""
    extra = {"ignore_eos": True, "return_token_ids": True}

    async def main() -> list[Any]:
        made = [
            client.chat.completions.create(
                model="bench", max_tokens=new_tokens, temperature=0, extra_body=extra, **each
            )
            for each in fields
        ]
        return list(await asyncio.gather(*made))

    return {tuple(each.prompt_token_ids): each.choices[0].token_ids for each in asyncio.run(main())}


def edited(text: str) -> str:
    """A text with a letter changed here and there."""
    return "".join("#" if i % EDIT_EVERY == EDIT_EVERY - 1 else letter for i, letter in enumerate(text))


def measure(bench: Bench, chosen: Collection[str] = tuple(TARGETS)) -> Section:
    """Those of `TARGETS` that were chosen."""
    new_tokens = max(bench.new_tokens, 128)
    found: dict[str, Found] = {}
    limits = _limits(bench, new_tokens) if set(chosen) == set(TARGETS) else {}  # half a minute
    figures: list[Figure] = []
    for (name, targets), part in zip(TARGETS.items(), (_predictions, _forced, _oracle, _fresh, _drafted), strict=True):
        if name not in chosen:
            continue
        counts = [count for count in bench.streams if count in targets]
        found[name] = part(bench, counts, new_tokens)
        its = [
            Figure(
                f"{name}, {count} streams: decode rate / without",
                ratios(on, off),
                TARGETS[name][count],
                note=f"tokens per second {spread(on, digits=0)}, without {spread(off, digits=0)}"
                + "".join(f"; {limit}" for limit in (limits.get(name, {}).get(count),) if limit),
            )
            for count, (off, on) in found[name].items()
        ]
        print_figures(its)
        figures += its
    return Section(figures, {name: {str(n): rates for n, rates in each.items()} for name, each in found.items()})


def _limits(bench: Bench, new_tokens: int) -> dict[str, dict[int, str]]:
    """What some parts can reach at most, by name and number of streams, in words."""
    counts = bench.streams
    prediction, _, oracle, *_ = TARGETS
    tokenizer = AutoTokenizer.from_pretrained(str(CHECKPOINT))
    spell = TokenBytes(tokenizer).spelled
    gives: dict[int, steps.Gives] = {}
    off = AsyncLocalOpenAI(model=CHECKPOINT, speculation="off", keep_alive=0)
    try:
        for count in counts:
            said = known_answers(off, _questions(count, count), new_tokens)
            edits = [edited(tokenizer.decode(ids, skip_special_tokens=True)) for ids in said.values()]
            coded = [Prediction(tokenizer.encode(text, add_special_tokens=False), spell) for text in edits]
            gives[count] = steps.following(list(zip(said, coded, said.values(), strict=True)))
    finally:
        asyncio.run(off.close())
    return {
        prediction: steps.show(prediction, steps.costs(CHECKPOINT, counts), gives),
        oracle: steps.show(
            oracle,
            steps.costs(bench.folder, counts),
            dict.fromkeys(counts, lambda k: sum(ACCEPTANCE**i for i in range(min(k, ORACLE_DRAFTS) + 1))),
        ),
    }


def _questions(count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {"messages": [{"role": "user", "content": f"Write about {rng.choice(KEYS)} number {rng.randrange(10**6)}."}]}
        for _ in range(count)
    ]


def _predictions(bench: Bench, counts: Sequence[int], new_tokens: int) -> Found:
    """The shipped checkpoint says again what it said, but for the edits in the prediction."""
    pair = Pair.of(CHECKPOINT)

    def fields(count: int) -> Fields:
        questions = _questions(count, count)

        async def answers() -> list[str]:
            asked = await asyncio.gather(*(_stream(pair.off, each, new_tokens) for each in questions))
            return [text for _, text in asked]

        said = asyncio.run(answers())
        return [
            {**each, "prediction": {"type": "content", "content": edited(text)}}
            for each, text in zip(questions, said, strict=True)
        ]

    return pair.compare(counts, fields, new_tokens, bench.repeats)


def _forced(bench: Bench, counts: Sequence[int], new_tokens: int) -> Found:
    record: dict[str, Any] = {
        "type": "object",
        "properties": {key: {"type": "boolean"} for key in KEYS},
        "required": list(KEYS),
    }
    record["additionalProperties"] = False
    rows = {"type": "array", "items": record, "minItems": 1_000}
    schema = {"type": "object", "properties": {"rows": rows}, "required": ["rows"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "records", "strict": True, "schema": schema}}
    pair = Pair.of(CHECKPOINT, ForcedTokens())
    return pair.compare(
        counts,
        lambda count: [{**each, "response_format": form} for each in _questions(count, count)],
        new_tokens,
        bench.repeats,
    )


def _oracle(bench: Bench, counts: Sequence[int], new_tokens: int) -> Found:
    oracle = Oracle()
    pair = Pair.of(bench.folder, oracle)

    def fields(count: int) -> Fields:
        made = [{"messages": prompt.messages} for prompt in bench.prompts_of(64, seed=count).take(count)]
        oracle.known |= known_answers(pair.off, made, new_tokens)
        return made

    return pair.compare(counts, fields, new_tokens, bench.repeats)


def _fresh(bench: Bench, counts: Sequence[int], new_tokens: int) -> Found:
    """Sampled tokens of a random model."""
    prompts = bench.prompts_of(64, seed=9)
    blocks = 2 * switching.BLOCK_STEPS * (2 + 15 * bench.repeats)
    return {
        count: switching.compare(bench.folder, [prompt.tokens for prompt in prompts.take(count)], blocks)
        for count in counts
    }


def _drafted(bench: Bench, counts: Sequence[int], new_tokens: int) -> Found:
    """Greedy tokens of a random model whose later layers add little: its first ones alone say most of the same."""
    layers = max(1, bench.config["num_hidden_layers"] // DRAFT_LAYERS)
    with TemporaryDirectory() as folder:
        large, small = split(bench.folder, Path(folder) / "models", layers, LATER_SHARE)
        pair = Pair.of(large, ForcedTokens(), draft_model=small)
        prompts = bench.prompts_of(64, seed=11)
        return pair.compare(
            counts, lambda count: [{"messages": p.messages} for p in prompts.take(count)], new_tokens, bench.repeats
        )

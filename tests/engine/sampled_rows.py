"""Rows of every kind of sampling, and what they emitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from localai_shim.engine.engine import Engine
from localai_shim.engine.noise import stream_key
from localai_shim.types import GenerationRequest, SamplingParams, Token
from tests.engine.constraints import Only
from tests.engine.harness import GREEDY, Running, request
from tests.tiny import VOCABULARY

SAMPLINGS = [
    GREEDY,
    SamplingParams(seed=3),
    SamplingParams(temperature=0.8, top_p=0.9, seed=4),
    SamplingParams(temperature=0.9, top_k=20, min_p=0.02, seed=5),
    SamplingParams(temperature=0.7, presence_penalty=0.9, frequency_penalty=0.4, seed=6),
    SamplingParams(temperature=0.0, repetition_penalty=1.4),
    SamplingParams(temperature=0.9, logit_bias={7: 3.0, 9: -float("inf")}, top_logprobs=3, seed=7),
    SamplingParams(temperature=0.6, bad_words=((11, 12), (30,)), seed=8),
    SamplingParams(temperature=0.0, top_logprobs=0),
    SamplingParams(temperature=1.0, allowed_token_ids=tuple(range(10, 40)), presence_penalty=0.5, seed=9),
]


@dataclass(eq=False)
class FakeRow:
    """What the sampler needs of a row."""

    sampling: SamplingParams
    key: int = 0
    sampled: int = 0
    min_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    prompt_tokens: tuple[int, ...] = ()
    counts: Any = None
    recent: Any = None
    constraint: Any = None
    history: list[int] = field(default_factory=list)

    @property
    def request(self) -> FakeRow:
        """What was asked for, which is a part of it."""
        return self


def rows_of(params: list[SamplingParams], **more: Any) -> list[FakeRow]:
    return [FakeRow(p, stream_key(p.seed), **{"prompt_tokens": (1, 3, 3, 7), **more}) for p in params]


def prompt(i: int) -> list[int]:
    lengths = [1, 34, 5, 60, 13, 40, 2, 21, 55, 8]
    return [(7 * i + 11 * j * (i + 1)) % (VOCABULARY - 3) + 3 for j in range(lengths[i % 10])]


class EndsAt:
    """A stop check that ends the row at the token with this number."""

    def __init__(self, number: int) -> None:
        self.left = number

    def feed(self, token_id: int) -> bool:
        self.left -= 1
        return self.left <= 0


def requests(max_tokens: int = 22) -> list[GenerationRequest]:
    """One of each kind of sampling, and rows with a constraint, a stop check and a least length."""
    made = [request(prompt(i), p, max_tokens + i % 4, min_tokens=3 * (i % 3)) for i, p in enumerate(SAMPLINGS)]
    made.append(request(prompt(3), SamplingParams(seed=11), max_tokens, constraint=Only(range(20, 60), idle_after=12)))
    made.append(request(prompt(4), SamplingParams(temperature=0.0, seed=12), max_tokens, constraint=Only(range(9, 90))))
    made.append(request(prompt(5), SamplingParams(seed=13), max_tokens, stop=EndsAt(9)))
    return made


def outputs(engine: Engine[Any], made: Sequence[GenerationRequest]) -> list[list[Token]]:
    running = [Running(engine, r) for r in made]
    for run in running:
        run.finish()
    return [[event for event in run.events[0] if isinstance(event, Token)] for run in running]


def same(a: Sequence[Sequence[Token]], b: Sequence[Sequence[Token]]) -> None:
    """Equal but for the rounding of logprobs."""
    for mine, other in zip(a, b, strict=True):
        assert [(t.id, t.finish_reason, t.is_eos) for t in mine] == [(t.id, t.finish_reason, t.is_eos) for t in other]
        for x, y in zip(mine, other, strict=True):
            assert x.logprob == pytest.approx(y.logprob, abs=1e-3)
            n = min(len(x.top), len(y.top))  # as many as any row of a step has asked for
            assert [i for i, _ in x.top[:n]] == [i for i, _ in y.top[:n]]

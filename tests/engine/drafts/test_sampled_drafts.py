"""Drafts for rows that sample: a draft model has their noise, so that it says what the target says when it can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.drafts.draft_model import DraftModel
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.ports import PassOutput, StepInput
from localai_shim.models.loading import load_model
from localai_shim.models.text import TextModel
from localai_shim.types import GenerationRequest, SamplingParams
from tests.architectures import text_model
from tests.engine.guessing import speculate
from tests.engine.harness import request
from tests.engine.sampled_rows import outputs, prompt, rows_of
from tests.engine.sampling.reference import reference_weights
from tests.tiny import VOCABULARY, tiny

KIND, TOKENS, ROWS = "qwen3", 60, 8
NOISE = np.random.default_rng(0).standard_normal(VOCABULARY).astype(np.float32)


def noisy(scale: float) -> TextModel:
    """The target, whose logits differ by this much."""
    model = load_model(str(tiny(KIND)), {})
    forward, noise = model.forward, mx.array(NOISE * scale)

    def changed(step: StepInput) -> PassOutput[mx.array]:
        out = forward(step)
        return out._replace(logits=out.logits + noise)

    model.forward = changed  # type: ignore[method-assign]
    return model


def made_of(sampling: SamplingParams) -> list[GenerationRequest]:
    return [request(prompt(i), replace(sampling, seed=i), TOKENS, ignore_eos=True) for i in range(ROWS)]


@dataclass
class Shares:
    """Of the drafts of sampled rows, how many would be right."""

    greedy: float
    """If they were the likeliest tokens."""
    possible: float
    """At best: 1 - total variation."""


def shares(made: Sequence[GenerationRequest], said: Sequence[Sequence[int]], scale: float) -> Shares:
    """The means over what rows have said, from the target's own logits of it."""
    model, greedy, possible = text_model(KIND), list[float](), list[float]()
    for one, tokens in zip(made, said, strict=True):
        [row] = rows_of([one.sampling])
        start = len(one.prompt.tokens)
        logits = model.forward(StepInput(mx.array([[*one.prompt.tokens, *tokens]]), model.new_cache())).logits[0]
        for target in np.array(logits)[start - 1 : -1]:
            p, q = (reference_weights(its, row)[1] for its in (target, target + NOISE * scale))
            p, q = p / p.sum(), q / q.sum()
            greedy.append(float(p[q.argmax()]))
            possible.append(float(np.minimum(p, q).sum()))
    return Shares(float(np.mean(greedy)), float(np.mean(possible)))


def run(made: Sequence[GenerationRequest], draft: float | None = None) -> tuple[list[list[int]], float]:
    """What rows say, and how many of their drafts were right."""
    options = EngineOptions(prefill_chunk=48, draft_tokens=1)
    load_draft = None if draft is None else lambda model: noisy(draft)
    engine = Engine(lambda: load_model(str(tiny(KIND)), {}), options, load_draft=load_draft)
    try:
        said = [[token.id for token in its] for its in outputs(engine, made)]
        drafted, accepted = engine.stats().drafts.get("model", (0, 0))
        assert draft is None or drafted > ROWS * TOKENS / 4
        return said, accepted / max(1, drafted)
    finally:
        engine.close()


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts are run whatever they cost, and come from models only."""
    speculate(monkeypatch)
    monkeypatch.setattr(DraftModel, "seconds", lambda self, rows, drafts, plain: 0.0)


@pytest.mark.parametrize(
    "sampling", [SamplingParams(temperature=0.25), SamplingParams(temperature=0.3, top_p=0.9)], ids=["all", "top_p"]
)
def test_drafts_of_a_similar_model_are_right_almost_as_often_as_is_possible(
    sampling: SamplingParams, always: None
) -> None:
    made, scale = made_of(sampling), 0.25 * sampling.temperature
    said, _ = run(made)
    expected = shares(made, said, scale)
    drafted, right = run(made, scale)
    assert drafted == said
    assert right > expected.greedy + 0.15
    assert 1 - right < 2.5 * (1 - expected.possible)
    assert right < expected.possible + 0.04


def test_rows_whose_history_counts_are_drafted_for_with_their_noise_too(always: None) -> None:
    """Penalties and bad words are left out of drafts, which changes few of them."""
    sampling = SamplingParams(temperature=0.25, presence_penalty=0.02, frequency_penalty=0.01, bad_words=((3, 4), (9,)))
    made = made_of(sampling)
    said, _ = run(made)
    expected = shares(made, said, 0.0)
    drafted, right = run(made, 0.0)
    assert drafted == said
    assert right > expected.greedy + 0.2 and right > 0.8

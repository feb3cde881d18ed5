"""Steps of several tokens that are built while others run, as on a GPU: rows emit what they emit without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.decode import batch as batches
from localai_shim.engine.decode.batch import Batch
from localai_shim.engine.decode.in_flight import Verifying
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.probes import runs_built
from localai_shim.models.loading import load_model
from localai_shim.models.text import TextModel
from localai_shim.types import Failure, GenerationRequest, SamplingParams, Token
from tests import inside
from tests.architectures import text_model
from tests.engine.guessing import AUTO, KINDS, Ahead, Steady, key, preempting, speculate, steps_noted
from tests.engine.harness import GREEDY, Running, quantised_by, request, tokens_of
from tests.engine.sampled_rows import outputs, prompt, requests, same
from tests.engine.traffic import ids_in_traffic, reversed_prompts
from tests.samples import only
from tests.tiny import VOCABULARY, tiny

OFF = EngineOptions(speculation="off", prefill_chunk=48)
Change = Callable[[TextModel], None]


def device_engine(kind: str, options: EngineOptions, change: Change | None = None) -> Engine[TextModel]:
    """An engine whose model samples where its logits are."""
    name, kv, changes = KINDS[kind]

    def load() -> TextModel:
        model = load_model(str(tiny(name, **changes)), quantised_by(kv))
        model.samples_on_device = True
        if change is not None:
            change(model)
        return model

    return Engine(load, options)


def expected_of(kind: str, made: Sequence[GenerationRequest]) -> list[list[Token]]:
    engine = device_engine(kind, OFF)
    said = outputs(engine, made)
    engine.close()
    return said


def known_of(made: Sequence[GenerationRequest], said: Sequence[Sequence[Token]]) -> dict[tuple[int, ...], list[int]]:
    return {key(each): [token.id for token in its] for each, its in zip(made, said, strict=True)}


@pytest.mark.parametrize("share", only([0.7], [0.0, 0.7, 1.0]))
@pytest.mark.parametrize("kind", only(["dense", "sliding window", "hybrid"], KINDS))
def test_rows_of_all_kinds_emit_what_they_emit_without_drafts(
    kind: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they ask for; greedy and sampled, with a constraint, with a stop check, with logprobs."""
    expected = expected_of(kind, requests(40))
    speculate(monkeypatch, Steady(share, known_of(requests(40), expected)))
    engine = device_engine(kind, AUTO)
    with steps_noted(monkeypatch) as built:
        same(outputs(engine, requests(40)), expected)
    engine.close()
    assert built
    if "hybrid" in kind:
        assert not any(built), "its states from before a step are needed"
    else:
        assert sum(built) > len(built) / 3


def test_joins_cancellations_and_preemption_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = requests(40)
    engine = device_engine("dense", OFF)
    expected = [outputs(engine, [each])[0] for each in made]
    engine.close()
    known = known_of(made, expected)
    speculate(monkeypatch, Steady(0.8, known))
    engine = device_engine("dense", AUTO)
    with steps_noted(monkeypatch) as built, preempting(engine, every=7) as drafted:
        assert ids_in_traffic(engine, requests(40), reversed_prompts(made)) == [known[key(each)] for each in made]
    engine.close()
    assert any(built) and not all(built) and drafted


def test_a_lone_row_builds_ahead_through_the_growth_of_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    made = request(prompt(3), GREEDY, 400, ignore_eos=True)
    [expected] = expected_of("dense", [made])
    ids = [token.id for token in expected]
    speculate(monkeypatch, Ahead(ids, 4))
    engine = device_engine("dense", AUTO)
    with steps_noted(monkeypatch) as built:
        assert Running(engine, made).finish() == [ids]
    engine.close()
    assert len(ids) == 400 and sum(built) > len(built) * 0.8
    assert not all(built[2:]), "larger buffers come first"


def test_what_was_built_runs_for_the_rows_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """One ends, one fails, and one is cancelled, while a step for all of them is there."""

    class Breaks:
        left = 12

        def feed(self, token_id: int) -> bool:
            self.left -= 1
            if not self.left:
                raise ValueError("broken")
            return False

    made = [request(prompt(i), SamplingParams(seed=i), 12 if i == 1 else 50) for i in range(5)]
    expected = expected_of("dense", made)
    speculate(monkeypatch, Steady(1.0, known_of(made, expected)))
    engine = device_engine("dense", AUTO)
    engine.wait()
    batch, after, widths = inside.rows(engine).batch, list[int](), list[int]()
    assert batch is not None
    begin = batches.begin_step

    def beginning(*arguments: Any, **more: Any) -> Verifying:
        several = begin(*arguments, **more)
        if several.built is not None:
            after.append(len(several.rows))
            widths.append(several.steps[0].width)
        return several

    monkeypatch.setattr(batches, "begin_step", beginning)
    made[2] = request(prompt(2), SamplingParams(seed=2), 50, stop=Breaks())
    running = [Running(engine, each) for each in made]
    running[4].read(8)
    running[4].cancel()
    assert [running[i].finish()[0] for i in (0, 1, 3)] == [[t.id for t in expected[i]] for i in (0, 1, 3)]
    with pytest.raises(Exception, match="broken"):
        running[2].finish()
    *said, failure = running[2].events[0]
    assert tokens_of(said) == [t.id for t in expected[2]][:11] and isinstance(failure, Failure)
    engine.close()
    assert any(rows < width for rows, width in zip(after, widths, strict=True))


def reads_its_positions(model: TextModel) -> None:
    """As code that asks the device how long its rows are, and gives each its own length."""

    class Reading(type(inside.network(model))):  # type: ignore[misc]
        def __call__(self, tokens: Any, cache: Any = None) -> Any:
            places = mx.array(np.array(cache[0].offset)).reshape(-1, 1, 1) + mx.arange(tokens.shape[1])[:, None]
            return super().__call__(tokens, cache=cache) + mx.sin(places + mx.arange(VOCABULARY))

    inside.network(model).__class__ = Reading


def test_a_model_that_computes_while_it_is_built_is_found() -> None:
    well, reading = text_model("qwen3"), text_model("qwen3")
    reading.fingerprint += "-reading"
    for model in (well, reading):
        model.samples_on_device = True
    reads_its_positions(reading)
    assert runs_built(well) and not runs_built(reading)


@pytest.mark.parametrize("on_device", [False, True])
def test_a_step_that_asks_which_experts_a_token_goes_to_is_not_built_ahead(on_device: bool) -> None:
    """dbrx's does, in each layer."""
    model = text_model("dbrx")
    model.samples_on_device = on_device
    assert not runs_built(model)


def test_sampled_rows_are_those_that_the_host_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, where the host writes the tokens that it sampled into a graph which is there."""
    made = [request([5, 6, 7 + i], SamplingParams(seed=i), 24) for i in range(3)]
    found = []
    for waits in (False, True):
        with monkeypatch.context() as patch:
            if waits:
                patch.setattr(Batch, "_build", lambda batch: None)
            engine = Engine(lambda: text_model("dbrx"), OFF)
            found.append([Running(engine, each).finish() for each in made])
            engine.close()
    assert found[0] == found[1]


def test_steps_that_cannot_be_built_ahead_are_built_when_they_are_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(model: TextModel) -> None:
        model.fingerprint += "-reading"
        reads_its_positions(model)

    made = request(prompt(3), GREEDY, 40)
    engine = device_engine("dense", OFF, change)
    [expected] = Running(engine, made).finish()
    engine.close()
    speculate(monkeypatch, Ahead(expected, 4))
    engine = device_engine("dense", AUTO, change)
    with steps_noted(monkeypatch) as built:
        assert Running(engine, made).finish() == [expected]
    engine.close()
    assert built and not any(built)


def test_what_came_of_drafts_is_delivered_before_a_step_that_was_built_is_launched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To launch it takes the host's time, but not the GIL."""
    made = request(prompt(3), GREEDY, 60)
    [expected] = expected_of("dense", [made])
    ids = [token.id for token in expected]
    speculate(monkeypatch, Ahead(ids, 4))
    engine = device_engine("dense", AUTO)
    engine.wait()
    undelivered, launch = dict[bool, list[int]](), Verifying.launch

    def launching(self: Verifying, model: Any) -> None:
        undelivered.setdefault(self.built is not None, []).append(len(inside.loop(engine)._out))
        launch(self, model)

    monkeypatch.setattr(Verifying, "launch", launching)
    assert Running(engine, made).finish() == [ids]
    engine.close()
    assert any(undelivered[False]), "a GPU would wait until it is built"
    assert undelivered[True] and not any(undelivered[True])

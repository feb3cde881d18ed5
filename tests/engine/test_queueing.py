"""Steps are queued behind one that runs while the copies that this makes on a GPU are small, and say the same."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from localai_shim.adapters import backend
from localai_shim.engine import batch, memory
from tests.engine.harness import Running, engine_for, request

PROMPTS = [[5, 6, 7, 8, 9], [11, 12, 13], [20, 21, 22, 23, 24, 25, 26]]
STEPS = 40


def run(monkeypatch: pytest.MonkeyPatch, most_queued: int | None) -> tuple[list[list[int]], list[str], Any]:
    """Three greedy rows: what they say, which steps were launched and which were waited for before, and the memory."""
    done: list[str] = []
    launch, evaluate = batch._async_eval, mx.eval

    def launching(*arrays: Any) -> None:
        done.append("launch")
        launch(*arrays)

    def waiting(*arrays: Any) -> None:
        done.append("wait")
        evaluate(*arrays)

    monkeypatch.setattr(memory, "most_queued", lambda: most_queued)
    engine = engine_for("qwen3")
    try:
        assert engine.model
        with monkeypatch.context() as recording:
            recording.setattr(batch, "_async_eval", launching)
            rows = Running(engine, [request(tokens, max_tokens=STEPS, ignore_eos=True) for tokens in PROMPTS])
            rows.read(9)  # all of them run: what comes now is decoded
            recording.setattr(mx, "eval", waiting)
            said = rows.finish()
        known = engine._loop._memory
    finally:
        engine.close()
    return said, done[-2 * STEPS :], known


def test_a_step_is_launched_when_the_one_before_has_run_where_queueing_it_would_copy_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queued, launches, _ = run(monkeypatch, 2**40)
    one_by_one, steps, _ = run(monkeypatch, 0)
    assert one_by_one == queued
    assert launches.count("wait") < 5
    launched = [i for i, what in enumerate(steps) if what == "launch" and i > len(steps) // 2]
    assert len(launched) > 10 and all(steps[i - 1] == "wait" for i in launched)


def test_where_nothing_is_ever_copied_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    _, launches, known = run(monkeypatch, None)
    assert launches.count("wait") < 5
    assert known.most_queued is None


def test_room_is_kept_for_the_copies_that_queued_steps_make(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, none = run(monkeypatch, None)
    _, _, some = run(monkeypatch, 300_000)
    few, many = [16], [400, 500, 600]
    assert none.batch(few) < 300_000 < none.batch(many)
    assert some.batch(few) == 3 * none.batch(few)
    assert some.batch(many) == none.batch(many) + 600_000
    assert some.most_queued == 300_000
    _, _, most = run(monkeypatch, 2**60)
    assert most.most_queued * 8 <= most.budget, "copies leave most of the memory to the rows"


def test_only_gpus_copy() -> None:
    on_gpu = mx.default_device() == mx.Device(mx.gpu)
    assert (backend.most_queued() is not None) == on_gpu

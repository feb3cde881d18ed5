"""What the engine says of each row's way: when it was where, with how many others, and how many drafts were right."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from localai_shim.engine.engine import EngineOptions
from localai_shim.engine.pieces import Piece, Preempt
from localai_shim.media import MediaSpan, ProcessedMedia
from localai_shim.stats import DraftCounts, RowTimings
from localai_shim.telemetry.timings import measure
from localai_shim.types import GenerationRequest, Prompt, SamplingParams
from tests import inside
from tests.engine.counting import tokens
from tests.engine.guessing import Oracle, speculate
from tests.engine.harness import Running, before_each_step, engine_for, eventually, generate, prefilling, request


def times(timings: RowTimings) -> list[float | None]:
    return [timings.queued, timings.begun, timings.prefilled, timings.first_token, timings.finished]


def test_a_row_goes_from_the_queue_to_its_last_token() -> None:
    engine = engine_for("qwen3")
    try:
        before, made = time.monotonic(), request(tokens(40), max_tokens=9)
        [said] = generate(engine, made)
        found = [at for at in (before, *times(made.timings), time.monotonic()) if at is not None]
        assert len(found) == 7 and found == sorted(found)
        assert list(made.timings.output) == said and made.timings.finish_reason == "length"
        assert (made.timings.batch_rows, made.timings.drafts) == (1.0, DraftCounts())
    finally:
        engine.close()


def test_rows_that_wait_for_others_say_so() -> None:
    engine = engine_for("qwen3", EngineOptions(max_rows=1))
    try:
        first, second = request(tokens(20), max_tokens=30), request(tokens(30, 1), max_tokens=3)
        running = Running(engine, first), Running(engine, second)
        for each in running:
            each.finish()
        assert second.timings.begun is not None and first.timings.finished is not None
        assert second.timings.begun >= first.timings.finished
    finally:
        engine.close()


def test_rows_that_decode_together_count_each_other() -> None:
    engine = engine_for("qwen3")
    gate = threading.Event()
    try:
        with prefilling(engine, lambda: gate.wait(60)):
            made = [request(tokens(20, i), max_tokens=40) for i in range(4)]
            running = [Running(engine, each) for each in made]
            assert eventually(lambda: engine.stats().waiting == 4)
            gate.set()
            for each in running:
                each.finish()
        assert all(each.timings.batch_rows is not None and each.timings.batch_rows > 2 for each in made)
        assert all(each.timings.batch_rows is not None and each.timings.batch_rows <= 4 for each in made)
    finally:
        engine.close()


def test_a_row_that_leaves_or_fails_has_what_it_came_to() -> None:
    engine = engine_for("qwen3", max_position_embeddings=100_000)
    try:
        made = request(tokens(20), max_tokens=50_000)
        running = Running(engine, made)
        running.read(3)
        running.cancel()
        assert eventually(lambda: made.timings.finished is not None)
        assert len(made.timings.output) >= 3 and made.timings.finish_reason is None
        waiting = request(tokens(20, 3), max_tokens=5)
        with prefilling(engine, lambda: 1 / 0), pytest.raises(Exception, match="ZeroDivisionError"):
            Running(engine, waiting).finish()
        queued, begun, *rest, finished = times(waiting.timings)
        assert queued is not None and begun is not None and finished is not None and rest == [None, None]
    finally:
        engine.close()


def test_a_row_that_is_preempted_keeps_its_first_times() -> None:
    engine = engine_for("qwen3")
    try:
        engine.wait()
        rows, seen = inside.rows(engine), list[list[float | None]]()

        def preempted() -> Iterator[Piece]:
            [row] = rows.batch.rows
            if row.generated == 4 * (len(seen) + 1):
                yield Preempt(row.number)
                if not len(rows.batch):
                    seen.append(times(row.request.timings))

        before_each_step(rows, preempted)
        made = request(tokens(20), max_tokens=14)
        [said] = generate(engine, made)
        assert seen and all(each == [*times(made.timings)[:-1], None] for each in seen)
        assert list(made.timings.output) == said and made.timings.batch_rows == 1.0
    finally:
        engine.close()


def test_drafts_are_counted_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = engine_for("qwen3")
    prompts = [tokens(20, i) for i in range(3)]
    try:
        said = generate(plain, *[request(each, max_tokens=20) for each in prompts])
    finally:
        plain.close()
    known = {(*prompt, 0): output for prompt, output in zip(prompts, said, strict=True)}
    speculate(monkeypatch, Oracle(0.8, known))
    engine = engine_for("qwen3", EngineOptions(speculation="auto"))
    try:
        made = [request(each, max_tokens=20) for each in prompts]
        assert generate(engine, *made) == said
        counts = [each.timings.drafts for each in made]
        total = engine.stats().drafts["oracle"]
        assert total == (sum(each.drafted for each in counts), sum(each.accepted for each in counts))
        assert all(0 < each.accepted <= each.drafted for each in counts)
        assert all(None not in times(each.timings) for each in made)
    finally:
        engine.close()


# -- a request's, of its rows ----------------------------------------------------------------------------------------


def row(prompt: Prompt, *at: float | None, output: int = 0) -> GenerationRequest:
    made = GenerationRequest(prompt, SamplingParams(), 9)
    names = ("queued", "begun", "prefilled", "first_token", "finished")
    for name, time_of in zip(names, at, strict=False):
        setattr(made.timings, name, time_of)
    made.timings.output = [5] * output
    return made


def test_a_request_is_as_early_as_its_first_row_and_as_late_as_its_last() -> None:
    prompt, other = Prompt([1, 2, 3]), Prompt([4, 5])
    prompt.cached_tokens = 2
    rows = [
        row(prompt, 1.0, 2.0, 3.0, 4.0, 8.0, output=5),
        row(prompt, 1.0, 2.5, 3.5, 4.5, 6.5, output=2),
        row(other, 1.0),
    ]
    found = measure(rows, 0.5, 9.0)
    assert (found.seconds, found.queue_seconds, found.prefill_seconds, found.first_token_seconds) == (
        8.5,
        1.0,
        1.0,
        3.5,
    )
    assert found.finished == 8.0 and found.seconds_per_token == pytest.approx((4.0 + 2.0) / (4 + 1))
    assert (found.input_tokens, found.cached_tokens, found.output_tokens) == (5, 2, 7)


def test_a_request_without_rows_took_what_it_took() -> None:
    found = measure([], 1.0, 3.0)
    assert (found.seconds, found.queue_seconds, found.seconds_per_token, found.batch_rows) == (2.0, None, None, None)


def test_tokens_of_media_are_counted() -> None:
    media = ProcessedMedia("image", 7, {}, "", [])
    prompt = Prompt([1, 0, 0, 0, 2], media=[MediaSpan(media, np.array([1, 2, 3]))])
    assert measure([row(prompt), row(prompt)], 0.0, 1.0).media_tokens == 3

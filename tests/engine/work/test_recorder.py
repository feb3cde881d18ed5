"""A recording of an engine shows each request's way, in pieces that add up, and takes a bounded amount of memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.pieces import Piece, Preempt
from localai_shim.models.text import TextModel
from localai_shim.types import EngineClosedError, GenerationRequest, Prompt, RowError
from tests import inside
from tests.engine.counting import tokens
from tests.engine.guessing import Oracle, speculate
from tests.engine.harness import (
    GREEDY,
    Gate,
    Running,
    before_each_step,
    engine_for,
    eventually,
    generate,
    held,
    prefilling,
    request,
    stepping,
)
from tests.engine.media import picture, prompt_of
from tests.engine.seeing import seeing
from tests.timelines import processes, read_one, recorded

NO_CACHE = EngineOptions(prefix_cache_bytes=0)


@contextlib.contextmanager
def engine_of(options: EngineOptions | None = None) -> Iterator[Engine[TextModel]]:
    engine = engine_for("qwen3", options, max_position_embeddings=100_000)
    try:
        engine.wait()
        yield engine
    finally:
        engine.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.json"


def test_a_request_waits_is_prefilled_and_decodes(path: Path) -> None:
    with engine_of(NO_CACHE) as engine:
        with recorded(engine, path) as found:
            [said] = generate(engine, request(tokens(40), max_tokens=9))
        [process] = found
        [call] = process.calls
        assert call.names == ["waiting", "prefill 40 tokens", "decode"]
        assert call.args["outcome"] == "length" and call.args["rows_decoded_together"] == 1
        assert (call.args["input_tokens"], call.args["output_tokens"]) == (40, len(said))
        assert process.steps == inside.decode_steps(engine)
        assert process.counters["rows"][-1][1] == {"running": 0, "waiting": 0}


def test_a_long_prompt_has_several_pieces_that_add_up_to_its_tokens(path: Path) -> None:
    with engine_of(EngineOptions(prefix_cache_bytes=0, prefill_chunk=64)) as engine:
        before = engine.stats().prefilled_tokens
        with recorded(engine, path) as found:
            generate(engine, request(tokens(500), max_tokens=4))
        [call] = found[0].calls
        pieces = call.sizes("prefill")
        assert len(pieces) >= 7 and max(pieces) <= 65
        assert sum(pieces) == 500
        assert sum(pieces) - 1 <= engine.stats().prefilled_tokens - before <= sum(pieces)
        assert [each.name for each in found[0].engine if "prefill" in each.name] == [
            name for name in call.names if "prefill" in name
        ]


def test_what_the_prefix_cache_had_is_no_piece_of_prefill(path: Path) -> None:
    with engine_of() as engine:
        generate(engine, request(tokens(200), max_tokens=2))
        with recorded(engine, path) as found:
            generate(engine, request([*tokens(200), *tokens(50, 7)], max_tokens=2))
        [call] = found[0].calls
        [cached] = call.sizes("cached")
        assert cached == call.args["cached_tokens"] >= 199
        assert sum(call.sizes("prefill")) == 250 - cached
        assert found[0].counters["bytes"][-1][1]["prefix cache"] == engine.stats().cache_bytes > 0


def test_twenty_requests_have_twenty_lanes(path: Path) -> None:
    with engine_of(NO_CACHE) as engine:
        with recorded(engine, path) as found:
            with held(engine):
                running = [Running(engine, request(tokens(20, i), max_tokens=30)) for i in range(20)]
                assert eventually(lambda: engine.stats().waiting == 20)
            for each in running:
                each.finish()
        [process] = found
        assert len(process.lanes) == 20
        assert all(call.kinds == ["waiting", "prefill", "decode"] for call in process.calls)
        assert any(span.name == "decode 20 rows" for span in process.engine)
        assert max(values["running"] for _, values in process.counters["rows"]) == 20
        assert max(values["KV cache"] for _, values in process.counters["bytes"]) > 0


def test_decode_steps_of_the_same_rows_take_few_entries() -> None:
    with engine_of(NO_CACHE) as engine:
        recording = engine.record()
        generate(engine, *[request(tokens(20, i), max_tokens=400) for i in range(4)])
        inside.end_step(engine)
        recording.stop()
        steps = [entry for entry in recording.read().entries if type(entry).__name__ == "Steps"]
        assert sum(each.steps for each in steps) == inside.decode_steps(engine) >= 400  # type: ignore[union-attr]
        seconds = recording.read().end - recording.read().start
        assert len(recording.read().entries) < 40 * seconds + 80


def test_choices_of_one_prompt_share_its_pieces(path: Path) -> None:
    with engine_of(NO_CACHE) as engine:
        with recorded(engine, path) as found:
            prompt = Prompt(tokens(60))
            Running(engine, [GenerationRequest(prompt, GREEDY, 6) for _ in range(3)]).finish()
        assert [call.names for call in found[0].calls] == [["waiting", "prefill 60 tokens", "decode"]] * 3
        assert [span.name for span in found[0].engine if "prefill" in span.name] == ["prefill 60 tokens"]


def test_draft_tokens_are_counted_with_the_steps(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [tokens(20, i) for i in range(3)]
    with engine_of() as plain:
        said = generate(plain, *[request(each, max_tokens=30) for each in prompts])
    known = {(*prompt, 0): output for prompt, output in zip(prompts, said, strict=True)}
    speculate(monkeypatch, Oracle(0.8, known))
    with engine_of(EngineOptions(speculation="auto")) as engine:
        with recorded(engine, path) as found:
            assert generate(engine, *[request(each, max_tokens=30) for each in prompts]) == said
        drafted, accepted = engine.stats().drafts["oracle"]
    drafting = [span.args for span in found[0].engine if "with drafts" in span.name]
    assert sum(args["draft_tokens"] for args in drafting) == drafted > 0
    assert sum(args["accepted_draft_tokens"] for args in drafting) == accepted
    assert sum(call.args["draft_tokens"] for call in found[0].calls) == drafted
    assert sum(call.args["accepted_draft_tokens"] for call in found[0].calls) == accepted


def test_an_image_is_a_piece_of_its_request(path: Path) -> None:
    engine = seeing("qwen3", NO_CACHE)
    try:
        engine.wait()
        with recorded(engine, path) as found:
            prompt = prompt_of(tokens(9), picture(1, 20), tokens(10, 2))
            generate(engine, GenerationRequest(prompt, GREEDY, 2))
    finally:
        engine.close()
    [call] = found[0].calls
    assert call.kinds == ["waiting", "image", "prefill", "decode"]
    assert sum(call.sizes("prefill")) in (len(prompt.tokens), len(prompt.tokens) - 1)
    assert [span.name for span in found[0].engine].count("image 20 tokens") == 1


def test_a_preempted_row_waits_again_and_reads_its_tokens_again(path: Path) -> None:
    with engine_of(NO_CACHE) as engine:
        rows, left = inside.rows(engine), [1]

        def preempted() -> Iterator[Piece]:
            [row] = rows.batch.rows
            if row.generated == 8 and left:
                left.pop()
                yield Preempt(row.number)

        before_each_step(rows, preempted)
        with recorded(engine, path) as found:
            generate(engine, request(tokens(20), max_tokens=24))
    [call] = found[0].calls
    assert call.kinds == ["waiting", "prefill", "decode", "waiting", "prefill", "decode"]
    assert call.args["preempted"] == 1 and sum(call.sizes("prefill")[1:]) >= 20 + 7


def test_a_canceled_row_ends_when_it_leaves(path: Path) -> None:
    with engine_of(NO_CACHE) as engine, recorded(engine, path) as found:
        running = Running(engine, request(tokens(20), max_tokens=50_000))
        running.read(3)
        running.cancel()
        assert eventually(lambda: not engine.stats().running and not engine.stats().waiting)
        generate(engine, request(tokens(20, 1), max_tokens=2))
    [canceled, after] = found[0].calls
    assert canceled.args["outcome"] == "canceled" and canceled.kinds == ["waiting", "prefill", "decode"]
    assert canceled.args["output_tokens"] >= 3 and after.start >= canceled.end
    assert [*found[0].lanes] == ["requests"]


def test_a_request_that_is_canceled_in_the_queue_only_waited(path: Path) -> None:
    with engine_of(EngineOptions(max_rows=1, prefix_cache_bytes=0)) as engine, recorded(engine, path) as found:
        first = Running(engine, request(tokens(20), max_tokens=50_000))
        first.read(2)
        waiting = Running(engine, request(tokens(20, 3), max_tokens=5))
        assert eventually(lambda: engine.stats().waiting == 1)
        waiting.cancel()
        assert eventually(lambda: engine.stats().waiting == 0)
        first.cancel()
        assert eventually(lambda: engine.stats().running == 0)
    assert sorted(call.names for call in found[0].calls)[0] == ["waiting"]
    assert {call.args["outcome"] for call in found[0].calls} == {"canceled"}


def test_a_failed_row_ends_where_it_failed(path: Path) -> None:
    with engine_of(NO_CACHE) as engine, recorded(engine, path) as found:
        with prefilling(engine, lambda: 1 / 0), pytest.raises(RowError, match="ZeroDivisionError"):
            Running(engine, request(tokens(20, 3), max_tokens=5)).finish()
        with stepping(engine, lambda: 1 / 0), pytest.raises(RowError, match="ZeroDivisionError"):
            Running(engine, request(tokens(20, 4), max_tokens=5)).finish()
        assert len(generate(engine, request(tokens(20), max_tokens=3))[0]) == 3
    assert [call.args["outcome"] for call in found[0].calls] == ["failed", "failed", "length"]
    assert found[0].calls[0].names == ["waiting", "prefill 0 tokens"]
    assert "decode" in found[0].calls[1].names


def test_an_engine_that_starts_afresh_numbers_its_rows_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine_of(NO_CACHE) as engine, recorded(engine, path) as found:
        generate(engine, request(tokens(30), max_tokens=3))
        scheduler = inside.loop(engine)._batcher.scheduler
        monkeypatch.setattr(scheduler, "_begin", lambda: 1 / 0)
        with pytest.raises(RowError, match="ZeroDivisionError"):
            Running(engine, request(tokens(20), max_tokens=3)).finish()
        generate(engine, request(tokens(50), max_tokens=3))
    first, failed, last = found[0].calls
    assert (first.args["outcome"], failed.args["outcome"], last.args["outcome"]) == ("length", "failed", "length")
    assert (first.sizes("prefill"), failed.names, last.sizes("prefill")) == ([30], ["waiting"], [50])


def test_a_recording_that_starts_in_the_middle_shows_running_requests_whole(path: Path) -> None:
    with engine_of(NO_CACHE) as engine:
        running = Running(engine, request(tokens(20), max_tokens=200))
        running.read(5)
        with recorded(engine, path) as found:
            running.finish()
        [call] = found[0].calls
        assert call.names == ["waiting", "prefill", "decode"] and call.args["output_tokens"] == 200
        assert call.start < found[0].engine[0].start


def test_a_recording_can_be_read_while_requests_run_and_after_the_engine_was_closed(path: Path) -> None:
    with engine_of(NO_CACHE) as engine:
        recording = engine.record()
        running = Running(engine, request(tokens(20), max_tokens=50_000))
        running.read(5)
        [process] = processes(path, recording.read())
        [call] = process.calls
        assert call.args["outcome"] == "running" and call.names[-1] == "decode"
        with stepping(engine, gate := Gate(lambda: True)):
            gate.close(engine)
            with pytest.raises(EngineClosedError):
                running.finish()
        engine.close()
        for _ in range(2):
            [process] = processes(path, recording.read())
            [call] = process.calls
            assert call.args["outcome"] == "failed" and call.names[-1] == "decode"
            recording.stop()


def test_only_the_last_entries_are_kept_and_the_trace_says_so(path: Path) -> None:
    with engine_of(NO_CACHE) as engine:
        recording = engine.record(50)
        for i in range(40):
            generate(engine, request(tokens(20, i), max_tokens=2))
        found = recording.read()
        assert len(found.entries) in (50, 51) and found.dropped > 40
        recording.stop()
        [process] = processes(path, recording.read())
        assert process.labels == f"{found.dropped:,} older entries were dropped"
        assert 5 < len(process.calls) < 25
        assert '"dropped": 0' not in path.read_text()


def test_recordings_of_an_engine_do_not_disturb_each_other(path: Path, tmp_path: Path) -> None:
    with engine_of(NO_CACHE) as engine:
        with recorded(engine, path) as whole:
            generate(engine, request(tokens(20), max_tokens=3))
            with recorded(engine, tmp_path / "part.json") as part:
                generate(engine, request(tokens(20, 1), max_tokens=3))
            generate(engine, request(tokens(20, 2), max_tokens=3))
        assert (len(whole[0].calls), len(part[0].calls)) == (3, 1)
        assert inside.loop(engine)._meter.recordings == []
        assert read_one(path).name == "model"

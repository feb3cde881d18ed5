"""Timelines of recordings that were made up: what a trace shows of rows that wait, run, return, and end."""

from __future__ import annotations

from pathlib import Path

import pytest

from localai_shim.stats import DraftCounts, InputCounts, RowTimings
from localai_shim.telemetry.trace import write_trace
from localai_shim.types.timeline import Entry, Moved, Part, Ran, Recorded, Recording, Request, Restart, Steps, now
from tests.timelines import Process, processes

MS = 1_000_000  # nanoseconds


def row(number: int, *at: float | None, outcome: str = "stop", agent: str | None = None, output: int = 5) -> Request:
    """One that was queued, begun, prefilled, had its first token, and ended at these times."""
    timings = RowTimings(**dict(zip(("queued", "begun", "prefilled", "first_token", "finished"), at, strict=False)))
    return Request(number, agent, "generate", timings, outcome, InputCounts(9), output)


def shown(path: Path, *entries: Entry, end: float = 9.0) -> Process:
    [process] = processes(path, Recorded("model", 0.0, end, entries, 0))
    return process


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.json"


def test_times_are_those_of_the_engine(path: Path) -> None:
    pieces = Ran("prefill", 1.0, 1.5, (Part((1,), 8),)), Moved(1.6, (1,), joined=True)
    process = shown(path, *pieces, Steps(1.6, 2.0, 1, 0.3, 2), row(1, 0.5, 1.0, 1.6, 1.7, 2.0))
    [call] = process.calls
    assert [(each.name, each.start, each.end) for each in call.inner] == [
        ("waiting", 500 * MS, 1000 * MS),
        ("prefill 8 tokens", 1000 * MS, 1500 * MS),
        ("decode", 1600 * MS, 2000 * MS),
    ]
    assert (call.start, call.end) == (500 * MS, 2000 * MS)
    assert (call.args["waited_ms"], call.args["first_token_ms"]) == (500, 1200)
    [prefill, decode] = process.engine
    assert (prefill.name, decode.name, decode.args) == (
        "prefill 8 tokens",
        "decode 1 row",
        {"steps": 2, "longest_ms": 300},
    )


def test_a_trace_begins_with_the_first_request_even_if_that_is_older_than_the_recording(path: Path) -> None:
    [process] = processes(path, Recorded("model", 5.0, 9.0, [row(1, 2.0, 3.0, 4.0, 4.0, 6.0)], 0))
    assert (process.calls[0].start, process.calls[0].end) == (0, 4000 * MS)


def test_pieces_that_were_dropped_are_one_piece(path: Path) -> None:
    [call] = shown(path, row(7, 1.0, 2.0, 3.0, 3.0, 4.0)).calls
    assert call.names == ["waiting", "prefill", "decode"]


def test_a_shared_pass_is_in_the_lane_of_each_prompt_with_its_own_tokens(path: Path) -> None:
    together = Ran("prefill", 2.0, 3.0, (Part((1, 2), 8), Part((3,), 5)))
    ends = [row(number, 1.0, 2.0, 3.0, 3.0, 4.0) for number in (1, 2, 3)]
    process = shown(path, together, *ends)
    assert sorted(call.names[1] for call in process.calls) == [
        "prefill 5 tokens",
        "prefill 8 tokens",
        "prefill 8 tokens",
    ]
    assert [span.name for span in process.engine] == ["prefill 13 tokens"] and len(process.lanes) == 3


def test_a_row_can_return_to_the_queue_several_times(path: Path) -> None:
    entries: list[Entry] = []
    for at in (1.0, 3.0, 5.0):
        entries += [Ran("prefill", at, at + 0.5, (Part((4,), 8),)), Moved(at + 0.5, (4,), joined=True)]
        entries += [Moved(at + 1.0, (4,), joined=False)]
    [call] = shown(path, *entries, row(4, 0.0, 1.0, 1.5, 1.6, 7.0, outcome="canceled")).calls
    assert call.kinds == ["waiting", "prefill", "decode"] * 3 + ["waiting"]
    assert call.args["preempted"] == 3 and call.args["outcome"] == "canceled"


def test_a_row_that_never_began_only_waited(path: Path) -> None:
    [call] = shown(path, row(1, 1.0, None, None, None, 2.0, outcome="canceled", output=0)).calls
    assert (call.names, call.end - call.start) == (["waiting"], 1000 * MS)


def test_a_row_that_ended_with_its_piece_has_no_span_outside_itself(path: Path) -> None:
    late = Ran("prefill", 2.0, 4.0, (Part((1,), 8),)), Moved(4.1, (1,), joined=True)
    [call] = shown(path, *late, row(1, 1.0, 2.0, None, None, 3.0, outcome="failed", output=0)).calls
    assert call.names == ["waiting", "prefill 8 tokens"] and call.inner[-1].end == call.end


def test_numbers_of_an_engine_that_has_started_afresh_are_those_of_other_rows(path: Path) -> None:
    lost = Ran("prefill", 1.0, 1.2, (Part((1,), 500),))
    later = Ran("prefill", 3.0, 3.2, (Part((1,), 8),))
    [call] = shown(path, lost, Restart(), later, row(1, 2.5, 3.0, 3.3, 3.4, 4.0)).calls
    assert call.names == ["waiting", "prefill 8 tokens", "decode"]


def test_several_engines_are_several_processes(path: Path) -> None:
    found = processes(
        path, Recorded("small", 1, 5, [row(1, 1, 2, 3, 3, 4)], 0), Recorded("large", 1, 5, [row(1, 2, 3, 4, 4, 5)], 3)
    )
    assert [process.name for process in found] == ["small", "large"]
    assert [call.start for process in found for call in process.calls] == [0, 1000 * MS]
    assert found[1].labels == "3 older entries were dropped"


def test_a_trace_of_nothing_is_a_trace(path: Path) -> None:
    assert processes(path) == []
    [process] = processes(path, Recorded("model", 1.0, 2.0, [], 0))
    assert not process.lanes and not process.engine


def test_names_of_agents_are_cut_and_whole_in_the_details(path: Path) -> None:
    agent = "resp_" + "5" * 48
    process = shown(path, row(1, 1, 2, 3, 3, 4, agent=agent), row(2, 5, 6, 7, 7, 8, agent=agent))
    [(name, [first, gap, second])] = process.lanes.items()
    assert name == first.name == second.name and agent.startswith(name[:-1]) and len(name) == 24
    assert gap.name == "between calls" and first.args["agent"] == second.args["agent"] == agent


def test_a_file_that_cannot_be_written_leaves_the_old_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("old")
    with pytest.raises(TypeError):
        write_trace(path, [Recorded("model", 0, 1, [row(1, 1, 2, 3, 3, 4, agent=b"no text")], 0)])  # type: ignore[arg-type]
    assert path.read_text() == "old" and [*path.parent.iterdir()] == [path]
    with pytest.raises(FileNotFoundError):
        write_trace(path.parent / "missing" / "run.json", [])


# -- recordings ------------------------------------------------------------------------------------------------------


def recording(most: int = 100) -> Recording:
    return Recording("model", tuple, lambda stopped: None, most)


def test_steps_of_other_rows_or_after_a_pause_are_separate_entries() -> None:
    made, at = recording(), now()
    for start, rows in ((0.0, 2), (0.01, 2), (0.02, 3), (0.03, 3), (0.9, 3)):
        made.add_step(Steps(at + start, at + start + 0.01, rows, 0.01))
    assert [(each.rows, each.steps) for each in made.read().entries if isinstance(each, Steps)] == [
        (2, 2),
        (3, 2),
        (3, 1),
    ]


def test_a_thousand_short_steps_are_few_entries_and_lose_no_draft() -> None:
    made, at = recording(), now()
    for i in range(1000):
        made.add_step(Steps(at + i / 1000, at + (i + 1) / 1000, 2, 0.001, drafts=DraftCounts(3, 1)))
    steps = [each for each in made.read().entries if isinstance(each, Steps)]
    assert len(steps) <= 21 and sum(each.steps for each in steps) == 1000
    assert (sum(each.drafts.drafted for each in steps), sum(each.drafts.accepted for each in steps)) == (3000, 1000)
    assert all(each.end - each.start <= 0.051 for each in steps)


def test_a_full_recording_drops_its_oldest_entries() -> None:
    made = recording(10)
    for number in range(1, 31):
        made.add(row(number, 1.0, 2.0, 3.0, 3.0, 4.0 + number))
    assert made.read().dropped == 20
    assert [each.number for each in made.read().entries if isinstance(each, Request)] == list(range(21, 31))


def test_a_stopped_recording_stays_as_it_was() -> None:
    made = recording()
    made.add(row(1, 1.0, 2.0, 3.0, 3.0, 4.0))
    made.stop()
    found = made.read()
    made.add(row(2, 1.0, 2.0, 3.0, 3.0, 4.0))
    made.stop()
    assert made.read() is found and len(found.entries) == 1

"""A row that cannot join the batch fails alone: beside it others join, and those that run go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localai_shim.engine.engine import Engine
from localai_shim.engine.kv import Buckets
from localai_shim.engine.prompts.prefill import PrefillJob
from localai_shim.engine.row import Row
from localai_shim.engine.sampling.sampler import Sample
from localai_shim.engine.sinks import SyncSink
from localai_shim.engine.work.runner import join
from localai_shim.models.loading import load_model
from localai_shim.models.text import TextModel
from localai_shim.types import Failure, RowError
from tests.engine.constraints import Stepped
from tests.engine.harness import Running, decode, engine_for, generate, request, step_of
from tests.tiny import tiny


class Joining(Stepped):
    """Has prefilled rows join as the scheduler does."""

    def job(self, tokens: list[int], *, torn: bool = False) -> PrefillJob:
        """A prefilled prompt; `torn`: a layer of its cache has lost a token."""
        row = Row(request(tokens, max_tokens=8), SyncSink(), 0, self.model)
        self.events[row] = []
        job = PrefillJob([row], row.request.prompt, 0)
        job.cache = self.model.new_cache()
        self.model.prefill(step_of(tokens[:-1], job.cache))
        if torn:
            job.cache[0].trim(1)
        return job

    def join_jobs(self, *jobs: PrefillJob) -> None:
        join(self.batch, jobs, lambda row, event: self.events[row].append(event))

    def finish(self, job: PrefillJob) -> list[int]:
        while job.rows[0] in self.batch.rows:
            decode(self.batch)
        return self.tokens(job.rows[0])

    def error(self, job: PrefillJob) -> str | None:
        last = self.events[job.rows[0]][-1]
        return str(last.error) if isinstance(last, Failure) else None


@pytest.fixture
def joining() -> Joining:
    return Joining(load_model(str(tiny("qwen3")), {}))


def alone(joining: Joining, tokens: list[int]) -> list[int]:
    job = joining.job(tokens)
    joining.join_jobs(job)
    return joining.finish(job)


@pytest.mark.parametrize("running", [0, 1, 2])
def test_a_row_whose_cache_is_torn_fails_and_the_others_join(joining: Joining, running: int) -> None:
    prompts = [[5, 6, 7], [8, 9, 10, 11], [12, 13], [14, 15, 16]]
    expected = [alone(joining, tokens) for tokens in prompts]
    jobs = [joining.job(tokens) for tokens in prompts]
    for job in jobs[:running]:
        joining.join_jobs(job)
    torn = joining.job([20, 21, 22, 23], torn=True)
    joining.join_jobs(*jobs[running:], torn)
    assert "different numbers of tokens" in (joining.error(torn) or "")
    assert [joining.finish(job) for job in jobs] == expected


def test_where_nobody_is_to_blame_those_that_join_fail_and_the_others_go_on(
    joining: Joining, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = alone(joining, [5, 6, 7])
    job, late = joining.job([5, 6, 7]), joining.job([8, 9])
    joining.join_jobs(job)
    decode(joining.batch)

    def failing(*_: object) -> int:
        raise ArithmeticError("no bucket")

    with monkeypatch.context() as patch:
        patch.setattr(Buckets, "_choose", failing)
        joining.join_jobs(late)
    assert "no bucket" in (joining.error(late) or "") and joining.finish(job) == expected


def test_when_a_cache_is_half_written_no_row_goes_on_and_the_next_one_does(
    joining: Joining, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = alone(joining, [5, 6, 7])
    job, late = joining.job([5, 6, 7]), joining.job([8, 9])
    joining.join_jobs(job)

    def failing(*_: object) -> object:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Buckets, "join", failing)
        joining.join_jobs(late)
    assert all("no room" in (joining.error(each) or "") for each in (job, late))
    assert not joining.batch.rows and alone(joining, [5, 6, 7]) == expected


def test_a_step_that_fails_while_others_join_is_that_of_its_own_rows(
    joining: Joining, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = alone(joining, [8, 9])
    job, late = joining.job([5, 6, 7]), joining.job([8, 9])
    joining.join_jobs(job)
    decode(joining.batch)

    def failing(sample: Sample) -> None:
        raise RuntimeError("device lost")

    with monkeypatch.context() as patch:
        patch.setattr(Sample, "read", failing)
        joining.join_jobs(late)
    assert "the model failed" in (joining.error(job) or "") and joining.finish(late) == expected


# -- prompts of no token --------------------------------------------------------------------------------------------


@pytest.fixture
def engine() -> Iterator[Engine[TextModel]]:
    made = engine_for("qwen3")
    yield made
    made.close()


def test_a_prompt_of_no_token_fails_alone(engine: Engine[TextModel]) -> None:
    expected = generate(engine, request([5, 6, 7], max_tokens=40))
    good = [Running(engine, request([5, 6, 7], max_tokens=40)) for _ in range(4)]
    for each in good:
        each.read(2)
    with pytest.raises(RowError, match="zero tokens"):
        Running(engine, request([])).finish()
    assert [each.finish() for each in good] == [expected] * 4

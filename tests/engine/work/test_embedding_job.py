"""A request's texts while they wait."""

from __future__ import annotations

import random

from localai_shim.engine.sinks import SyncSink
from localai_shim.engine.work.texts import EmbeddingJob
from localai_shim.types import EmbeddingRequest


def test_the_tokens_of_a_job_are_those_of_the_texts_that_no_pass_has_taken() -> None:
    generator = random.Random(3)
    job = EmbeddingJob(EmbeddingRequest([[5] * generator.randrange(1, 40) for _ in range(30)]), SyncSink(), 0)
    for restarts in (False, True):
        if restarts:
            job.restart()
        for place in generator.sample(range(30), 30):
            assert job.length[0] == sum(length for length, _ in job.waiting) > 0
            job.take(place)
            job.take(place)
        assert job.length == (0,) and not job.waiting

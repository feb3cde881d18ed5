"""Whatever a model writes: nothing raises, nothing is lost, and no markup is content. 100,000 random token streams."""

from __future__ import annotations

import random

import pytest

from tests.output.recorded import WRITERS
from tests.output.streams import check, stream
from tests.samples import only

PER_FAMILY = {"a few": 100, "100,000 in all": -(-100_000 // len(WRITERS))}


@pytest.mark.parametrize("streams", only(["a few"], PER_FAMILY))
@pytest.mark.parametrize("family", WRITERS)
def test_random_streams_are_read_without_loss(family: str, streams: str) -> None:
    rng = random.Random(f"1 {family}")
    for number in range(PER_FAMILY[streams]):
        made = stream(family, rng)
        try:
            check(made)
        except Exception as error:
            raise AssertionError(f"stream {number}: {made.pieces}, {made.case.finish}, {made.stop}") from error

"""Whatever a model writes, in the words of any family and in any pieces: it reads alike, nothing raises or is lost."""

from __future__ import annotations

import random

import pytest

from tests.output.recorded import WRITERS
from tests.output.streams import check
from tests.soak.fuzz.blocks import BLOCKS
from tests.soak.fuzz.outputs.mixed import check_cuts, mixed

PER_FAMILY = -(-100 // len(WRITERS))


@pytest.mark.parametrize("block", BLOCKS)
def test_mixed_answers_read_alike_however_they_are_cut(block: int) -> None:
    for family in WRITERS:
        rng = random.Random(f"{block} {family}")
        for number in range(PER_FAMILY):
            made = mixed(family, rng)
            try:
                check(made)
                check_cuts(made.case, rng)
            except Exception as error:
                case = made.case
                how = f"opened={case.opened}, {len(case.tools)} tools, {case.finish}"
                raise AssertionError(f"{family} {number}: {case.text!r} as {made.pieces}, {how}") from error

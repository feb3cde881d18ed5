"""Whatever a body holds: a valid answer, or the SDK's exception that names a field; nothing hangs, no row is left."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.soak.fuzz.blocks import BLOCKS
from tests.soak.fuzz.bodies.cases import Request, requests
from tests.soak.fuzz.bodies.sending import REPLIES, Sender

BODIES = 500


@pytest.mark.parametrize("block", BLOCKS)
def test_a_body_is_answered_or_refused(block: int) -> None:
    sender = Sender()

    @seed(block)
    @settings(max_examples=BODIES, database=None, print_blob=False, suppress_health_check=[*HealthCheck])
    @given(requests(len(REPLIES)))
    def ask(request: Request) -> None:
        sender.check(request)

    try:
        ask()
    finally:
        sender.close()
        print(sender.outcomes)  # noqa: T201
    assert sender.outcomes["answer"] > BODIES / 10

"""A failure at each boundary, amid a request, while others run."""

from __future__ import annotations

import pytest

from tests.samples import only
from tests.soak.faults.kinds import KINDS
from tests.soak.faults.load import CALLERS, Load, logged
from tests.soak.faults.outcomes import attempt, gets, said
from tests.soak.faults.places import Armed
from tests.soak.faults.table import PARTS, Point

CASES = only(
    [*((part, "thread") for part in PARTS), *((part, "asyncio") for part in ("preparing", "reading", "storing"))],
    [(part, caller) for part in PARTS for caller in CALLERS],
)
"""What an engine does is the same for all callers."""


@pytest.mark.parametrize(("part", "caller"), CASES)
def test_a_fault_is_that_of_its_own_request(part: str, caller: str, load: Load) -> None:
    for point in PARTS[part]:
        try:
            fail_at(point, caller, load)
        except BaseException as error:
            error.add_note(f"{point}, from {caller}")
            raise


def fail_at(point: Point, caller: str, load: Load) -> None:
    """Have a request meet a fault, and look at what came of it, of those beside it and of the next one."""
    load.renew()
    name = KINDS[point.kind][0]
    with pytest.MonkeyPatch.context() as patch, logged():
        with load.busy(name if name in load.pairs else "text") as beside:
            armed = Armed(patch, point.place, point.raised, point.after, point.times)
            outcome = attempt(load, point.kind, caller)
        assert armed.fired.wait(20), "it was never called"
    others = [each.error for each in beside]
    assert all(each.is_right for each in beside)
    failed = [error for error in (outcome, *others) if isinstance(error, Exception)]
    if point.who in ("one", "rows"):
        assert failed and all(type(error) is point.gets for error in failed)
        assert point.who == "rows" or len(failed) == 1
        assert isinstance(outcome, Exception) or load.is_right(point.kind, outcome)
    else:
        assert others == [None] * len(beside)
        assert gets(load, point.kind, outcome) == ("right" if point.who == "nobody" else point.gets)
    assert all(str(point.raised()) in said(error) for error in failed)
    load.renew()
    assert not load.left()
    assert load.is_right(point.kind, load.play(point.kind, caller))

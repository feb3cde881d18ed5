"""How long an event loop is kept from its other tasks while something else runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

_BEAT = 0.005  # seconds


async def gaps_while(work: Callable[[], Awaitable[None]]) -> list[float]:
    """Seconds by which each beat came too late while the work was done, the longest last.

    Of those only as many as this process computed for meanwhile: what other programs take of the processor blocks
    nobody here.
    """
    gaps: list[float] = []
    stop = asyncio.Event()

    async def beat() -> None:
        last, computed = time.perf_counter(), time.process_time()
        while not stop.is_set():
            await asyncio.sleep(_BEAT)
            now, own = time.perf_counter(), time.process_time()
            gaps.append(min(now - last - _BEAT, own - computed))
            last, computed = now, own

    beating = asyncio.create_task(beat())
    await work()
    stop.set()
    await beating
    return sorted(gaps)


async def stays_free(work: Callable[[int], Awaitable[None]], blocking: float, rounds: int = 4) -> bool:
    """Whether the loop is never kept for half as long as what would block it takes, in the best of a few rounds.

    What blocks does so in every round and is as slow as the machine; busy neighbours take a thread off its core now and
    then, which the two longest gaps of a round may be, too.

    Args:
        work: one round; gets its number.
        blocking: seconds of the processor's time that one of several pieces of the work takes, which must not run on
            the loop.
    """
    for number in range(rounds):

        async def one(number: int = number) -> None:
            await work(number)

        gaps = await gaps_while(one)
        assert len(gaps) > 5
        if gaps[-3] < blocking / 2:
            return True
    return False

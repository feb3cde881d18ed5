"""Figures of several engines in one."""

from __future__ import annotations

from localai_shim.scale.ray.pool import summed
from localai_shim.stats import DraftCounts, EngineStats, Percentiles


def test_figures_add_up() -> None:
    one = EngineStats(
        1, 2, 3, kv_bytes_per_token=8, backend="cpu, blas", modalities=("text",), step_seconds=Percentiles(1, 2, 3, 4)
    )
    other = EngineStats(
        10,
        20,
        30,
        kv_bytes_per_token=8,
        kv_budget=7,
        backend="cpu, blas",
        modalities=("text", "image"),
        step_seconds=Percentiles(0, 3, 1, 5),
        drafts={"lookup": DraftCounts(4, 2)},
    )
    assert summed([one, other, other]) == EngineStats(
        21,
        42,
        63,
        kv_bytes_per_token=8,
        kv_budget=14,
        backend="cpu, blas",
        modalities=("text", "image"),
        step_seconds=Percentiles(1, 3, 3, 5),
        drafts={"lookup": DraftCounts(8, 4)},
    )


def test_no_figures_are_those_of_an_engine_that_did_nothing() -> None:
    assert summed([]) == EngineStats(0, 0, 0)

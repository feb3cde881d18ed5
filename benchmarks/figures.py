"""A figure, its target, and how both are printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(slots=True)
class Figure:
    """Something that was measured, run by run, and what its median is to reach."""

    name: str
    values: list[float]
    target: float | None
    """None: only stated."""
    at_least: bool = True
    """Whether the target is the least or the most that is good."""
    unit: str = ""
    scale: float = 1.0
    """From `values` and `target` to `unit`."""
    digits: int = 2
    note: str = ""

    @property
    def verdict(self) -> str:
        """PASS or MISS; a dash where there is no target, MISS where nothing could be measured."""
        if self.target is None:
            return "-"
        if not self.values:
            return "MISS"
        middle = median(self.values)
        return "PASS" if (middle >= self.target if self.at_least else middle <= self.target) else "MISS"

    @property
    def goal(self) -> str:
        """The target as text."""
        if self.target is None:
            return "stated"
        return f"{'>=' if self.at_least else '<='} {self.scale * self.target:.{self.digits}f}{self.unit}"

    @property
    def reached(self) -> str:
        """`median (min..max)`, with the unit."""
        return spread(self.values, self.scale, self.digits) + self.unit

    def json(self) -> dict[str, Any]:
        """Raw values; `target` is in their unit."""
        return {
            "figure": self.name,
            "values": self.values,
            "target": self.target,
            "at_least": self.at_least,
            "verdict": self.verdict,
            "note": self.note,
        }


@dataclass(slots=True)
class Section:
    """What one part of the benchmarks found."""

    figures: list[Figure] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)
    """More of it, for `--json`."""


def spread(values: Sequence[float], scale: float = 1.0, digits: int = 2) -> str:
    """`median (min..max)`; a dash where nothing could be measured."""
    if not values:
        return "-"
    middle, low, high = (scale * f(values) for f in (median, min, max))
    return f"{middle:.{digits}f} ({low:.{digits}f}..{high:.{digits}f})"


def verdict(good: bool) -> str:
    return "PASS" if good else "MISS"


def ratios(values: Sequence[float], to: Sequence[float]) -> list[float]:
    """Pair by pair."""
    return [a / b for a, b in zip(values, to, strict=True)]


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns, numbers to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in (head, ["-" * width for width in widths], *rows):
        cells = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    print(flush=True)


def print_figures(figures: Sequence[Figure]) -> None:
    """A line each, with notes below."""
    if not figures:
        return
    print_table(["figure", "reached", "target", ""], [[f.name, f.reached, f.goal, f.verdict] for f in figures])
    notes = [f"{f.name}: {f.note}" for f in figures if f.note]
    if notes:
        print("\n".join(notes), end="\n\n", flush=True)


def print_summary(figures: Sequence[Figure]) -> None:
    """All figures of a run."""
    if not figures:
        return
    missed = sum(f.verdict == "MISS" for f in figures)
    print(f"Summary: {len(figures)} figures, {missed} missed; medians (min..max)")
    print_figures(figures)

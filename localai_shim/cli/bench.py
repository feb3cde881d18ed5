"""Measure how fast a model is on this machine: a table in about half a minute, and a plot.

The rate of concurrent streams stands beside that of the model's steps alone, which is the limit.
"""

from __future__ import annotations

import argparse
import sys

from .loading import ending_at_once
from .measure import BUSY, Level, measure
from .model_options import add_model, given_options
from .show import make_console, print_table, write

STREAMS = (1, 8, 32)
SECONDS = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plot", metavar="FILE", help="draw the table as a PNG as well")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help="about how long (30)")
    add_model(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure, print the table, draw the plot."""
    if not arguments.seconds > 0:
        raise ValueError(f"--seconds must be positive, not {arguments.seconds:g}")
    console = make_console()
    if console.is_terminal:
        write(console, f"Measuring for about {arguments.seconds:g} seconds.\n", "dim")
    with ending_at_once("bench"):
        levels = measure(arguments.model, STREAMS, arguments.seconds, given_options(arguments))
    print_table(console, (">streams", ">TTFT", ">tok/s", ">per stream", ">bare step", ">ratio"), [*map(_row, levels)])
    if any(level.busy for level in levels):
        sys.stderr.write(f"note: {BUSY}\n")
    if arguments.plot:
        from .plot import draw

        draw(levels, arguments.plot)
    return 0


def _row(level: Level) -> tuple[str, ...]:
    return (
        str(level.streams),
        f"{level.first_token_seconds * 1000:.0f} ms",
        f"{level.rate:,.0f}",
        f"{level.rate / level.streams:,.0f}",
        "-" if level.bare_rate is None else f"{level.bare_rate:,.0f}",
        "-" if level.ratio is None else f"{level.ratio:.2f}",
    )

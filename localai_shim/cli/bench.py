"""Measure the speed of a model on this machine, in about half a minute."""

from __future__ import annotations

import argparse

from .loading import add_model, given_options, open_client
from .measure import measure
from .show import make_console, print_table, write

STREAMS = (1, 8, 32)
SECONDS = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help="approximate duration (30)")
    add_model(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print the table."""
    if not arguments.seconds > 0:
        raise ValueError(f"--seconds must be > 0, got {arguments.seconds:g}")
    console = make_console()
    if console.is_terminal:
        write(console, f"Measuring for about {arguments.seconds:g} seconds.\n", "dim")
    with open_client("bench", arguments.model, given_options(arguments)) as client:
        levels = measure(client, STREAMS, arguments.seconds)
    rows = [
        (
            str(level.streams),
            f"{level.first_token_seconds * 1000:.0f} ms",
            f"{level.rate:,.0f}",
            f"{level.rate / level.streams:,.0f}",
        )
        for level in levels
    ]
    print_table(console, (">streams", ">TTFT", ">tok/s", ">per stream"), rows)
    return 0

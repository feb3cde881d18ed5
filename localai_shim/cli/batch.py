"""Answer the lines of a batch's input file, many at a time, without uploading it anywhere.

Each line is a request as OpenAI's batches take it; each answer is a line of the output file, written as it comes.
"""

from __future__ import annotations

import argparse
import sys

from .model_options import add_model, given_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="IN", help="a file of requests, as JSON lines")
    parser.add_argument("output", metavar="OUT", help="a new file for the answers")
    add_model(parser, "-m", "--model")


def run(arguments: argparse.Namespace) -> int:
    """Answer all lines, beside a bar on a terminal; 1 where some of the answers are errors."""
    from ..adapters.progress import make_bar
    from ..client import LocalOpenAI
    from ..lines import answer_lines

    options = given_options(arguments)
    options["keep_alive"] = 0
    with open(arguments.input, "rb") as lines:
        total = sum(bool(line.strip()) for line in lines)
        lines.seek(0)
        show, counts = make_bar(arguments.input), [0, 0]

        def count(answered: int, failed: int) -> None:
            counts[:] = answered, failed
            show(answered + failed, total)

        with (
            open(arguments.output, "x", encoding="utf-8", buffering=1) as out,
            LocalOpenAI(arguments.model, **options) as client,
        ):
            for answer in answer_lines(client, lines, on_progress=count):
                out.write(f"{answer}\n")
    answered, failed = counts
    sys.stderr.write(f"{answered} answered, {failed} with errors: {arguments.output}\n")
    return 1 if failed else 0

"""Run a program whose requests to OpenAI a local model answers.

PROGRAM is a script, a module (-m NAME), or a program that is installed in this environment, such as llm. It runs in
this process with a placeholder key. Nothing reaches OpenAI. Options come before PROGRAM.
"""

from __future__ import annotations

import argparse
import sys

from .loading import add_model, given_options, open_client


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe what is run."""
    parser.usage = "localai-shim run [OPTION ...] (PROGRAM | -m MODULE) [ARGUMENT ...]"
    add_model(parser, "--model")
    parser.add_argument(
        "--block-network", action="store_true", help="refuse all connections to other machines while the program runs"
    )
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="run a module by its name"
    )
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="a script or an installed program; its arguments"
    )


def run(given: argparse.Namespace) -> int:
    """Run the program until it ends."""
    from ..replacing.programs import find_module, find_program, run_program

    # Behind `-m`, argparse takes `--` and what follows for the program's.
    words = given.module and given.module + given.program
    name, *arguments = words or _without_dashes(given.program) or [""]
    if not name:
        sys.stderr.write("localai-shim run: name a program to run, such as script.py, -m MODULE, or llm\n")
        return 2
    program = find_module(name) if given.module else find_program(name)
    client = open_client("run", given.model, given_options(given))

    from ..replacing.network import begin, refuse_all
    from ..replacing.program import Replacement

    # Neither ends with this function: threads and exit handlers of the program come later.
    Replacement(client, is_owned=True)
    if given.block_network:
        begin(refuse_all)
    return run_program(program, arguments)


def _without_dashes(program: list[str]) -> list[str]:
    return program[1:] if program[:1] == ["--"] else program

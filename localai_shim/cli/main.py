"""Parser of the command line, and the module for each command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from ..types import VERSION, EngineError
from . import batch, bench, chat, doctor, models, run, transcribe
from .shared import INTERRUPTED, interrupted, one_line

COMMANDS = {
    "chat": chat,
    "run": run,
    "batch": batch,
    "transcribe": transcribe,
    "models": models,
    "doctor": doctor,
    "bench": bench,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 1 where something is wrong, 2 where the arguments are."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return 2
    try:
        status: int = COMMANDS[given.command].run(given)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        sys.stderr.write(interrupted(given.command))
        return INTERRUPTED
    except BrokenPipeError:  # whoever read the output has left; Python would say so once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ImportError, EngineError, OSError, ValueError) as error:  # imports: a back end or an extra is missing
        sys.stderr.write(f"localai-shim {given.command}: {one_line(str(error))}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="localai-shim", description="Run local models through the OpenAI SDK's own clients, without a server."
    )
    parser.add_argument("--version", action="version", version=f"localai-shim {VERSION}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, module in COMMANDS.items():
        summary, _, more = (module.__doc__ or "").partition("\n")
        command = commands.add_parser(name, help=summary, description=f"{summary}\n{more}".strip())
        module.add_arguments(command)
    return parser

"""Answer a file of requests, many concurrently, without uploading it.

Each line is a request in the format of OpenAI's batches. Each answer is one line of the output file, written when it
is complete.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ..types import Json
from .shared import add_model, ending_at_once, given_options, one_line, open_client

MAX_NAMED = 20  # failing lines that are named at the end
MAX_REASON_CHARACTERS = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="IN", help="file of requests, as JSON lines")
    parser.add_argument("output", metavar="OUT", help="new file for the answers")
    parser.add_argument(
        "--resume", action="store_true", help="continue an interrupted run: answer the lines that OUT has no answer to"
    )
    parser.add_argument(
        "--ray", type=int, metavar="N", help="answer with N replicas of the model, each in its own process"
    )
    add_model(parser, "-m", "--model")


def run(arguments: argparse.Namespace) -> int:
    """Answer all lines, with a bar on a terminal; 1 if some of the answers are errors."""
    output = Path(arguments.output)
    with open(arguments.input, "rb") as lines:
        total = sum(bool(line.strip()) for line in lines)
        lines.seek(0)
        found = _find_answers(output, resume=arguments.resume)
        told, is_error = 0, False
        try:
            with _answering(arguments) as answer_lines, _appending(output, found) as out:
                from ..models.progress import make_bar

                show = make_bar(arguments.input)

                def count(_: int, failed: int) -> None:
                    nonlocal told, is_error
                    told, is_error = failed, failed > told
                    show(min(found.answered + len(found.failures) + 1, total), total)

                for answer in answer_lines(lines, on_progress=count, done=found.ids):
                    if not is_error:
                        found.answered += 1
                    elif not found.add(json.loads(answer)):
                        continue
                    out.write(f"{answer}\n".encode())
        except KeyboardInterrupt:
            if output.exists():
                sys.stderr.write(f"{arguments.output} has what was answered; --resume goes on with the rest.\n")
            raise
    return found.report(arguments.output)


@contextlib.contextmanager
def _answering(arguments: argparse.Namespace) -> Iterator[Callable[..., Iterator[str]]]:
    """Function that answers lines, with a model of this process or with replicas of others; its model is loaded."""
    options = given_options(arguments)
    if arguments.ray is None:
        with open_client("batch", arguments.model, options) as local:
            from ..client.batch_lines import answer_lines

            yield partial(answer_lines, local)
        return
    with ending_at_once("batch"):
        from ..scale.ray import client as replicas

        client = replicas.RayOpenAI(arguments.model, replicas=arguments.ray, **options)
    with client:
        with ending_at_once("batch"):
            client._pool.wait()
        yield partial(replicas.answer_lines, client)


@dataclass
class _Answers:
    """The answers of an output file, counted."""

    size: int = 0
    """Bytes of the whole lines that it had before."""
    gap: bytes = b""
    """Bytes missing at their end."""
    answered: int = 0
    failures: list[str] = field(default_factory=list)
    """The name of each line whose answer is an error, and why."""
    ids: set[str] = field(default_factory=set)
    """Each `custom_id` that has an answer."""
    errors: set[str] = field(default_factory=set)
    """Those of lines that have no `custom_id`."""

    def add(self, answer: Json) -> bool:
        """Count an answer; False if it is an error, of a line without a name, that is counted already."""
        name, error = answer["custom_id"], _error(answer)
        if name is not None:
            self.ids.add(name)
        if error is None:
            self.answered += 1
            return True
        if name is None:
            if error in self.errors:
                return False
            self.errors.add(error)
        reason = one_line(error)[:MAX_REASON_CHARACTERS]
        self.failures.append(reason if name is None else f"{name}: {reason}")
        return True

    def report(self, output: str) -> int:
        """Say how it went; the status."""
        for failure in self.failures[:MAX_NAMED]:
            sys.stderr.write(f"{failure}\n")
        if len(self.failures) > MAX_NAMED:
            sys.stderr.write(f"and {len(self.failures) - MAX_NAMED} more\n")
        sys.stderr.write(f"{self.answered} answered, {len(self.failures)} with errors: {output}\n")
        return 1 if self.failures else 0


def _find_answers(output: Path, *, resume: bool) -> _Answers:
    """Answers in the output file, which may exist if it is empty or is to be continued.

    Raises:
        OSError: it may not, or it could not be written.
        ValueError: it has something else than answers.
    """
    found = _Answers()
    if not output.exists():
        if not output.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(output.parent))
        return found
    if output.stat().st_size and not resume:
        raise FileExistsError(errno.EEXIST, f"{os.strerror(errno.EEXIST)} (--resume continues it)", str(output))
    with output.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                found.add(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError):
                if line.endswith(b"\n"):
                    raise ValueError(f"Cannot resume: {output} line {number} is not a valid result.") from None
                break  # torn as the program was killed
            found.size += len(line)
            found.gap = b"" if line.endswith(b"\n") else b"\n"
    return found


@contextlib.contextmanager
def _appending(output: Path, found: _Answers) -> Iterator[BinaryIO]:
    """The output file behind its whole lines; one that is empty when something fails is taken away again."""
    with output.open("ab", buffering=0) as out:
        out.truncate(found.size)
        out.write(found.gap)
        try:
            yield out
        except BaseException:
            if not os.path.getsize(output):
                output.unlink()
            raise


def _error(answer: Json) -> str | None:
    """Reason why a line has no answer; None where it has."""
    error, response = answer["error"], answer["response"]
    if isinstance(response, dict):
        if response["status_code"] < 400:
            return None
        error = response["body"].get("error")
    return str(error["message"]) if isinstance(error, dict) else str(error)

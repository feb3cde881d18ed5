"""Answer the lines of a batch's input file, many at a time, without uploading it anywhere.

Each line is a request as OpenAI's batches take it; each answer is a line of the output file, written as it comes.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import sys
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from .loading import open_client
from .model_options import add_model, given_options
from .show import one_line

MAX_NAMED = 20  # failing lines that are named at the end
MAX_REASON_CHARACTERS = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="IN", help="a file of requests, as JSON lines")
    parser.add_argument("output", metavar="OUT", help="a new file for the answers")
    parser.add_argument("--resume", action="store_true", help="go on with the lines that OUT has no answer to")
    add_model(parser, "-m", "--model")


def run(arguments: argparse.Namespace) -> int:
    """Answer all lines, beside a bar on a terminal; 1 where some of the answers are errors."""
    output = Path(arguments.output)
    with open(arguments.input, "rb") as lines:
        total = sum(bool(line.strip()) for line in lines)
        lines.seek(0)
        before = _find_answers(output, resume=arguments.resume)
        try:
            with (
                open_client("batch", arguments.model, given_options(arguments)) as client,
                _appending(output, before.size) as out,
            ):
                from ..client.batch_lines import answer_lines
                from ..models.progress import make_bar

                show, counts = make_bar(arguments.input), _Counts(before.answered, list(before.failures))

                def count(answered: int, failed: int) -> None:
                    counts.failing, counts.told = failed > counts.told, failed
                    show(min(counts.done + 1, total), total)

                for answer in answer_lines(client, lines, on_progress=count, done=before.ids):
                    if counts.add(answer, before.errors):
                        out.write(f"{answer}\n".encode())
        except KeyboardInterrupt:
            if output.exists():
                sys.stderr.write(f"{arguments.output} has what was answered; --resume goes on with the rest.\n")
            raise
    return counts.report(arguments.output)


@dataclass
class _Counts:
    """Count of lines that have an answer, and those whose answer is an error."""

    answered: int
    failures: list[str]
    """The name of each line that failed, and why."""
    told: int = 0
    """Failures that `answer_lines` has told of."""
    failing: bool = False
    """The answer that comes next is one."""

    @property
    def done(self) -> int:
        return self.answered + len(self.failures)

    def add(self, answer: str, known: Container[str]) -> bool:
        """Count an answer; False if it is an error, of a line without a name, that is `known` and counted already."""
        if not self.failing:
            self.answered += 1
            return True
        found = json.loads(answer)
        name, error = found["custom_id"], _error(found) or "it failed"
        if name is None and error in known:
            return False
        self.failures.append(_failure(name, error))
        return True

    def report(self, output: str) -> int:
        """Say how it went; the status."""
        for failure in self.failures[:MAX_NAMED]:
            sys.stderr.write(f"{failure}\n")
        if len(self.failures) > MAX_NAMED:
            sys.stderr.write(f"and {len(self.failures) - MAX_NAMED} more\n")
        sys.stderr.write(f"{self.answered} answered, {len(self.failures)} with errors: {output}\n")
        return 1 if self.failures else 0


@dataclass
class _Before:
    """The answers that a file has."""

    size: int = 0
    """Bytes of whole lines."""
    answered: int = 0
    failures: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    errors: set[str] = field(default_factory=set)
    """Those of lines that have no `custom_id`."""


def _find_answers(output: Path, *, resume: bool) -> _Before:
    """Lines of the output file, which may be there if it is empty or is to be gone on with.

    Raises:
        OSError: it may not, or it could not be written.
        ValueError: it has something else than answers.
    """
    if not output.exists():
        if not output.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(output.parent))
        return _Before()
    if not resume:
        if output.stat().st_size:
            reason = f"{os.strerror(errno.EEXIST)} (--resume goes on with it)"
            raise FileExistsError(errno.EEXIST, reason, str(output))
        return _Before()
    found = _Before()
    with output.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                answer = json.loads(line)
                name, error = answer["custom_id"], _error(answer)
            except (ValueError, TypeError, KeyError, AttributeError):
                if line.endswith(b"\n"):
                    raise ValueError(f"{output} cannot be gone on with: its line {number} is no answer.") from None
                break  # torn as the program was killed
            found.size += len(line)
            if name is not None:
                found.ids.add(name)
            if error is None:
                found.answered += 1
            else:
                found.failures.append(_failure(name, error))
                if name is None:
                    found.errors.add(error)
    return found


@contextlib.contextmanager
def _appending(output: Path, size: int) -> Iterator[BinaryIO]:
    """The output file behind its whole lines; one that is empty when something fails is taken away again."""
    with output.open("ab", buffering=0) as out:
        out.truncate(size)
        if size and not _ends_with_newline(output):
            out.write(b"\n")
        try:
            yield out
        except BaseException:
            if not os.path.getsize(output):
                output.unlink()
            raise


def _ends_with_newline(output: Path) -> bool:
    with output.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def _error(answer: dict[str, object]) -> str | None:
    """Reason why a line has no answer; None where it has."""
    error, response = answer["error"], answer["response"]
    if isinstance(response, dict):
        if response["status_code"] < 400:
            return None
        error = response["body"].get("error")
    return str(error["message"]) if isinstance(error, dict) else str(error)


def _failure(name: str | None, error: str) -> str:
    reason = one_line(error)[:MAX_REASON_CHARACTERS]
    return reason if name is None else f"{name}: {reason}"

"""Whether a test notices a mutant."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.drawing import Mutant

FAILED = re.compile(r"^(tests/\S.*?) (?:FAILED|ERROR)", re.MULTILINE)
STARTED = re.compile(r"^(tests/\S+?::\S.*?)(?= PASSED| SKIPPED| XFAIL|$|\s*\+\+)", re.MULTILINE)
NO_TESTS = 5  # pytest's exit status
OPTIONS = ["-x", "-v", "-p", "no:cacheprovider", "--timeout=60", "--timeout-method=thread"]
_mtimes = itertools.count(1)


@dataclass(frozen=True)
class Verdict:
    """The result of a run: killed by a test, survived, or survived until the time was over."""

    killed: bool
    by: str = ""
    whole: bool = True
    seconds: float = 0.0


def judge(root: Path, mutant: Mutant, limit: float) -> Verdict:
    """Write the mutant into the tree at `root`, run its near tests and then the far ones, and restore the module."""
    spent = 0.0
    verdict = Verdict(killed=False)
    try:
        _write(mutant.path, mutant.text)
        for folders in (mutant.group.near, mutant.group.far):
            if verdict.whole and not verdict.killed:
                verdict = run(root, nearest(root, mutant.path, folders), limit - spent)
                spent += verdict.seconds
    finally:
        _write(mutant.path, mutant.source.text)
    return Verdict(verdict.killed, verdict.by, verdict.whole, spent)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    # Of two texts of one length in one second, bytecode would be taken for the other's.
    os.utime(path, times=(mtime := next(_mtimes), mtime))


def nearest(root: Path, module: Path, folders: list[str]) -> list[str]:
    """List the test files of these folders: those named like the module, then those that import it, then the rest."""
    name, dotted = module.stem, ".".join(module.relative_to(root).with_suffix("").parts)

    def distance(path: Path) -> int:
        if path.stem == f"test_{name}":
            return 0
        text = path.read_text(encoding="utf-8")
        return 1 if dotted in text or f"import {name}" in text else 2

    found: list[Path] = []
    for folder in folders:
        found += sorted((root / folder).rglob("test_*.py")) if (root / folder).is_dir() else [root / folder]
    return [path.relative_to(root).as_posix() for path in sorted(dict.fromkeys(found), key=distance)]


def run(root: Path, tests: list[str], limit: float) -> Verdict:
    """Run tests in a process group, which is killed when its time is over."""
    began = time.monotonic()
    environment = {"OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(root)}
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *OPTIONS, "-m", "not exhaustive and not timed", *tests],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, **environment},
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
            in_time = True
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            in_time = False
    failed = FAILED.findall(output)
    if in_time and process.returncode not in (0, NO_TESTS) and not failed:
        started = STARTED.findall(output)
        failed = [f"died in {started[-1]}" if started else output.strip()[-200:]]
    return Verdict(bool(failed), failed[0] if failed else "", in_time, time.monotonic() - began)

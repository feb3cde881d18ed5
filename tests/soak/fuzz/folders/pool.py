"""Attempts in a process of their own, which may crash or hang over any of them."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.soak.fuzz.folders.attempts import BOUND_SECONDS

ROOT = Path(__file__).parents[4]
MOST_ADDRESSES = 24 << 30
"""Bytes of address space: a file of 64 GB is not to be read."""


def attempts(first: int, end: int) -> list[dict[str, Any]]:
    """Results of the attempts of these numbers; of one that ends its process, or never ends, a result says so."""
    out: list[dict[str, Any]] = []
    while first < end:
        done = _until_it_ends(first, end)
        out += done
        first += len(done)
    return out


def _until_it_ends(first: int, end: int) -> list[dict[str, Any]]:
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({MOST_ADDRESSES}, {MOST_ADDRESSES}))\n"
        f"from tests.soak.fuzz.folders.attempts import main; main({first}, {end})"
    )
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    lines: queue.Queue[str] = queue.Queue()
    said: list[str] = []
    readers = [
        threading.Thread(target=lambda: [*map(lines.put, process.stdout or ()), lines.put("")]),
        threading.Thread(target=lambda: said.extend(process.stderr or ())),
    ]
    for reader in readers:
        reader.start()
    out: list[dict[str, Any]] = []
    number: int | None = None
    wrong = ""
    while True:
        try:
            line = lines.get(timeout=2 * BOUND_SECONDS)
        except queue.Empty:
            wrong = "it never ends"
            process.kill()
            break
        if not line:
            break
        if not line.startswith("{"):  # libraries print what they think of a folder
            continue
        told = json.loads(line)
        if "begin" in told:
            number = told["begin"]
        elif "number" in told:
            out.append(told)
            number = None
    status = process.wait()
    for reader in readers:
        reader.join()
    process.stdout.close()
    process.stderr.close()
    if number is not None:
        wrong = wrong or f"the process ended with {status}: {''.join(said)[-3000:]}"
        out.append({"number": number, "outcome": "", "wrong": wrong, "seconds": 0.0})
    elif status:
        raise AssertionError(f"the process ended with {status} beside all folders: {''.join(said)[-3000:]}")
    return out

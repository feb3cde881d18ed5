"""Scripts that run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.tiny import tiny
from tests.warm import python

ROOT = Path(__file__).parents[1]


def run(code: str, *, warm: str | None = None, timeout: float = 100, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script.

    Args:
        warm: for one that is not about importing: the kind of interpreter, see `tests.warm`.
    """
    path = str(tiny("qwen3", max_position_embeddings=200_000))
    script = textwrap.dedent(code).replace("MODEL", repr(path))
    return subprocess.run(
        [*(python(warm) if warm else [sys.executable]), "-c", script],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=ROOT,
        env={**os.environ, **env},
    )


def import_cost(ours: str, theirs: str, **env: str) -> float:
    """Processor time of importing what is ours behind what is theirs, as a share of what that takes; the least of 3."""
    code = f"""
        import time
        began = time.process_time()
        {theirs}
        between = time.process_time()
        {ours}
        print((time.process_time() - between) / (between - began))
        """
    return min(float(run(code, **env).stdout) for _ in range(3))

"""Scripts that run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.tiny import tiny

ROOT = Path(__file__).parents[1]


def run(code: str, *, timeout: float = 100, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script with warnings as errors, except those of packages that we only pass through."""
    path = str(tiny("qwen3", max_position_embeddings=200_000))
    script = textwrap.dedent(code).replace("MODEL", repr(path))
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=ROOT,
        env={**os.environ, **env},
    )

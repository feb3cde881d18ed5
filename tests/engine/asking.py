"""A process of its own that asks a tiny model about prompts, over a folder for its prefix cache."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.tiny import tiny
from tests.warm import ROOT, python


def asking(kind: str, folder: Path, prompts: list[list[int]], **more: Any) -> subprocess.Popen[str]:
    """Start the process; see `main` for what else may be said."""
    work = {"model": str(tiny(kind)), "folder": str(folder), "prompts": prompts, **more}
    command = [*python("mlx"), "-c", "from tests.engine.asking import main; main()", json.dumps(work)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answers(process: subprocess.Popen[str]) -> list[tuple[list[int], int, int]]:
    """Wait for its end: for each prompt what was said, tokens prefilled, tokens that were cached."""
    out, err = process.communicate(timeout=100)
    assert (process.returncode, err) == (0, "")
    return [(said, prefilled, cached) for said, prefilled, cached in json.loads(out)]


def main() -> None:
    from localai_shim.engine import loop as module
    from localai_shim.engine.engine import Engine
    from localai_shim.engine.prefix.cache import PrefixCache
    from localai_shim.models.loading import load_model
    from localai_shim.models.text import LoadOptions
    from localai_shim.types import Prompt
    from tests.engine.counting import Counting
    from tests.engine.folders import insert_and_write

    work = json.loads(sys.argv[1])
    if work.get("writes_at_once", False):
        PrefixCache.insert = insert_and_write  # type: ignore[method-assign]
    options = module.EngineOptions(
        cache_dir=work["folder"],
        cache_dir_bytes=work.get("folder_budget", 2**30),
        prefix_cache_bytes=work.get("budget", 2**30),
    )
    engine = Engine(lambda: load_model(work["model"], LoadOptions()), options)
    counting = Counting(engine)
    out = []
    for tokens in work["prompts"]:
        prompt = Prompt(tokens)
        out.append((*counting.ask(prompt, work.get("n", 6)), prompt.cached_tokens))
    sys.stdout.write(json.dumps(out))
    sys.stdout.flush()
    if work.get("close", True):
        engine.close()

"""The chat templates of models that llama.cpp and vLLM publish."""

from __future__ import annotations

import os
from pathlib import Path

EXPECTED = 105


def templates() -> dict[str, Path]:
    """Path of each by its name."""
    folders = (Path(os.environ["LLAMA_CPP"]) / "models" / "templates", Path(os.environ["VLLM_TEMPLATES"]))
    paths = [path for folder in folders for path in sorted(folder.glob("*.jinja"))]
    return {path.stem.removeprefix("tool_chat_template_"): path for path in paths}

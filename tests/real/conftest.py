"""Where the files of others are that `make test-templates` has fetched. Nothing of this room runs without."""

from __future__ import annotations

import os

import pytest

for name in ("LLAMA_CPP", "VLLM_TEMPLATES"):
    if name not in os.environ:
        raise pytest.UsageError(f"{name} is not set: run `make test-templates`, which fetches what these tests read")

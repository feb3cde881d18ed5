"""Tests with parts of real models are collected where `LLAMA_CPP` names the sources of llama.cpp that have them."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("LLAMA_CPP") else ["test_*.py"]

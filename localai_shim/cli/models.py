"""List the models on this machine: those in the hub's cache, and the small one in the package."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..stats import show_bytes
from .show import make_console, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from ..adapters.hub import LocalModel

RUNNING_SHARE = 1.1  # of its weights' bytes, which a model takes at least while it runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # it has none


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    del arguments
    print_models(make_console(), find_models())
    return 0


def find_models() -> list[LocalModel]:
    """Those that can be had without a network."""
    from ..adapters.hub import cached_models, describe
    from ..sources import BUILTIN_NAME, builtin_path

    return [describe(BUILTIN_NAME, builtin_path()), *cached_models()]


def print_models(console: Console, found: list[LocalModel]) -> None:
    """Print a table of models, with whether each fits into the memory that MLX may use."""
    from ..adapters.backend import require_backend

    require_backend()
    from ..engine.memory import default_limit

    limit = default_limit()
    rows = [(model.name, model.kind, show_bytes(model.bytes), _fits(model, limit)) for model in found]
    print_table(console, ("model", "type", ">weights", "fits"), rows)


def _fits(model: LocalModel, limit: int) -> str:
    if model.problem:
        return model.problem
    if RUNNING_SHARE * model.bytes <= limit:
        return "yes"
    return f"no: MLX may use {show_bytes(limit)}"

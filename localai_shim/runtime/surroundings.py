"""Parts that the core runs for those who ask for them, and that no module of it imports.

`PARTS` is the only place that connects them, a line each, by the names of modules: a part imports the core, so the core
cannot import the part. See docs/surroundings.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

PARTS = {
    "group": "scale.parallel.processes",  # fills `engine.ports.Group`, for `tensor_parallel`
    "rerank": "contrib.rerank",  # an endpoint, whose `prepare` makes turns
}
_PACKAGE = __name__.partition(".")[0]


def part(name: Literal["group", "rerank"]) -> Any:
    """The module of a part, which is imported when it is asked for; callers give it the type that it fills."""
    return import_module(f"{_PACKAGE}.{PARTS[name]}")

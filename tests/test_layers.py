"""Which room may import which, and what a module may weigh.

A room is a module of the package's top level, or a folder. Imports inside functions and under TYPE_CHECKING count.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import localai_shim

PACKAGE = Path(localai_shim.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

# room -> the rooms that it may import
MAY = {
    "localai_shim": "adapters client content reranking types",
    "client": (
        "arguments call endpoints endpoints.batches endpoints.responses engine event_stream lines media options "
        "runtime sdk state stats stock streams transport types websocket_url offload"
    ),
    "lm_eval": "client types",
    "lines": "adapters call endpoints endpoints.batches endpoints.responses errors runtime sdk state stock types",
    "transport": "call errors event_stream runtime sdk state stock types",
    "stock": "sdk",
    "panics": "",
    "event_stream": "sdk",
    "call": (
        "deadline endpoints endpoints.responses errors event_stream grammar lazy_request media panics routes runtime "
        "sdk state telemetry types offload"
    ),
    "offload": "deadline engine workers",
    "deadline": "",
    "telemetry": "endpoints stats types",
    "websocket_url": "errors sdk",
    "arguments": "options sdk",
    "content": "media",
    "reranking": "",
    "sdk": "errors runtime",
    "lazy_request": "prompt sdk",
    "routes": (
        "endpoints endpoints.batches endpoints.chat endpoints.completions endpoints.items endpoints.responses runtime "
        "state types"
    ),
    "runtime": (
        "adapters deadline endpoints endpoints.batches endpoints.responses engine grammar kept media options output "
        "output.formats prompt sources state telemetry types offload"
    ),
    "sources": "builtin options output.formats types",
    "kept": "endpoints.batches endpoints.responses state",
    "streams": "endpoints engine errors types",
    "endpoints": "errors grammar media output prediction prompt reranking state types vectors",
    "endpoints.completions": "endpoints endpoints.answer errors grammar output prompt state types",
    "endpoints.responses": (
        "endpoints endpoints.answer endpoints.chat endpoints.items errors media output prompt state types"
    ),
    "endpoints.batches": "endpoints errors state types",
    "endpoints.chat": "endpoints endpoints.answer errors media output prompt state types",
    "endpoints.answer": "endpoints endpoints.items errors grammar output output.formats prompt types",
    "endpoints.items": "endpoints errors media prompt state types",
    "engine": "adapters engine.kv engine.prefix media options prediction stats types",
    "engine.prefix": "adapters engine.kv media types",
    "engine.kv": "adapters media types",
    "adapters": "deadline media options output output.formats panics types vectors workers",
    "prompt": "deadline errors media output output.formats panics prompt.media types workers",
    "prompt.media": "deadline errors media types",
    "testing": (
        "arguments call client endpoints endpoints.responses errors event_stream media output output.formats runtime "
        "sdk stats stock testing.cassettes transport types vectors"
    ),  # it patches clients
    "testing.cassettes": "call client endpoints endpoints.responses errors output.formats reranking sdk testing types",
    "grammar": "output output.formats types",
    "__main__": "cli",
    "cli": (  # also bare
        "adapters client content deadline engine lines options output.formats prompt sdk sources stats types"
    ),
    "output": "output.formats panics types",
    "output.formats": "",
    "options": "media types",
    "state": "types",
    "errors": "types",
    "types": "media stats vectors",
    "vectors": "",
    "stats": "",
    "media": "",
    "workers": "",
    "prediction": "",  # what engine and endpoints both follow
    "builtin": "",
}
# room -> the packages of others that it may import, where it may import any
PACKAGES = {
    "client": "anyio openai",
    "call": "anyio openai",
    "offload": "anyio",
    "telemetry": "opentelemetry",
    "lm_eval": "lm_eval openai tqdm",
    "lines": "openai",
    "transport": "httpx2 openai",
    "event_stream": "httpx2 openai",
    "stock": "httpx2 openai",
    "websocket_url": "httpx2 openai",
    "arguments": "httpx2 openai",
    "lazy_request": "httpx2",
    "content": "PIL numpy openai",  # for annotations alone
    "reranking": "openai",
    "sdk": "httpx2 openai",
    "streams": "anyio openai",
    "endpoints": "numpy openai",  # vectors
    "endpoints.chat": "openai",
    "endpoints.completions": "openai",
    "endpoints.items": "openai",
    "endpoints.responses": "openai pydantic",
    "engine": "anyio mlx numpy trio",
    "engine.prefix": "mlx numpy",
    "engine.kv": "mlx numpy",
    "adapters": "PIL huggingface_hub jinja2 mlx mlx_lm mlx_vlm numpy tokenizers transformers",
    "media": "numpy",
    "prediction": "numpy",  # an index of thousands of tokens
    "types": "numpy",  # for annotations alone
    "testing": "stats anyio httpx2 jinja2 numpy openai pytest",
    "prompt": "PIL jinja2",
    "prompt.media": "PIL certifi cv2 miniaudio numpy",  # decoders
    "testing.cassettes": "openai",
    "cli": "PIL mlx openai rich",
    "grammar": "llguidance numpy",
}


def room_of(module: str) -> str:
    """The room that a module stands in; the package itself is one."""
    parts = module.split(".")[1:]
    if MODULES[module].name != "__init__.py" and len(parts) > 1:
        parts.pop()
    return ".".join(parts) or "localai_shim"


@functools.cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@functools.cache
def imports(module: str) -> frozenset[str]:
    """What a module imports: modules of this package by their full names, packages of others by theirs."""
    package = MODULES[module].relative_to(PACKAGE.parent).parts[:-1]
    found: set[str] = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            name = ".".join(part for part in (base, node.module) if part)
            inner = {f"{name}.{alias.name}" for alias in node.names}
            found |= inner & MODULES.keys() if inner <= MODULES.keys() else {name} | (inner & MODULES.keys())
    found = {name if name in MODULES else name.split(".")[0] for name in found}
    return frozenset(found - {module, *sys.stdlib_module_names})


@functools.cache
def rooms() -> dict[str, set[str]]:
    """Room -> the rooms and packages that it imports."""
    graph: dict[str, set[str]] = {}
    for module in MODULES:
        used = {room_of(name) if name in MODULES else name for name in imports(module)}
        graph.setdefault(room_of(module), set()).update(used)
    return {room: used - {room} for room, used in graph.items()}


def circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Nodes that lead back to the first of them; none if there are no such."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("room", sorted(set(map(room_of, MODULES))))
def test_a_room_imports_only_what_it_may(room: str) -> None:
    assert room in MAY, "every room has a line above"
    assert rooms()[room] <= {*MAY[room].split(), *PACKAGES.get(room, "").split()}


def test_every_line_is_that_of_a_room() -> None:
    assert MAY.keys() == rooms().keys() >= PACKAGES.keys()
    assert {name for line in MAY.values() for name in line.split()} <= MAY.keys()


def test_no_module_leads_back_to_itself() -> None:
    assert not circle({module: imports(module) & MODULES.keys() for module in MODULES})


def test_no_room_within_another_may_lead_back_to_itself() -> None:
    inner = {room: {name for name in line.split() if name != "testing.cassettes"} for room, line in MAY.items()}
    assert not circle(inner), "cassettes play on the scripted engine, and fixtures beside it have them played"


def test_no_room_of_the_top_level_may_lead_back_to_itself() -> None:
    top: dict[str, set[str]] = {}
    for room, line in MAY.items():
        name = room.partition(".")[0]
        top.setdefault(name, set()).update({each.partition(".")[0] for each in line.split()} - {name})
    assert not circle(top)


def test_modules_have_docstrings_and_a_few_hundred_lines() -> None:
    assert [module for module in MODULES if not ast.get_docstring(tree(module))] == []
    lengths = {module: path.read_text(encoding="utf-8").count("\n") for module, path in MODULES.items()}
    assert [module for module, lines in lengths.items() if lines > 450] == []


def test_exported_names_are_sorted_and_exist() -> None:
    assert localai_shim.__all__ == sorted(localai_shim.__all__)
    assert all(hasattr(localai_shim, name) for name in localai_shim.__all__)

"""Exceptions that cross rooms are defined in few modules; all others stay inside the room that raises them."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "localai_shim"
TREES = {path.relative_to(PACKAGE): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
HOMES = {
    "errors.py": "of requests, in the terms of OpenAI's error body",
    "types/engines.py": "of engines",
    "state/errors.py": "of the store",
    "documents/document.py": "of files",
    "endpoints/hosted/kind.py": "of hooks and MCP servers",
    "grammar/__init__.py": "of grammars",
    "media.py": "of prompts with media",
    "threads/deadline.py": "of work that takes too long",
    "threads/panics.py": "of libraries in Rust",
    "replacing/network.py": "of programs that may not use the network",
}


def room_of(path: Path) -> str:
    return path.parts[0]


def exceptions(bases: Mapping[str, list[str]]) -> set[str]:
    """Names of classes that derive from an exception of Python's, by the names of all classes' bases."""

    def is_one(name: str) -> bool:
        found = getattr(builtins, name, None)
        return (isinstance(found, type) and issubclass(found, BaseException)) or any(map(is_one, bases.get(name, ())))

    return {name for name in bases if is_one(name)}


def test_exceptions_that_other_rooms_import_are_defined_in_few_modules() -> None:
    classes = [(path, node) for path, tree in TREES.items() for node in tree.body if isinstance(node, ast.ClassDef)]
    found = exceptions({node.name: [ast.unparse(base) for base in node.bases] for _, node in classes})
    assert {"BadRequest", "EngineClosedError", "StoreError", "Overdue"} <= found
    homes = {node.name: path for path, node in classes if node.name in found}
    crossing = {
        homes[alias.name].as_posix()
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in homes and room_of(homes[alias.name]) != room_of(path) and len(path.parts) > 1
    }
    assert crossing == HOMES.keys()

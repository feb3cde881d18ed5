"""Boundaries of the package, found in its code: functions that call upstream, the system, the device or a thread."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import localai_shim
from localai_shim.engine import ports

ROOT = Path(localai_shim.__file__).parent
UPSTREAM = frozenset(
    {
        "PIL",
        "av",
        "ctypes",
        "cv2",
        "gevent",
        "httpx",
        "httpx2",
        "huggingface_hub",
        "jinja2",
        "llguidance",
        "miniaudio",
        "mlx_lm",
    }
    | {"mlx_vlm", "opentelemetry", "resource", "safetensors", "socket", "soundfile", "sqlite3", "ssl", "tokenizers"}
    | {"transformers"}
)
"""Libraries whose calls may fail for reasons of their own. MLX only builds graphs until it is told to run them."""
DEVICE = frozenset({"mx.eval", "mx.async_eval", "mx.load", "mx.save_safetensors", "mx.compile", "mx.synchronize"})
SYSTEM = frozenset(
    {"NamedTemporaryFile", "glob", "iterdir", "listdir", "mkdir", "mkdtemp", "read_bytes", "read_text", "rename"}
    | {"rglob", "rmtree", "scandir", "stat", "unlink", "write_bytes", "write_text"}
)
THREADS = frozenset({"threading.Thread", "make_thread", "Timer"})
HANDED = frozenset({"submit", "call_soon_threadsafe", "run_sync"})
APART = ("builtin", "cli", "engine.mirror", "scale", "testing")
"""Rooms with faults of their own in tests/: of several processes, of programs, and of what plays a model."""


def boundaries() -> Iterator[str]:
    """Places (`module:Class.method`) of all functions that call one."""
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if not f"{module}.".startswith(tuple(f"{room}." for room in APART)):
            yield from sorted(in_functions(path.read_text(encoding="utf-8"), module))


def port_methods() -> Iterator[str]:
    """Names (`Model.forward`) of what the engine's ports ask of models, the machine and its libraries."""
    for name, port in vars(ports).items():
        if isinstance(port, type) and issubclass(port, Protocol) and port.__module__ == ports.__name__:  # type: ignore[arg-type]
            yield from (f"{name}.{method}" for method, made in vars(port).items() if _is_asked(method, made))


def _is_asked(name: str, made: object) -> bool:
    return callable(made) and not name.startswith("_")


def _upstream_names(tree: ast.Module) -> set[str]:
    """Names by which a module knows libraries, and what it imports from them."""
    apart = {id(inner) for node in ast.walk(tree) if _is_for_types(node) for inner in ast.walk(node)}
    found = set[str]()
    for node in ast.walk(tree):
        if id(node) in apart:
            continue
        if isinstance(node, ast.Import):
            found |= {(each.asname or each.name).partition(".")[0] for each in node.names if _is_upstream(each.name)}
        elif isinstance(node, ast.ImportFrom) and not node.level and _is_upstream(node.module or ""):
            found |= {each.asname or each.name for each in node.names}
    return found


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _is_upstream(module: str) -> bool:
    return module.partition(".")[0] in UPSTREAM


def in_functions(source: str, module: str) -> set[str]:
    """Places of a module's functions that call one."""
    tree = ast.parse(source)
    upstream, found = _upstream_names(tree), set[str]()

    def visit(node: ast.AST, where: list[str], inside: bool) -> None:
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                function = not isinstance(inner, ast.ClassDef)
                visit(inner, where if inside else [*where, inner.name], inside or function)
                continue
            if inside and isinstance(inner, ast.Call) and _crosses(ast.unparse(inner.func), upstream):
                found.add(f"{module}:{'.'.join(where)}")
            visit(inner, where, inside)

    visit(tree, [], False)
    return found


def _crosses(called: str, upstream: set[str]) -> bool:
    first, last = called.partition(".")[0], called.rpartition(".")[2]
    return (
        first in upstream
        or called in DEVICE | THREADS | {"open", "os.open", "os.kill", "os.replace", "Workers"}
        or last in SYSTEM
        or (last in HANDED and "." in called)
    )

"""Which layer may import which, and what a module may weigh."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import localai_shim

PACKAGE = Path(localai_shim.__file__).parent
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if "builtin" not in p.parts)

# folder or module -> packages that it must not import, at module level or inside functions
FORBIDDEN = {
    "core": {"openai", "mlx", "mlx_lm", "mlx_vlm", "numpy", "anyio", "transformers", "localai_shim"},
    "errors": {"openai", "mlx", "mlx_lm", "mlx_vlm", "numpy", "transformers", "localai_shim"},
    "engine": {"openai", "mlx_lm", "mlx_vlm", "transformers", "localai_shim.client", "localai_shim.endpoints"},
    "adapters": {"openai", "localai_shim.client", "localai_shim.endpoints", "localai_shim.engine"},
    "endpoints": {"mlx", "mlx_lm", "mlx_vlm", "transformers", "localai_shim.engine", "localai_shim.adapters"},
    "state": {
        *("openai", "mlx", "mlx_lm", "mlx_vlm", "numpy", "anyio", "transformers"),
        *("localai_shim.client", "localai_shim.runtime", "localai_shim.call", "localai_shim.sdk"),
        *("localai_shim.endpoints", "localai_shim.engine", "localai_shim.adapters"),
        *("localai_shim.prompt", "localai_shim.output"),
    },
    "prompt": {"openai", "mlx", "mlx_lm", "mlx_vlm", "localai_shim.engine", "localai_shim.endpoints"},
    "output": {"openai", "mlx", "mlx_lm", "mlx_vlm", "localai_shim.engine", "localai_shim.endpoints"},
}
ONLY_ADAPTERS = {"mlx_lm", "mlx_vlm"}


def imports(path: Path) -> set[str]:
    """Absolute names of everything that a module imports, type-checking blocks excepted."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = ("localai_shim", *path.relative_to(PACKAGE).parent.parts)
    found: set[str] = set()
    skipped = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


def is_under(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_only_what_its_layer_may(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    layer = relative.parts[0].removesuffix(".py")
    for name in imports(path):
        for package in FORBIDDEN.get(layer, set()):
            assert not is_under(name, package), f"{relative} imports {name}"
        if layer != "adapters":
            assert not any(is_under(name, package) for package in ONLY_ADAPTERS), f"{relative} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_has_a_docstring_and_a_few_hundred_lines(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(source))
    assert source.count("\n") <= 450


def test_exported_names_are_sorted_and_exist() -> None:
    assert localai_shim.__all__ == sorted(localai_shim.__all__)
    assert all(hasattr(localai_shim, name) for name in localai_shim.__all__)

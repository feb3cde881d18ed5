"""Every cache has a bound: none grows with what callers create."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "localai_shim"
CACHE, LRU_CACHE = {"cache", "functools.cache"}, {"lru_cache", "functools.lru_cache"}
_SIZES = "sizes of a loaded model"
_LIBRARY = "functions and classes of a library, which are imported once"
_FORMATS = "the formats that the package knows"
_FAILED = "functions of a library, and sizes at which this device computes them wrongly"
FEW = {
    "backends/cuda/adapters.py:_kernel": _SIZES,
    "backends/cuda/attention.py:attending": _LIBRARY,
    "backends/cuda/decode_attention.py:_combine": _SIZES,
    "backends/cuda/decode_attention.py:_partial": _SIZES,
    "backends/cuda/one_position.py:_applying": _LIBRARY,
    "backends/cuda/one_position.py:_form": _LIBRARY,
    "backends/cuda/products.py:_product": _SIZES,
    "backends/cuda/products.py:_shared_product": _SIZES,
    "backends/cuda/products.py:_unpacking": _SIZES,
    "backends/patches.py:_is_known": _LIBRARY,
    "backends/self_test/safe_attention.py:_guarded": _FAILED,
    "backends/self_test/safe_attention.py:_mlx_with": _FAILED,
    "backends/self_test/safe_attention.py:_recorded": _LIBRARY,
    "backends/tower_windows.py:_form": _LIBRARY,
    "backends/x86/exponentials.py:_fused": _LIBRARY,
    "backends/x86/exponentials.py:_gated": _LIBRARY,
    "backends/x86/exponentials.py:attending": _LIBRARY,
    "endpoints/answer/tools.py:cache(functools.partial(making.grammar, allowed))": "kept by one request",
    "endpoints/request_fields.py:cache(partial(text, limits))": "kept by one request",
    "formats/words.py:closers_of": _FORMATS,
    "formats/words.py:separator_of": _FORMATS,
    "formats/words.py:words_of": _FORMATS,
    "models/caches.py:_classes": "two libraries",
    "models/checkpoint_files.py:cache(importlib.metadata.version)": "a few packages",
    "models/config/translation.py:argument_fields": _LIBRARY,
    "models/config/unread.py:read_module": _LIBRARY,
    "models/faults/layers.py:_gelu": _LIBRARY,
    "models/faults/sam.py:_replaced": _LIBRARY,
    "models/misreading_layers.py:_corrected": _LIBRARY,
    "models/vision/numpy_processor.py:_globals": _LIBRARY,
    "models/vision/numpy_processor.py:_without_mlx": _LIBRARY,
    "sdk/stock_clients.py:stock_client": "True and False",
}
"""Caches without a bound, and why their keys are few."""


def caches(source: str) -> Iterator[tuple[str, bool]]:
    """(name, whether it is bounded) of each cache in a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            if any(ast.unparse(each) in CACHE for each in node.decorator_list):
                yield node.name, not given and node.args.vararg is None
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in LRU_CACHE:
            sizes = [*node.args, *(each.value for each in node.keywords if each.arg == "maxsize")]
            yield ast.unparse(node), not any(isinstance(size, ast.Constant) and size.value is None for size in sizes)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in CACHE:
            yield f"cache({ast.unparse(node.args[0])})", False


def test_every_cache_has_a_bound_or_a_reason() -> None:
    unbounded = {
        f"{path.relative_to(PACKAGE).as_posix()}:{name}"
        for path in PACKAGE.rglob("*.py")
        for name, is_bounded in caches(path.read_text())
        if not is_bounded
    }
    assert unbounded == FEW.keys()


def test_an_unbounded_cache_is_found() -> None:
    source = "@functools.cache\ndef f(key): ...\n@cache\ndef once(): ...\n@lru_cache(maxsize=None)\ndef g(key): ...\n"
    assert [*caches(source)] == [("f", False), ("once", True), ("lru_cache(maxsize=None)", False)]

"""Every cache has a bound: none grows with what callers create. One class drops what was used least recently."""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Iterator
from pathlib import Path

from localai_shim.threads.cache import LRUCache

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
    "backends/cuda/decode_attention.py:_combine_shared": _SIZES,
    "backends/cuda/decode_attention.py:_partial": _SIZES,
    "backends/cuda/decode_attention.py:_partial_of_many": _SIZES,
    "backends/cuda/products.py:_product": _SIZES,
    "backends/cuda/products.py:_shared_product": _SIZES,
    "backends/cuda/products.py:_unpacking": _SIZES,
    "backends/cuda/vision_layers.py:_applying": _LIBRARY,
    "backends/cuda/vision_layers.py:_form": _LIBRARY,
    "backends/patches.py:_is_known": _LIBRARY,
    "backends/self_test/safe_attention.py:_guarded": _FAILED,
    "backends/self_test/safe_attention.py:_mlx_with": _FAILED,
    "backends/self_test/safe_attention.py:_recorded": _LIBRARY,
    "backends/shared_attention.py:sharing": _LIBRARY,
    "backends/tower_windows.py:_form": _LIBRARY,
    "backends/x86/activations.py:_gated": _LIBRARY,
    "backends/x86/activations.py:attending": _LIBRARY,
    "endpoints/answer/tools.py:cache(functools.partial(making.grammar, allowed))": "kept by one request",
    "endpoints/request_fields.py:cache(partial(text, limits))": "kept by one request",
    "formats/description.py:closers_of": _FORMATS,
    "formats/description.py:separator_of": _FORMATS,
    "formats/description.py:words_of": _FORMATS,
    "models/caches.py:_classes": "two libraries",
    "models/checkpoint/files.py:cache(importlib.metadata.version)": "a few packages",
    "models/config/translation.py:argument_fields": _LIBRARY,
    "models/config/unread.py:read_module": _LIBRARY,
    "models/faults/layers.py:_gelu": _LIBRARY,
    "models/faults/image_encoders.py:_replaced": _LIBRARY,
    "models/misreading_layers.py:_corrected": _LIBRARY,
    "models/vision/threaded_processor.py:_globals": _LIBRARY,
    "models/vision/threaded_processor.py:_without_mlx": _LIBRARY,
    "sdk/stock_clients.py:stock_client": "True and False",
}
"""Caches without a bound, and why their keys are few."""
HAND_MADE = {
    "engine/prompts/features.py": "features in use stay, and memory pressure sets a second limit",
    "endpoints/hosted/mcp/connections.py": "a connection that is dropped is closed, and later if it is in use",
    "threads/cache.py": "the class that all others use",
}
"""Modules that drop old entries themselves. `engine/prefix/` does, too, in a tree: parents stay while children do."""


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


def is_hand_made(source: str) -> bool:
    """True if a module orders entries by their use, or drops the first entry of a dictionary."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in ("move_to_end", "popitem"):
            return True
        if isinstance(node, ast.Delete | ast.Call):
            code = ast.unparse(node)
            if re.match(r"del \S+\[next\(iter\(|\S+\.pop\(next\(iter\(", code):
                return True
    return False


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


def test_one_class_drops_entries_by_their_use() -> None:
    found = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if is_hand_made(path.read_text())}
    assert found == HAND_MADE.keys()


def test_a_hand_made_cache_is_found() -> None:
    for line in ("kept.move_to_end(key)", "kept.popitem(last=False)", "del kept[next(iter(kept))]"):
        assert is_hand_made(f"def f(kept, key):\n    {line}\n")
    assert is_hand_made("self._kept.pop(next(iter(self._kept)))")
    assert not is_hand_made("first = next(iter(kept))\nkept.pop(key)\ndel kept[key]")


def test_a_value_that_was_read_stays_longer() -> None:
    cache = LRUCache[str](2)
    cache.put("a", "A")
    cache.put("b", "B")
    assert cache.get("a") == "A"
    cache.put("c", "C")
    assert ("a" in cache, "b" in cache, "c" in cache) == (True, False, True)
    assert cache.get("b") is None and cache.used == 2


def test_another_value_for_a_key_replaces_the_first() -> None:
    cache = LRUCache(10, len)
    cache.put("a", "12345")
    cache.put("a", "123")
    assert (cache.get("a"), cache.used) == ("123", 3)
    cache.put("a", "12345678901")
    assert (cache.get("a"), cache.used) == (None, 0)


def test_a_value_is_made_once_and_other_keys_do_not_wait_for_it() -> None:
    cache, made, entered, gate = LRUCache[str](2), list[int](), threading.Event(), threading.Event()

    def make() -> str:
        made.append(1)
        entered.set()
        assert gate.wait(60)
        return "slow"

    found = list[str]()
    threads = [threading.Thread(target=lambda: found.append(cache.get_or_make("a", make))) for _ in range(4)]
    for each in threads:
        each.start()
    assert entered.wait(60)
    assert cache.get_or_make("b", lambda: "quick") == "quick"
    gate.set()
    for each in threads:
        each.join()
    assert (found, made) == (["slow"] * 4, [1])

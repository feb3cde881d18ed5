"""Which room may import which, and what a module may weigh.

A room is a module of the package's top level, or a folder. Imports inside functions and under TYPE_CHECKING count.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import localai_shim
from localai_shim.runtime.surroundings import PARTS

PACKAGE = Path(localai_shim.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

# room -> the rooms that it may import
MAY = {
    "localai_shim": "backends client contrib replacing types",
    # -- on top of the clients
    "replacing": "client options runtime sdk threads",
    "__main__": "cli",
    "cli": (
        "backends backends.self_test builtin client engine formats models models.checkpoint models.gguf models.local "
        "options prompt prompt.fit replacing runtime scale.ray sdk stats threads types"
    ),
    "ray": "scale.ray",
    "testing": (
        "client endpoints endpoints.responses errors formats grammar prompt replacing runtime sdk speech testing.audio "
        "testing.cassettes testing.model threads types"
    ),
    "testing.cassettes": (
        "client contrib endpoints endpoints.chat endpoints.hosted endpoints.hosted.mcp endpoints.responses errors "
        "formats prompt replacing runtime sdk speech testing testing.audio testing.model threads types"
    ),
    "testing.audio": "endpoints endpoints.audio.transcriptions errors speech testing testing.model types",
    "testing.model": "endpoints.audio.transcriptions engine errors media output speech stats threads types vectors",
    # -- clients
    "client": (
        "endpoints endpoints.audio.speaking endpoints.audio.transcriptions endpoints.batches endpoints.chat "
        "endpoints.completions endpoints.embeddings "
        "endpoints.items endpoints.responses endpoints.vector_stores engine errors grammar media models options "
        "runtime sdk state stats telemetry threads types"
    ),
    "sdk": "errors prompt runtime",
    "runtime": (
        "backends builtin endpoints endpoints.batches endpoints.hosted endpoints.hosted.mcp endpoints.responses "
        "endpoints.vector_stores engine engine.mirror formats grammar media models models.adapters models.checkpoint "
        "models.gguf models.local options output prompt state telemetry threads types"
    ),
    "telemetry": "endpoints stats threads types",
    "contrib": "client endpoints endpoints.embeddings errors prompt state types vectors",
    # -- several processes
    "scale": "",
    "scale.parallel": "backends engine engine.mirror models types",
    "scale.ray": "client endpoints.batches errors options runtime sdk stats threads",
    # -- endpoints, and what they translate with
    "endpoints": "errors formats grammar media output prompt speech state threads types vectors",
    "endpoints.answer": (
        "endpoints endpoints.hosted endpoints.hosted.mcp endpoints.items errors formats formats.grammar grammar output "
        "prompt types"
    ),
    "endpoints.audio": "",
    "endpoints.audio.speaking": "endpoints errors speech state types",
    "endpoints.audio.transcriptions": "endpoints errors media prompt prompt.media speech state threads types",
    "endpoints.batches": "endpoints errors state threads types",
    "endpoints.chat": "endpoints endpoints.answer endpoints.hosted errors output prompt state types",
    "endpoints.completions": "endpoints endpoints.answer errors formats grammar output prompt state types",
    "endpoints.embeddings": "endpoints errors prompt state types vectors",
    "endpoints.hosted": "endpoints endpoints.vector_stores errors formats grammar media prompt threads types",
    "endpoints.hosted.mcp": "endpoints endpoints.hosted errors formats grammar media prompt prompt.media threads types",
    "endpoints.items": "endpoints endpoints.hosted endpoints.hosted.mcp errors prompt state",
    "endpoints.responses": (
        "endpoints endpoints.answer endpoints.chat endpoints.hosted endpoints.hosted.mcp endpoints.items errors output "
        "prompt state threads types"
    ),
    "prompt": "documents errors formats media output prompt.fit prompt.media threads types",
    "endpoints.vector_stores": "documents endpoints endpoints.embeddings errors prompt state threads types",
    "prompt.fit": "formats prompt threads types",
    "prompt.media": "documents errors media threads types",
    "output": "formats threads types",
    "formats": "formats.syntaxes grammar",
    "formats.grammar": "formats formats.syntaxes grammar",
    "formats.syntaxes": "formats grammar",
    "grammar": "threads",
    # -- the engine, which imports the nouns and threads alone
    "engine": (
        "engine.costs engine.decode engine.drafts engine.failures engine.kv engine.mirror "
        "engine.prefix engine.prompts engine.work media options stats threads types"
    ),
    "engine.costs": "stats types",
    "engine.decode": "engine engine.costs engine.drafts engine.kv engine.prefix engine.sampling types",
    "engine.drafts": "engine engine.costs engine.kv engine.prefix engine.sampling options stats",
    "engine.failures": "engine engine.mirror types",
    "engine.kv": "engine engine.mirror",
    "engine.mirror": "types",
    "engine.prefix": "engine engine.costs engine.failures engine.kv engine.mirror stats types",
    "engine.prompts": "engine engine.costs engine.kv engine.prefix engine.sampling types",
    "engine.sampling": "engine types",
    "engine.work": (
        "engine engine.costs engine.decode engine.drafts engine.kv engine.prefix engine.prompts engine.work.alone "
        "stats threads types"
    ),
    "engine.work.alone": "engine engine.work types",
    # -- models and machines, which fill its ports
    "backends": "backends.cuda backends.x86 engine threads types",
    "backends.cuda": "backends engine",
    "backends.self_test": "backends types",
    "backends.x86": "backends engine threads",
    "models": (
        "backends backends.self_test engine engine.mirror media models.adapters "
        "models.attention models.checkpoint models.config models.gguf models.heads models.local models.mtp "
        "models.speech models.vision formats options output threads types vectors"
    ),
    "models.adapters": "engine models models.checkpoint options threads types",
    "models.checkpoint": "backends models.gguf options types",
    "models.config": "backends models.checkpoint models.faults types",
    "models.attention": "backends engine",
    "models.faults": "backends models.attention types",
    "models.gguf": "backends models.faults models.gguf.encoders threads types",
    "models.gguf.encoders": "models.gguf types",
    "models.local": "models.checkpoint models.gguf types",
    "models.heads": "backends engine models.checkpoint threads types vectors",
    "models.mtp": "backends engine models models.checkpoint models.config models.gguf models.heads types",
    "models.speech": (
        "backends engine engine.work.alone media models models.attention models.checkpoint options speech threads types"
    ),
    "models.vision": (
        "backends engine media models models.attention models.checkpoint models.config models.gguf models.heads "
        "options threads types"
    ),
    # -- beneath
    "documents": "threads",
    "state": "threads types",
    "threads": "",
    "builtin": "",
    # -- nouns
    "types": "media speech stats",
    "vectors": "",
    "media": "",
    "options": "media types",
    "errors": "",
    "stats": "",
    "speech": "",
}
NOUNS = {"types", "vectors", "media", "options", "errors", "stats", "speech"}
CORE = {
    *(
        "client",
        "sdk",
        "runtime",
        "telemetry",
        "endpoints",
        "formats",
        "grammar",
        "output",
        "prompt",
        "engine",
        "models",
    ),
    *("backends", "documents", "state", "threads", "builtin", *NOUNS),
}
AROUND = {"localai_shim", "__main__", "cli", "contrib", "ray", "replacing", "scale", "testing"}
# room -> the packages of others that it may import, where it may import any
PACKAGES = {
    "backends": "mlx numpy",
    "backends.cuda": "mlx",
    "backends.self_test": "mlx numpy",
    "backends.x86": "mlx mlx_lm numpy",
    "cli": "mlx openai rich",
    "client": "PIL anyio httpx2 numpy openai",
    "contrib": "lm_eval numpy openai tqdm",
    "documents": "numpy pypdf pypdfium2",
    "endpoints": "openai",
    "endpoints.audio.speaking": "numpy openai",
    "endpoints.audio.transcriptions": "numpy openai",
    "endpoints.chat": "openai",
    "endpoints.completions": "openai",
    "endpoints.hosted.mcp": "openai",
    "endpoints.embeddings": "numpy openai",
    "endpoints.hosted": "PIL openai",
    "endpoints.responses": "openai",
    "endpoints.vector_stores": "numpy",
    "engine": "anyio mlx numpy",
    "engine.decode": "mlx numpy",
    "engine.drafts": "mlx numpy",
    "engine.failures": "mlx",
    "engine.kv": "mlx numpy",
    "engine.prefix": "mlx numpy",
    "engine.prompts": "mlx numpy",
    "engine.sampling": "mlx numpy",
    "engine.work": "mlx numpy",
    "engine.work.alone": "mlx",
    "grammar": "llguidance numpy",
    "media": "numpy",
    "models": "huggingface_hub jinja2 mlx mlx_lm mlx_vlm numpy tokenizers transformers",
    "models.adapters": "mlx mlx_lm numpy",
    "models.checkpoint": "mlx mlx_lm",
    "models.config": "mlx mlx_lm mlx_vlm numpy transformers",
    "models.faults": "mlx mlx_vlm numpy",
    "models.gguf": "mlx mlx_lm numpy tokenizers transformers",
    "models.gguf.encoders": "mlx mlx_vlm transformers",
    "models.attention": "mlx mlx_lm mlx_vlm",
    "models.heads": "mlx mlx_lm numpy tokenizers",
    "models.mtp": "mlx mlx_lm",
    "models.local": "huggingface_hub",
    "models.speech": "huggingface_hub mlx mlx_audio mlx_lm numpy tokenizers transformers",
    "models.vision": "PIL mlx mlx_lm mlx_vlm numpy transformers",
    "prompt": "PIL jinja2",
    "prompt.media": "PIL certifi cv2 httpx httpx2 miniaudio numpy",
    "runtime": "anyio",
    "scale.parallel": "mlx",
    "scale.ray": "httpx2 openai ray",
    "sdk": "httpx2 openai",
    "telemetry": "opentelemetry",
    "testing": "anyio httpx2 numpy openai pytest",
    "testing.audio": "numpy",
    "testing.cassettes": "numpy openai",
    "testing.model": "anyio jinja2 numpy",
    "threads": "gevent",
    "speech": "numpy",
    "types": "numpy",
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


def test_models_know_no_machine_by_name() -> None:
    """They ask the port `Forms`."""
    machines = {"backends.cuda", "backends.x86"}
    assert not {
        room: used & machines for room, used in rooms().items() if room.startswith("models") and used & machines
    }


def string_constants(module: str) -> set[str]:
    return {node.value for node in ast.walk(tree(module)) if isinstance(node, ast.Constant) and type(node.value) is str}


def is_around(module: str) -> bool:
    room = room_of(module)
    return room == "backends.cuda" or room.partition(".")[0] in AROUND


def test_the_core_imports_nothing_that_surrounds_it() -> None:
    """Neither by a statement nor by a name: `backends.forms` and `runtime.surroundings` connect the parts."""
    around = {module.removeprefix("localai_shim.") for module in MODULES if is_around(module)}
    imported, named = set[str](), set[str]()
    for module in (each for each in MODULES if not is_around(each)):
        if any(map(is_around, imports(module) & MODULES.keys())):
            imported.add(module)
        if any(
            "." in text and text.removeprefix("localai_shim").removeprefix(".") in around
            for text in string_constants(module)
        ):
            named.add(module)
    assert imported == {"localai_shim.backends.forms"}
    assert named == {"localai_shim.runtime.surroundings"}


@pytest.mark.parametrize("name", PARTS)
def test_each_part_is_a_module_around_the_core(name: str) -> None:
    assert is_around(f"localai_shim.{PARTS[name]}")


def test_every_line_is_that_of_a_room() -> None:
    assert MAY.keys() == rooms().keys() >= PACKAGES.keys()
    assert {name for line in MAY.values() for name in line.split()} <= MAY.keys()
    assert {room.partition(".")[0] for room in MAY} == CORE | AROUND
    assert not CORE & AROUND


def test_no_module_leads_back_to_itself() -> None:
    assert not circle({module: imports(module) & MODULES.keys() for module in MODULES})


def node_of(module: str) -> str:
    """A module's room; the module itself where its room has others within it."""
    room = room_of(module)
    return module if any(each.startswith(f"{room}.") for each in MAY) or room == "localai_shim" else room


def test_no_room_within_another_may_lead_back_to_itself() -> None:
    graph: dict[str, set[str]] = {}
    for module in MODULES:
        used = {node_of(name) for name in imports(module) & MODULES.keys()} - {node_of(module)}
        graph.setdefault(node_of(module), set()).update(used)
    assert not circle(graph)


def test_the_engine_imports_the_nouns_and_threads_alone() -> None:
    for room in (each for each in MAY if each.partition(".")[0] == "engine"):
        assert {name for name in MAY[room].split() if name.partition(".")[0] != "engine"} <= {*NOUNS, "threads"}, room


def test_one_module_of_the_engine_reads_the_clock() -> None:
    """The cost model alone measures what decides; the prefix cache's folder asks how old files are."""
    reads = {
        module.removeprefix("localai_shim.engine.")
        for module in MODULES
        if module.startswith("localai_shim.engine.")
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "time" and node.attr != "sleep"
    }
    assert reads == {"costs.cost_model", "prefix.store"}


PATCHED = frozenset(
    {
        "concurrent.futures.Future",
        "concurrent.futures.ThreadPoolExecutor",
        "queue.LifoQueue",
        "queue.PriorityQueue",
        "queue.Queue",
        "queue.SimpleQueue",
    }
    | {
        f"threading.{name}"
        for name in ("Barrier", "Condition", "Event", "Lock", "RLock", "Semaphore", "Thread", "Timer")
    }
    | {"threading.current_thread", "threading.get_ident", "time.sleep"}
    | {"_thread.start_new_thread", "threading._start_new_thread"}
    | {"anyio.to_thread.run_sync", "asyncio.to_thread", "multiprocessing.pool.ThreadPool"}
)
"""What gevent replaces, and `threads.system` has in its place; all that starts a thread."""
PATCHED_HERE = {
    # Asks for the main thread, where nothing is patched; the thread must be one that `anyio.from_thread` knows.
    "runtime.offload": {"threading.current_thread", "anyio.to_thread.run_sync"},
    "testing.model.clock": {"time.sleep", "anyio.to_thread.run_sync"},  # of a caller, who may be a greenlet or a task
    "testing.offline": {"threading.current_thread"},  # names the program's threads
    "testing.script": {"threading.RLock"},  # held while functions of the program run, on callers' threads
}


def calls(module: str) -> set[str]:
    """The full names of what a module calls or derives from, as far as it has imported it by a name."""
    known: dict[str, str] = {}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            known |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    found = set[str]()
    for node in ast.walk(tree(module)):
        used = [node.func] if isinstance(node, ast.Call) else node.bases if isinstance(node, ast.ClassDef) else []
        for each in used:
            made = each.value if isinstance(each, ast.Subscript) else each
            first, dot, rest = ast.unparse(made).partition(".")
            found.add(known.get(first, first) + dot + rest)
    return found


def test_threads_locks_and_queues_are_made_in_one_module() -> None:
    apart = ("localai_shim.threads.greenlets", "localai_shim.threads.system")
    apart += ("localai_shim.scale.",)  # refused where gevent has patched the program
    found = {
        module.removeprefix("localai_shim."): used
        for module in MODULES
        if not module.startswith(apart) and (used := calls(module) & PATCHED)
    }
    assert found == PATCHED_HERE


def test_a_room_has_at_most_fourteen_modules_and_the_top_only_nouns() -> None:
    flat = Counter(room_of(module) for module in MODULES if MODULES[module].name != "__init__.py")
    assert {room: count for room, count in flat.items() if count > 14} == {}
    assert {path.stem for path in PACKAGE.glob("*.py")} == {"__init__", "__main__", *NOUNS - {"types", "speech"}}


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

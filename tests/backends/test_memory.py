"""MLX's process-wide memory settings: who changes them, in which order, and never during an evaluation.

The Metal calls cannot run here: a small object takes them in place of `mlx.core`, or between it and the engines.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import platform
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm.utils
import pytest

from localai_shim.backends import machine
from localai_shim.backends.memory import DeviceMemory
from localai_shim.engine import loop, ports
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.models.gguf import memory as gguf_memory
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions
from localai_shim.types import ModelLoadError
from tests import inside
from tests.engine.counting import tokens
from tests.engine.harness import Running, engine_for, eventually, generate, request
from tests.samples import only
from tests.tiny import tiny

RECOMMENDED = 12 * 2**30


class FakeMlx:
    """Takes the calls and notes them."""

    def __init__(self, recommended: int | None = RECOMMENDED, wired: int = 5, cache: int = 2**40) -> None:
        self.calls: list[tuple[str, int | None]] = []
        self.info = {} if recommended is None else {"max_recommended_working_set_size": recommended}
        self.limits = {"wired": wired, "cache": cache}

    def device_info(self) -> dict[str, Any]:
        return self.info

    def _set(self, name: str, limit: int) -> int:
        self.calls.append((name, limit))
        before, self.limits[name] = self.limits[name], limit
        return before

    def set_wired_limit(self, limit: int) -> int:
        return self._set("wired", limit)

    def set_cache_limit(self, limit: int) -> int:
        return self._set("cache", limit)

    def clear_cache(self) -> None:
        self.calls.append(("clear", None))

    def synchronize(self) -> None:
        self.calls.append(("synchronize", None))

    def taken(self, *names: str) -> list[tuple[str, int | None]]:
        """The calls since last asked, of these names or all."""
        calls, self.calls = self.calls, []
        return [call for call in calls if not names or call[0] in names]


@pytest.fixture
def mlx() -> FakeMlx:
    return FakeMlx()


@pytest.fixture
def memory(mlx: FakeMlx) -> DeviceMemory:
    return DeviceMemory(mlx)


# -- the wired limit -------------------------------------------------------------------------------------------------


GB = 2**30


def test_weights_and_a_gigabyte_are_wired_and_the_last_engine_puts_the_limit_back(
    memory: DeviceMemory, mlx: FakeMlx
) -> None:
    memory.enter("a")
    assert mlx.taken("wired") == [], "it is not known yet what the model needs"
    memory.loaded("a", 3 * GB)
    memory.rest("a")
    assert mlx.taken("wired") == [("wired", 4 * GB)]
    memory.enter("b")
    memory.loaded("b", 2 * GB)
    memory.rest("b")
    assert mlx.taken("wired") == [("wired", 7 * GB)], "the sum for both"
    memory.leave("a")
    assert mlx.taken("wired") == [("wired", 3 * GB)]
    memory.leave("b")
    calls = mlx.taken()
    assert ("wired", 5) in calls and calls[0] == ("synchronize", None), "after what was in flight"
    memory.enter("c")
    memory.loaded("c", 11 * GB + 1)
    memory.rest("c")
    assert mlx.taken("wired") == [("wired", RECOMMENDED)], "no more than that"


def test_nothing_is_wired_while_all_engines_sleep(memory: DeviceMemory, mlx: FakeMlx) -> None:
    for name in "ab":
        memory.enter(name)
        memory.loaded(name, GB)
        memory.rest(name)
    mlx.taken()
    memory.sleep("a")
    memory.work("b")
    memory.rest("b")
    assert mlx.taken("wired") == []
    memory.sleep("b")
    assert mlx.taken("wired") == [("wired", 5)], "what was wired before them"
    memory.work("a")
    assert mlx.taken("wired") == [("wired", 4 * GB)], "before it runs a step"
    memory.rest("a")
    memory.sleep("a")
    memory.leave("a")
    memory.leave("b")
    assert mlx.limits["wired"] == 5


def test_the_wired_limit_changes_while_no_engine_works(memory: DeviceMemory, mlx: FakeMlx) -> None:
    memory.enter("a")
    memory.loaded("a", GB)
    memory.rest("a")
    memory.work("a")
    mlx.taken()
    memory.enter("b")
    memory.loaded("b", GB)
    memory.rest("b")
    memory.sleep("b")
    assert mlx.taken("wired") == []
    memory.rest("a")
    assert mlx.taken("wired") == [("wired", 4 * GB)]


def test_a_larger_wired_limit_that_was_found_stays() -> None:
    mlx = FakeMlx(wired=8 * GB)
    memory = DeviceMemory(mlx)
    memory.enter("a")
    memory.loaded("a", GB)
    memory.rest("a")
    assert mlx.limits["wired"] == 8 * GB
    memory.sleep("a")
    memory.leave("a")
    assert mlx.limits["wired"] == 8 * GB


@pytest.mark.parametrize(("gpus", "warned"), [(1, False), (2, True)])
def test_a_second_model_where_several_gpus_are_seen_is_warned_of(
    gpus: int,
    warned: bool,
    memory: DeviceMemory,
    mlx: FakeMlx,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """MLX 0.32.4's requests fail there now and then; with one GPU they do not."""
    monkeypatch.setattr("localai_shim.backends.memory.on_cuda", lambda: True)
    monkeypatch.setattr(mlx, "gpu", None, raising=False)
    monkeypatch.setattr(mlx, "device_count", lambda kind: gpus, raising=False)
    for name in "ab":
        memory.enter(name)
    memory.loaded("a", 1)
    memory.leave("a")
    memory.loaded("b", 1)
    assert not caplog.records, "one is loaded after the other has left"
    memory.loaded("c", 1)
    assert ("CUDA_VISIBLE_DEVICES" in caplog.text) == warned


def test_where_nothing_is_recommended_nothing_is_wired() -> None:
    mlx = FakeMlx(recommended=None)
    memory = DeviceMemory(mlx)
    memory.enter("a")
    memory.loaded("a", 2**50)
    memory.rest("a")
    memory.leave("a")
    assert mlx.taken("wired") == []


def test_a_limit_that_the_system_refuses_is_no_reason_not_to_run(
    memory: DeviceMemory, mlx: FakeMlx, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(limit: int) -> int:
        raise ValueError("larger than the maximum working set size")

    monkeypatch.setattr(mlx, "set_wired_limit", refuse)
    memory.enter("a")
    memory.loaded("a", 1)
    memory.rest("a")
    memory.sleep("a")
    memory.work("a")
    memory.leave("a")
    assert caplog.text.count("cannot be wired (larger than") == 1


def test_weights_close_to_what_is_recommended_are_warned_of_and_those_of_all_models_count(
    memory: DeviceMemory, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "ab":
        memory.enter(name)
    memory.loaded("a", RECOMMENDED // 2)
    assert not caplog.records
    memory.loaded("b", RECOMMENDED // 2)
    [record] = caplog.records
    assert record.levelno == logging.WARNING and "decoding may be slow" in record.message
    caplog.clear()
    memory.leave("a")
    memory.loaded("c", RECOMMENDED // 3)
    assert not caplog.records


# -- free buffers ----------------------------------------------------------------------------------------------------


def test_free_buffers_are_limited_to_what_all_engines_have_planned_for_them(memory: DeviceMemory, mlx: FakeMlx) -> None:
    memory.enter("a")
    memory.rest("a", free=100)
    assert mlx.taken() == [("synchronize", None), ("cache", 100), ("clear", None)]
    memory.rest("a", free=100)
    assert mlx.taken() == [("synchronize", None)], "nothing changed"
    memory.enter("b")
    memory.rest("b", free=20)
    assert mlx.taken("cache") == [("cache", 120)]
    memory.leave("a")
    assert mlx.taken("cache") == [("cache", 20)]
    memory.leave("b")
    assert mlx.taken("cache", "clear") == [("cache", 2**40), ("clear", None)]


def test_a_lower_limit_that_was_found_stays() -> None:
    mlx = FakeMlx(cache=50)
    memory = DeviceMemory(mlx)
    memory.enter("a")
    memory.rest("a", free=100)
    assert mlx.limits["cache"] == 50
    memory.rest("a", free=30)
    assert mlx.limits["cache"] == 30
    memory.leave("a")
    assert mlx.limits["cache"] == 50


def test_nothing_is_done_while_another_engine_works_and_it_is_done_when_that_rests(
    memory: DeviceMemory, mlx: FakeMlx
) -> None:
    memory.enter("a")
    memory.enter("b")
    mlx.taken()
    memory.rest("a", free=100, clear=True)
    assert mlx.taken("cache", "clear") == []
    memory.work("a")
    memory.rest("b", free=10)
    assert mlx.taken("cache", "clear") == []
    memory.rest("a", free=100)
    assert mlx.taken("cache", "clear") == [("cache", 110), ("clear", None)]


def test_an_engine_that_ends_beside_one_that_works_leaves_the_clearing_to_it(
    memory: DeviceMemory, mlx: FakeMlx
) -> None:
    memory.enter("a")
    memory.enter("b")
    mlx.taken()
    memory.leave("a")
    assert mlx.taken() == [("synchronize", None)]
    memory.rest("b")
    assert mlx.taken("clear") == [("clear", None)]


# -- engines ---------------------------------------------------------------------------------------------------------


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what glibc keeps of freed memory")
def test_memory_that_was_freed_between_what_is_in_use_is_returned_to_the_system(memory: DeviceMemory) -> None:
    blocks = [b"x" * 100_000 for _ in range(2_000)]
    memory.enter("a")
    memory.rest("a", clear=True)
    full = resident()
    used = blocks[::20]
    del blocks
    memory.work("a")
    memory.rest("a", clear=True)
    assert full - resident() > 100 * 2**20 and len(used) == 100


class Watching(FakeMlx):
    """Passes the calls on to MLX, except for what only Metal has, and looks who is at work at the time."""

    def __init__(self) -> None:
        super().__init__()
        self.engines: list[Engine[Any]] = []
        self.during: list[str] = []

    def _look(self, name: str) -> None:
        self.during += [name for engine in self.engines if engine.stats().running]

    def set_wired_limit(self, limit: int) -> int:
        self._look("wired")
        return super().set_wired_limit(limit)

    def set_cache_limit(self, limit: int) -> int:
        self._look("cache")
        super().set_cache_limit(limit)
        return int(mx.set_cache_limit(limit))

    def clear_cache(self) -> None:
        self._look("clear")
        super().clear_cache()
        mx.clear_cache()

    def synchronize(self) -> None:
        mx.synchronize()


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watching]:
    """For engines that a test makes and closes."""
    watching = Watching()
    monkeypatch.setattr(ports, "_connected", replace(ports.host(), memory=DeviceMemory(watching)))
    yield watching
    for engine in watching.engines:
        engine.close()


def limited(kind: str, rest: int) -> EngineOptions:
    """All of MLX's memory is the model's and so many bytes."""
    weights = load_model(str(tiny(kind)), LoadOptions()).weight_bytes
    return EngineOptions(memory_limit=weights + rest)


def test_an_engine_wires_loads_limits_runs_and_puts_back(watching: Watching) -> None:
    loaded_after: list[Any] = []
    before = mx.set_cache_limit(2**25)
    mx.set_cache_limit(before)

    def load() -> Any:
        loaded_after.extend(watching.calls)
        return load_model(str(tiny("qwen3")), LoadOptions())

    engine: Engine[Any] = Engine(load, limited("qwen3", 2**22))
    generate(engine, request([5, 6, 7]))
    assert loaded_after == []
    assert ("wired", engine.model.weight_bytes + GB) in watching.calls
    assert ("cache", int(2**22 * 0.05)) in watching.calls, "no more than `memory_limit` allows"
    engine.close()
    assert watching.taken("wired", "cache")[-2:] == [("wired", 5), ("cache", before)]
    after = mx.set_cache_limit(before)
    assert after == before


def test_a_load_that_fails_puts_back_what_it_changed(watching: Watching) -> None:
    engine = engine_for("qwen3", EngineOptions(memory_limit=1000))
    with pytest.raises(ModelLoadError):
        _ = engine.model
    engine.close()
    assert watching.limits["wired"] == 5


def test_an_engine_without_requests_for_some_seconds_sleeps_and_the_next_request_wakes_it(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SLEEP_SECONDS", 0.01)
    engine = engine_for("qwen3")
    watching.engines.append(engine)
    expected = generate(engine, request([5, 6, 7]))
    wired = engine.model.weight_bytes + GB
    for _ in range(2):
        assert eventually(lambda: watching.limits["wired"] == 5)
        calls = len(watching.calls)
        assert generate(engine, request([5, 6, 7])) == expected
        assert ("wired", wired) in watching.calls[calls:]
    assert watching.during == []


def test_free_buffers_may_take_a_tenth_of_metals_limit(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a Mac of 8 GB, a twentieth of what the weights leave is less than the arrays of one step."""
    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": RECOMMENDED})
    monkeypatch.setattr(machine, "gpu_memory", lambda: RECOMMENDED)
    for name in ("_memories", "_workspaces"):  # without those of engines that earlier tests have left
        monkeypatch.setattr(f"localai_shim.engine.memory.{name}", set())
    for kind, options, expected in (
        ("qwen3", EngineOptions(), RECOMMENDED // 10),
        ("qwen3", limited("qwen3", 2**22), int(2**22 * 0.05)),
    ):
        engine = engine_for(kind, options)
        watching.engines.append(engine)
        generate(engine, request([5, 6, 7]))
        assert abs(inside.setup(engine).memory.free - expected) <= 1
        engine.close()


@pytest.mark.parametrize("kind", only(["qwen3"], ["qwen3", "gemma3_text"]))
def test_what_mlx_holds_in_use_and_free_is_within_memory_limit(watching: Watching, kind: str) -> None:
    """Without a limit on them, free buffers of all the sizes that rows had would pile up beside it."""
    mx.synchronize()
    mx.clear_cache()
    others = mx.get_active_memory()
    options = limited(kind, 12 * 2**20)
    engine = engine_for(kind, options)
    watching.engines.append(engine)
    model, held = engine.model, [0]

    def measured(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            held[0] = max(held[0], mx.get_active_memory() + mx.get_cache_memory())
            return method(*args, **more)

        return call

    for name in ("forward", "prefill"):
        setattr(model, name, measured(getattr(model, name)))
    for wave in range(12):
        prompts = [tokens(60 + 15 * i, 10 * wave + i) for i in range(9)]
        running = [Running(engine, request(prompt, max_tokens=10 + 3 * wave)) for prompt in prompts]
        for run in running:
            run.finish()
    held[0] = max(held[0], mx.get_active_memory() + mx.get_cache_memory())
    assert options["memory_limit"] is not None
    assert 0.5 * options["memory_limit"] < held[0] <= others + options["memory_limit"], "much of it is used"


def test_free_buffers_are_never_touched_while_a_row_runs(watching: Watching) -> None:
    """Two engines whose rows come and go at different times, which have all that is due done by whoever rests last."""
    engines = [engine_for(kind, limited(kind, 2**23)) for kind in ("qwen3", "llama")]
    watching.engines += engines
    for engine in engines:
        _ = engine.model
    long = Running(engines[0], request([5, 6, 7], max_tokens=600, ignore_eos=True))
    long.read(2)
    for seed in range(8):
        generate(engines[1], request(tokens(30, seed), max_tokens=40, ignore_eos=True))
    long.finish()
    assert eventually(lambda: ("clear", None) in watching.calls)
    assert watching.during == []


def test_engines_that_come_and_go_at_once_leave_everything_as_it_was(watching: Watching) -> None:
    def run(kind: str) -> None:
        engine = engine_for(kind)
        generate(engine, request([5, 6, 7], max_tokens=5))
        engine.close()

    threads = [threading.Thread(target=run, args=(kind,)) for kind in ("qwen3", "llama") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert watching.limits["wired"] == 5


# -- upstream --------------------------------------------------------------------------------------------------------


def test_mlx_lm_and_mlx_vlm_do_for_metal_what_the_documentation_lists() -> None:
    """Should these change, read them again, and the list in docs/memory.md with them."""
    assert "max_recommended_working_set_size" in inspect.getsource(mlx_lm.utils.maybe_set_recommended_wired_limit)
    generate = importlib.import_module("mlx_lm.generate")  # the package has a function of that name
    for module in (generate, importlib.import_module("mlx_vlm.generate.common")):
        source = inspect.getsource(module.wired_limit)
        assert "0.9 * max_rec_size" in source and "mx.synchronize(" in source and "set_wired_limit(old_limit)" in source
    batching = inspect.getsource(generate.BatchGenerator)
    assert "maybe_set_recommended_wired_limit()" in batching and "% 512 == 0" in batching
    assert inspect.getsource(generate).count("mx.clear_cache()") == 6


def test_a_limit_waits_for_python_code(memory: DeviceMemory, mlx: FakeMlx, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, setting it waits for MLX's threads and holds the GIL, which that code needs."""
    waited, upstream = list[bool](), gguf_memory._Unwritten.readinto
    memory.enter("engine")
    resting = threading.Thread(target=lambda: memory.rest("engine", free=1))

    def readinto(self: Any, buffer: Any) -> int:
        if not waited:
            resting.start()
            resting.join(0.2)  # without the lock it ends sooner
            waited.append(resting.is_alive())
        return upstream(self, buffer)

    monkeypatch.setattr(gguf_memory._Unwritten, "readinto", readinto)
    gguf_memory.empty((4,), float)
    resting.join()
    assert (waited, mlx.taken("cache")) == ([True], [("cache", 1)])

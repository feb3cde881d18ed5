"""Clients of a few models, requests of all kinds with known answers, and streams that run beside them."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from benchmarks.soak.checks import same
from benchmarks.soak.scripts import Script, Variation
from benchmarks.soak.setting import Pair, close_pair, open_pair
from tests import inside
from tests.embedding_models import tiny_embedder
from tests.engine.harness import eventually
from tests.lora import make_adapter
from tests.soak.faults.kinds import KINDS, PICTURES, finish, finish_async, next_round
from tests.soak.faults.places import BESIDE
from tests.tiny import AGENT_TURNS, make_model

WORKERS = ("preparing", "reading", "importing", "decoding", "idle", "dropped")
"""Threads of the package that wait for work when theirs has ended."""
AHEAD = 6  # tokens that a stream beside has to get before something happens, and after it
LONG = 1_500  # tokens, which no stream beside comes to the end of
HUB = "nobody/model"
CALLERS = ("thread", "asyncio", "trio")


class Load:
    """Clients, what they answer undisturbed, and how they stand when nothing runs.

    Args:
        root: for the files of models, store and caches.
    """

    def __init__(self, root: Path) -> None:
        text = make_model(root / "text", "qwen3", template=AGENT_TURNS + "{% endif -%}", max_position_embeddings=4096)
        self.adapter = make_adapter(root / "a", text, seed=1)
        self.options: Mapping[str, dict[str, Any]] = {
            "text": {
                "model": text,
                "adapters": {"a": self.adapter},
                "store": root / "store.sqlite",
                "cache_dir": root / "cache",
                "keep_alive": 0,
            },
            "vision": {"model": "builtin:vision", "allow_local_files": PICTURES, "keep_alive": 0},
            "embedder": {"model": tiny_embedder("bert"), "keep_alive": 0},
        }
        self._apart = {"own": _copy(text, root / "own"), "hub": HUB}
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr("mlx_lm.utils.snapshot_download", lambda *_, **__: str(text))  # there is no network
        PICTURES.mkdir(exist_ok=True)
        self.pairs = {name: open_pair(options) for name, options in self.options.items()}
        self.expected = {kind: self.play(kind) for kind in KINDS}
        self.beside = {name: self._alone(name) for name in self.pairs}
        for kind, caller in (("chat", "trio"), ("chat", "asyncio"), ("background", "asyncio"), ("batch", "asyncio")):
            assert self.is_right(kind, self.play(kind, caller))  # from here on it has its threads
        self._quiet = self._standing()

    def close(self) -> None:
        for pair in self.pairs.values():
            close_pair(pair)
        self._patch.undo()

    def engine(self, name: str) -> Any:
        return inside.engine(self.pairs[name].sync)

    def play(self, kind: str, caller: str = "thread", timeout: float | None = None) -> Any:
        """Send a request of a kind, and read its answer; nothing that it needs is cached.

        Args:
            timeout: seconds that a thread has for each call.
        """
        client, make = KINDS[kind]
        script = make(Variation(extra={} if client == "embedder" else {"cache_salt": next_round()}))
        if client in self._apart:
            pair = open_pair({"model": self._apart[client], "keep_alive": 0})
            try:
                return _sent(pair, script, caller, timeout)
            finally:
                close_pair(pair)
        return _sent(self.pairs[client], script, caller, timeout)

    def renew(self) -> None:
        """Have what was given up after an error be used again, what was loaded be loaded again, and batches stored."""
        store, pair = inside.store(self.pairs["text"].sync), self.pairs["text"]
        for id, _ in store.owned("batch"):
            pair.sync.batches.retrieve(id)
            anyio.run(pair.async_.batches.retrieve, id)
        engine = self.engine("text")
        inside.setup(engine).prefixes._open_folder(engine.model.fingerprint)
        for runtime in (inside.runtime(pair.sync), inside.runtime(pair.async_)):
            runtime.adapters.unload("a")
            runtime.adapters.enter("a", str(self.adapter))
        assert eventually(lambda: engine.stats().adapter_bytes == 0)

    def is_right(self, kind: str, answer: Any) -> bool:
        return same(answer, self.expected[kind])

    @contextlib.contextmanager
    def busy(self, *names: str) -> Iterator[list[Beside]]:
        """Streams that run on these engines meanwhile, some of whose tokens have come."""
        streams = [Beside(self, name, how) for name in names for how in CALLERS[:2]]
        try:
            for stream in streams:
                stream.proceed()
            yield streams
        finally:
            for stream in streams:
                stream.end()

    def _alone(self, name: str) -> Any:
        if name == "embedder":
            return self.play("embeddings")
        return [self._whole(name, how) for how in CALLERS[:2]]

    def _whole(self, name: str, how: str) -> list[int]:
        answer = self.pairs[name].sync.completions.create(**_going_on(how))
        tokens: list[int] = answer.choices[0].token_ids  # type: ignore[attr-defined]
        return tokens

    # -- what is left ------------------------------------------------------------------------------------------------

    def left(self) -> dict[str, Any]:
        """What requests have left behind, once the engines rest."""
        gc.collect(0)
        for name in self.pairs:
            if not eventually(lambda name=name: self._rests(name), 20):  # type: ignore[misc]
                return {"in flight": (name, self.engine(name).stats())}
        found: dict[str, Any] = {}
        eventually(lambda: not found.update(self._more()) and not any(found.values()), 10)
        return {what: value for what, value in found.items() if value}

    def _rests(self, name: str) -> bool:
        engine = self.engine(name)
        stats, loop = engine.stats(), inside.loop(engine)
        return not (stats.running or stats.waiting or loop.tickets._reserved or len(loop.tickets))

    def _more(self) -> dict[str, Any]:
        now = self._standing()
        store = inside.store(self.pairs["text"].sync)
        pins = {
            name: loop._setup.features._pins
            for name in self.pairs
            if (loop := inside.loop(self.engine(name)))._setup.features
        }
        return {
            "threads": now["threads"] - self._quiet["threads"],
            "descriptors": max(0, now["descriptors"] - self._quiet["descriptors"] - SPARE_DESCRIPTORS),
            "temporary files": now["temporary"] - self._quiet["temporary"],
            "pinned features": {name: dict(each) for name, each in pins.items() if each},
            "owned": [*store.owned("response"), *store.owned("batch")],
        }

    def _standing(self) -> dict[str, Any]:
        threads = {t for t in threading.enumerate() if not t.name.removeprefix("localai_shim:").startswith(WORKERS)}
        threads = {t for t in threads if not t.name.startswith(("AnyIO", "Trio"))}
        files = {each for each in os.listdir(tempfile.gettempdir()) if not each.startswith("localai_shim-")}
        return {"threads": threads, "temporary": files, "descriptors": len(os.listdir("/proc/self/fd"))}


SPARE_DESCRIPTORS = 8  # of idle worker threads


def _sent(pair: Pair, script: Script, caller: str, timeout: float | None) -> Any:
    if timeout is not None:
        return finish(pair.sync.with_options(timeout=timeout), script)
    if caller == "thread":
        return finish(pair.sync, script)
    return anyio.run(partial(finish_async, pair.async_, script), backend=caller)


def _copy(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def _going_on(how: str) -> dict[str, Any]:
    """A request that goes on: greedy from a thread, sampled from an event loop."""
    sampling = {"temperature": 0.0} if how == "thread" else {"temperature": 0.8, "seed": 8}
    extra = {"return_token_ids": True, "ignore_eos": True}
    return {"model": "m", "prompt": "one two three", "max_tokens": LONG, **sampling, "extra_body": extra}


class Beside:
    """A stream, or vectors again and again, on a thread of its own beside what is done."""

    def __init__(self, load: Load, name: str, how: str) -> None:
        self.error: Exception | None = None
        self._expected = load.beside[name]
        self._load, self._name, self._how = load, name, how
        self._got, self._wanted, self._leaves = 0, AHEAD, False
        self._changed = threading.Condition()
        self._tokens: list[int] = []
        self._thread = threading.Thread(target=self._run, name=f"{BESIDE} {name} {how}", daemon=True)
        self._thread.start()

    def proceed(self) -> None:
        """Wait for some more of it."""
        with self._changed:
            self._wanted = self._got + AHEAD
            assert self._changed.wait_for(lambda: self._got >= self._wanted or not self._thread.is_alive(), 60)

    def end(self, *, drops: bool = False) -> None:
        """Have it get some more, and close the stream, or drop it."""
        self.proceed()
        self._drops, self._leaves = drops, True
        self._thread.join(60)
        assert not self._thread.is_alive()

    @property
    def is_right(self) -> bool:
        """All that it got is what it gets alone."""
        if self._name == "embedder":
            return not self._wrong
        return self._tokens == self._expected[CALLERS.index(self._how)][: len(self._tokens)]

    _wrong = _drops = False

    def _run(self) -> None:
        pair = self._load.pairs[self._name]
        try:
            if self._name == "embedder":
                self._embed()
            elif self._how == "thread":
                stream = pair.sync.completions.create(**_going_on(self._how), stream=True)
                for chunk in stream:
                    if self._take(chunk):
                        break
                if not self._drops:
                    stream.close()
            else:
                anyio.run(self._read, pair.async_, backend="asyncio")
        except Exception as error:
            self.error = error
        finally:
            with self._changed:
                self._got = 1 << 30
                self._changed.notify_all()

    async def _read(self, client: Any) -> None:
        stream = await client.completions.create(**_going_on(self._how), stream=True)
        async for chunk in stream:
            if self._take(chunk):
                break
        if not self._drops:
            await stream.close()

    def _embed(self) -> None:
        client, _ = KINDS["embeddings"]
        while not self._leaves:
            script = KINDS["embeddings"][1](Variation())
            self._wrong |= not same(finish(self._load.pairs[client].sync, script), self._expected)
            self._step()

    def _take(self, chunk: Any) -> bool:
        self._tokens += chunk.choices[0].token_ids or ()
        self._step()
        return self._leaves

    def _step(self) -> None:
        with self._changed:
            self._got += 1
            if self._got >= self._wanted:
                self._changed.notify_all()


class Logged(logging.Handler):
    """Warnings and errors of the package meanwhile."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@contextlib.contextmanager
def logged() -> Iterator[Logged]:
    handler = Logged()
    log = logging.getLogger("localai_shim")
    log.addHandler(handler)
    level = log.level
    log.setLevel(logging.INFO)  # observers are told of each request
    try:
        yield handler
    finally:
        log.setLevel(level)
        log.removeHandler(handler)

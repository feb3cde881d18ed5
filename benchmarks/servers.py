"""Whole runs against mlx-lm's and mlx-vlm's servers, which this program starts on the same model."""

from __future__ import annotations

import ctypes
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import openai

from localai_shim.backends.blas import blas

from . import streams, throughput
from .bench import Bench
from .figures import Figure, Section, print_figures, ratios, spread
from .timeline import Run
from .workload import Prompt, Setting, settings

STREAMS = 32
TARGET = 2.0
_PATIENCE = 180.0  # seconds for a server to load the model
SERVERS = ("mlx_lm", "mlx_vlm")

# `python -m NAME.server`, with room for more than the five waiting connections that Python's http.server allows:
# mlx-lm's resets some of 32 that come at once, and the SDK would try again half a second later. It ends when the
# process that started it does, however that ends: its standard input is closed then.
_LAUNCH = """import os, runpy, socketserver, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
socketserver.TCPServer.request_queue_size = 128
runpy.run_module("{name}.server", run_name="__main__", alter_sys=True)"""


@dataclass(slots=True)
class Server:
    """A server that answers."""

    url: str
    model: str
    """The name to send."""
    preloaded: bool
    """Whether our BLAS is in its process."""

    def run(self, prompts: Sequence[Prompt], chosen: Sequence[Setting], new_tokens: int) -> Run:
        """Stream through the stock SDK, with a client of its own: connections do not outlive an event loop."""
        client = openai.AsyncOpenAI(base_url=self.url, api_key="none", timeout=600.0)
        return streams.run(client, self.model, prompts, chosen, new_tokens, exact=False, close=True)


class ServerError(Exception):
    """A server cannot serve this model."""


def measure(bench: Bench) -> Section:
    """Client and server in turns; both sample with a temperature and top_p for each request."""
    # No seeds: mlx-lm's server runs requests that have one by themselves, one after another.
    chosen = [replace(s, seed=None) for s in settings(STREAMS, random.Random(STREAMS))]
    section = Section()
    for name in SERVERS:
        figure = Figure(f"servers: {STREAMS} sampled streams, whole run tok/s / {name}.server", [], TARGET)
        section.figures.append(figure)
        try:
            with started(name, bench.folder) as server:
                ours, theirs = _compare(bench, server, chosen)
        except (ServerError, openai.OpenAIError, RuntimeError) as error:
            figure.target = None
            figure.note = f"not measured: {error}"
            continue
        figure.values = ratios(*([run.whole_rate for run in runs] for runs in (ours, theirs)))
        short = sum(s.tokens < bench.new_tokens for run in theirs for s in run.streams)
        notes = [f"{blas()} is loaded in the server, too" if server.preloaded else "the server runs MLX's own BLAS"]
        if short:
            notes.append(f"{short} streams of the server ended early; rates count the tokens that came")
        figure.note = "; ".join(notes)
        for who, runs in (("client", ours), (f"{name}.server", theirs)):
            rates = {"decode": [r.decode_rate for r in runs if r.decode_rate], "whole": [r.whole_rate for r in runs]}
            print(f"{who}: " + ", ".join(f"{what} {spread(rate, digits=0)} tok/s" for what, rate in rates.items()))
            section.raw[f"{who} against {name}" if who == "client" else who] = rates
        print(flush=True)
    print_figures(section.figures)
    return section


def _compare(bench: Bench, server: Server, chosen: Sequence[Setting]) -> tuple[list[Run], list[Run]]:
    client = throughput.client_method(bench.ours, "bench", chosen)
    client(bench.prompts.take(STREAMS), 8)
    server.run(bench.prompts.take(STREAMS), chosen, 8)  # compiles kernels for the values, too
    ours, theirs = [], []
    for _ in range(bench.repeats):
        ours.append(client(bench.prompts.take(STREAMS), bench.new_tokens))
        theirs.append(server.run(bench.prompts.take(STREAMS), chosen, bench.new_tokens))
    return ours, theirs


@contextmanager
def started(name: str, folder: Path, *options: str, embeds: bool = False) -> Iterator[Server]:
    """Run a server on a free loopback port until the block ends, or this process does.

    Args:
        options: more of its command line.
        embeds: its model embeds texts, and generates none.

    Raises:
        ServerError: it ended or did not answer; with the end of what it wrote.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code = _LAUNCH.format(name=name)
    command = [sys.executable, "-c", code, "--model", str(folder), "--host", "127.0.0.1", *options]
    library = _library()
    environment = {**os.environ, **({"LD_PRELOAD": library} if library else {}), **_core(library)}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, "--port", str(port)], stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment
        )
        try:
            model = "default_model" if name == "mlx_lm" else str(folder)
            server = Server(f"http://127.0.0.1:{port}/v1", model, preloaded=False)
            try:
                _wait(server, process, embeds)
            except ServerError as error:
                log.seek(0)
                lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
                raise ServerError(f"{error}; its last line: {lines[-1] if lines else 'none'}") from error
            server.preloaded = library is not None and _has_mapped(process.pid, library)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(server: Server, process: subprocess.Popen[Any], embeds: bool) -> None:
    """Until it answers."""
    deadline, last = time.monotonic() + _PATIENCE, "nothing"
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=60.0) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise ServerError(f"{server.model}: the server ended with {process.returncode}")
            try:
                if embeds:
                    client.embeddings.create(model=server.model, input="hello")
                else:
                    client.chat.completions.create(
                        model=server.model, messages=[{"role": "user", "content": "hello"}], max_tokens=1
                    )
                return
            except openai.APIConnectionError:
                time.sleep(0.25)
            except openai.APIStatusError as error:
                last = str(error)
                if error.status_code < 500:
                    break
                time.sleep(1.0)
    raise ServerError(f"it does not answer: {last}")


def _core(library: str | None) -> dict[str, str]:
    """The processor that OpenBLAS takes this one for here: it would be several times as slow in a server otherwise."""
    loaded = ctypes.CDLL(library) if library else None
    if not hasattr(loaded, "openblas_get_corename"):
        return {}
    assert loaded is not None
    loaded.openblas_get_corename.restype = ctypes.c_char_p
    return {"OPENBLAS_CORETYPE": loaded.openblas_get_corename().decode()}


def _library() -> str | None:
    """Path of the BLAS that this process loaded in place of MLX's own; None where it kept that."""
    name = blas()
    if name is None:
        return None
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}
    stem = name.split(".so")[0]
    return next((path for path in sorted(paths) if Path(path).name.startswith((name, stem))), name)


def _has_mapped(pid: int, library: str) -> bool:
    try:
        return library in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False

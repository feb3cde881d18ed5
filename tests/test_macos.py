"""What the package asks of the system, with what macOS does not have taken away."""

from __future__ import annotations

import inspect
import os
import resource
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm.utils
import pytest
from mlx.utils import tree_flatten

from localai_shim import LocalOpenAI
from localai_shim.backends import machine as backend
from localai_shim.endpoints.responses.background import Background
from localai_shim.engine.memory import default_limit
from localai_shim.models import upstream_imports
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions
from tests import inside
from tests.tiny import make_half_model, tiny

_SYSCONF, _EXISTS, _ISDIR = os.sysconf, os.path.exists, os.path.isdir


@pytest.fixture
def macos(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No SC_AVPHYS_PAGES, no /proc, no scheduling affinities, and a platform of another name."""

    def sysconf(name: Any) -> int:
        if name == "SC_AVPHYS_PAGES":
            raise ValueError("unrecognized configuration name")
        return _SYSCONF(name)

    monkeypatch.setattr(os, "sysconf", sysconf)
    monkeypatch.setattr(os.path, "exists", lambda path: not str(path).startswith("/proc") and _EXISTS(path))
    monkeypatch.setattr(os.path, "isdir", lambda path: not str(path).startswith("/proc") and _ISDIR(path))
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    return monkeypatch


@pytest.mark.usefixtures("macos")
def test_half_precision_weights_are_widened_where_free_memory_is_not_known(tmp_path: Path) -> None:
    path = make_half_model(tmp_path / "half", "qwen3")
    assert backend.free_memory() is None
    model = load_model(str(path), LoadOptions())
    expected = mx.bfloat16 if model.samples_on_device else mx.float32
    assert {array.dtype for _, array in tree_flatten(inside.network(model).parameters())} == {expected}


def test_the_machines_memory_is_mlxs_to_tell_where_the_system_does_not(macos: pytest.MonkeyPatch) -> None:
    def nothing(name: Any) -> int:
        raise ValueError("unrecognized configuration name")

    known = backend.total_memory()
    assert known == _SYSCONF("SC_PHYS_PAGES") * _SYSCONF("SC_PAGE_SIZE")
    macos.setattr(os, "sysconf", nothing)
    macos.setattr(mx, "device_info", lambda: {"memory_size": 2**36})
    assert backend.total_memory() == 2**36
    macos.setattr(mx, "device_info", dict)
    assert 2**32 < backend.total_memory() <= 2**33
    assert 0 < default_limit() <= 2**33


@pytest.mark.usefixtures("macos")
def test_a_client_answers_keeps_its_files_and_closes(tmp_path: Path) -> None:
    options: Any = {"store": tmp_path / "store.db", "cache_dir": tmp_path / "cache", "keep_alive": 0}
    with LocalOpenAI(tiny("qwen3"), **options) as client:
        made = client.responses.create(model="any", input="Hello", background=True, max_output_tokens=16)
        while client.responses.retrieve(made.id).status in ("queued", "in_progress"):
            pass
        assert client.responses.retrieve(made.id).status in ("completed", "incomplete")
        assert client.stats().backend == ("gpu" if mx.default_device() == mx.Device(mx.gpu) else "cpu")
        engine = inside.engine(client)
    assert engine is not None and inside.worker(engine).wait(0)


@pytest.mark.usefixtures("macos")
def test_no_library_is_looked_for_and_what_to_install_is_said() -> None:
    assert "pip install mlx" in backend._advice(ImportError("no mlx"))
    assert backend.describe_backend() in ("gpu", "cpu")


def test_whether_a_process_lives_is_asked_without_proc() -> None:
    assert not Background.is_alive(f"{2**22 + 1}:x")
    assert Background.is_alive("1:x"), "it may be somebody else's"


INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((256, INFINITE), (2048, INFINITE)),
        ((300, 1000), (1000, 1000)),
        ((1024, 2**20), (2048, 2**20)),
        ((2**20, 2**20), None),
        ((INFINITE, INFINITE), None),
    ],
)
def test_a_process_may_open_no_fewer_files_than_before(
    monkeypatch: pytest.MonkeyPatch, found: tuple[int, int], expected: tuple[int, int] | None
) -> None:
    """mlx-lm's import sets 2,048 and a hard limit of 4,096: macOS begins with 256, most servers with far more."""
    assert "resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 4096))" in inspect.getsource(mlx_lm.utils)
    told: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: found)
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: told.append((which, limits)))
    with upstream_imports.keeping_file_limits():
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 4096))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    files = [] if expected is None else [(resource.RLIMIT_NOFILE, expected)]
    assert told == [*files, (resource.RLIMIT_CORE, (0, 0))]

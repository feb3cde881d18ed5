"""`doctor`: everything that can be broken is said, with what to do, and its status tells scripts."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import mlx.core as mx
import pytest

from localai_shim.backends import blas
from localai_shim.backends import machine as backend
from localai_shim.backends.machine import on_x86_cpu
from localai_shim.cli import doctor
from localai_shim.cli.main import main
from localai_shim.engine import probes, setup
from localai_shim.runtime import engines
from localai_shim.types import BackendMissingError
from tests.cli.caches import cache_model


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(doctor, "CHECK_STREAMS", 2)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "none"))


def findings(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str]]:
    """Subject -> (state, text)."""
    lines = capsys.readouterr().out.split("\n\n")[0].splitlines()
    return {line[7:20].strip(): (line[:7].strip(), line[20:]) for line in lines}


def test_a_machine_on_which_everything_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    checks, models = shown.split("\n\n")
    assert "broken" not in checks
    for subject in ("localai-shim", *doctor.LIBRARIES, "back end", "memory", "models", "self-check"):
        assert f" {subject} " in checks
    forms = next(line for line in checks.splitlines() if " kernels " in line)
    assert ("attention and activations without MLX's exp (16 layers)" in forms) == on_x86_cpu()
    assert "tok/s" in checks and "MLX may use" in checks
    assert "localai-shim-builtin" in models and "batched" in models


def test_back_ends_of_several_processes_are_listed_with_what_is_known_to_be_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mx.distributed, "is_available", lambda name: name in ("ring", "jaccl"))
    main(["doctor"])
    state, text = findings(capsys)["processes"]
    assert state == "ok" and "ring" in text and "nccl" not in text
    assert "jaccl (RDMA over Thunderbolt; not tried, and MLX never notices a lost peer)" in text
    assert "python -m benchmarks --only parallel" in text


def test_a_missing_back_end_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise BackendMissingError("pip install 'localai-shim[cpu]'")

    monkeypatch.setattr(backend, "require_backend", missing)
    assert main(["doctor"]) == 1
    assert findings(capsys)["back end"] == ("broken", "pip install 'localai-shim[cpu]'")


def test_a_missing_library_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "LIBRARIES", ("openai", "no-such-library"))
    assert main(["doctor"]) == 1
    found = findings(capsys)
    assert found["no-such-libra"[:13]][0] == "broken"
    assert found["openai"] == ("ok", importlib.metadata.version("openai"))


def test_a_model_that_answers_wrongly_is_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "EXPECTED", "Zebra")
    assert main(["doctor"]) == 1
    state, text = findings(capsys)["answers"]
    assert state == "broken" and "Shim" in text and "Zebra" in text


@pytest.fixture
def spoiled_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Norms give zeros for one token of all rows but the first. What trials find then is forgotten afterwards.

    The self-test on GPUs does not look at norms.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(probes, "_known", {})
    monkeypatch.setattr(engines, "_shared", {})  # of other tests, whose model is loaded
    norm = mx.fast.rms_norm

    def spoiled(x: mx.array, *arguments: Any, **options: Any) -> mx.array:
        out = norm(x, *arguments, **options)
        return out if x.ndim != 3 or x.shape[1] > 1 else mx.where(mx.arange(len(x))[:, None, None] > 0, 0, out)

    monkeypatch.setattr(mx.fast, "rms_norm", spoiled)


@pytest.mark.usefixtures("spoiled_rows")
def test_a_kernel_that_spoils_all_rows_but_the_first_is_found_when_the_model_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor"]) == 1
    state, text = findings(capsys)["batching"]
    assert state == "broken" and "one at a time" in text and "install another mlx" in text


@pytest.mark.usefixtures("spoiled_rows")
def test_answers_that_differ_next_to_others_are_broken_even_if_no_trial_has_found_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "agreement", lambda model: probes.Agreement(in_pieces=True, together=True))
    assert main(["doctor"]) == 1
    state, text = findings(capsys)["batching"]
    assert state == "broken" and "by itself" in text and doctor.QUESTION in text


def test_a_check_that_raises_is_broken(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no device")

    monkeypatch.setattr(doctor, "measure", fail)
    assert main(["doctor"]) == 1
    assert findings(capsys)["self-check"] == ("broken", "RuntimeError: no device")


def test_a_model_in_the_cache_that_cannot_be_loaded_is_a_note(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache_model(tmp_path, "somebody/empty", None, readme_json="{}")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(doctor, "_self_check", lambda: iter(()))
    assert main(["doctor"]) == 0
    state, text = findings(capsys)["models"]
    assert (
        state == "note" and text.startswith("1 model of other programs, 0 B of weights; ") and "somebody/empty" in text
    )


@pytest.mark.skipif(backend.gpu_memory() is not None, reason="says so on a CPU")
def test_what_would_make_it_faster_is_a_note(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blas, "blas", lambda: None)
    monkeypatch.setattr(backend, "late_blas", lambda: None)
    monkeypatch.setattr(doctor.sys, "platform", "linux")
    monkeypatch.setattr(doctor.glob, "glob", lambda _: ["/dev/nvidia0"])
    monkeypatch.setattr(doctor, "_self_check", lambda: iter(()))
    assert main(["doctor"]) == 0
    found = findings(capsys)
    assert found["BLAS"] == (
        "note",
        "none that is fast: apt-get install libopenblas0-pthread, or pip install 'localai-shim[mkl]'",
    )
    assert found["GPU"][0] == "note" and "pip install 'localai-shim[cuda13]'" in found["GPU"][1]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have MLX's own products")
def test_an_mlx_that_was_imported_too_early_for_a_fast_blas_is_noted() -> None:
    program = """
import mlx.core
from localai_shim.cli.doctor import _backend
print(*(f"{finding.state} {finding.subject}: {finding.text}" for finding in _backend()), sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    if blas.found() is None:
        pytest.skip("no BLAS besides MLX's own here")
    assert "note BLAS: mlx was imported before localai_shim" in done.stdout
    assert "import localai_shim first" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have MLX's own products")
def test_a_fast_blas_is_named_with_the_order_of_imports_that_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    if (fast := blas.blas()) is None:
        pytest.skip("no BLAS besides MLX's own here")
    main(["doctor"])
    assert findings(capsys)["BLAS"] == ("ok", f"{fast}, where localai_shim is imported before mlx and mlx_lm")

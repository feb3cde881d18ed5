"""`doctor --report`: facts and trials of a machine, and nothing that says whose it is."""

from __future__ import annotations

import getpass
import platform
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.backends.self_test import attention, shape
from localai_shim.cli import model_trials, report
from localai_shim.cli.main import main
from localai_shim.cli.model_trials import difference
from localai_shim.models import reference
from localai_shim.models.reference import UpstreamModel
from localai_shim.types import Token

SECTIONS = ["machine", "software", "memory", "variables", "model", "self-test", "tokens", "steps", "chunks"]
SECTIONS += ["free buffers"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "LARGE", reference.SMALL)  # a GPU may be imitated on a CPU
    monkeypatch.setattr(model_trials, "LENGTHS", (20, 150, 20, 150))
    monkeypatch.setattr(model_trials, "HEAD_DIMS", (64, 80))
    monkeypatch.setattr(model_trials, "STEPS", 8)
    monkeypatch.setattr(model_trials, "CHUNKS", (16, 64))
    monkeypatch.setattr(model_trials, "PREFILL_TOKENS", 64)
    monkeypatch.setattr(model_trials, "RUNS", 1)


def write(capsys: pytest.CaptureFixture[str], *, status: int = 0) -> dict[str, dict[str, str]]:
    """Section -> name -> value."""
    assert main(["doctor", "--report"]) == status
    return read(capsys.readouterr().out)


def read(shown: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in shown.splitlines():
        if line.startswith("  "):
            name, value = re.split(r" {2,}", line.strip(), maxsplit=1)
            found[[*found][-1]][name] = value
        else:
            found[line] = {}
    return found


def test_report_has_facts_and_trials_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    found = write(capsys)
    assert [*found] == SECTIONS
    assert str(Path.home()) not in str(found) and platform.node() not in str(found)
    assert all(found.values()), "each section says something"
    assert found["machine"]["architecture of Python"] == platform.machine()
    assert found["software"]["mlx"].startswith(report.metadata.version("mlx"))
    assert "128" in found["model"]["random weights"] and "4 bits" in found["model"]["random weights"]
    cases = [*found["self-test"].values()]
    assert {f"attention, head dim {size}" for size in model_trials.HEAD_DIMS} <= {
        case[:23].rstrip(",") for case in cases
    }
    assert found["tokens"]["rows that ran together"] == "4"
    compared = [value for name, value in found["tokens"].items() if name.startswith("prompt of")]
    assert len(compared) == 4
    if mx.default_device() == mx.Device(mx.cpu):  # GPUs round, and imitated ones more so
        assert not any(error.startswith("FAILED") for error in found["self-test"])
        assert all(value.startswith("48 tokens are equal") and "then" not in value for value in compared)
    assert [*found["steps"]] == ["1 row", "2 rows", "4 rows", "8 rows"]
    assert all(" ms per step, " in value for value in found["steps"].values())
    assert [*found["chunks"]] == ["16 tokens", "64 tokens"]
    assert [*found["free buffers"]] == ["at most 32 MB", "at most 1 GB"]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sections that take long are left out."""
    for name in ("self_test", "steps", "chunks", "free_buffers"):
        monkeypatch.setattr(model_trials, name, lambda *_: iter([("left", "out")]))


def test_limit_of_free_buffers_is_restored(tmp_path: Path) -> None:
    before = mx.set_cache_limit(123 * 2**20)
    try:
        [*model_trials.make_model(tmp_path, report.CHECKPOINT)]
        [*model_trials.free_buffers(tmp_path)]
        assert mx.set_cache_limit(before) == 123 * 2**20
    finally:
        mx.set_cache_limit(before)


@pytest.mark.usefixtures("short")
def test_section_that_fails_says_why_and_the_others_follow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("[METAL] Command buffer execution failed:\nCaused GPU Timeout Error")

    monkeypatch.setattr(UpstreamModel, "greedy", fail)
    found = write(capsys, status=1)
    assert [*found] == SECTIONS
    said = found["tokens"].pop("failed")
    assert said.startswith("RuntimeError: [METAL] Command buffer execution failed: Caused GPU Timeout Error (test_")
    assert [*found["tokens"]][-1] == "prompt of 150: alone, in four", "facts that came before stay"
    assert all("failed" not in facts for facts in found.values())


def test_each_section_may_fail(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Iterator[tuple[str, str]]:
        raise ValueError("planted")

    trials = ("make_model", "self_test", "tokens", "steps", "chunks", "free_buffers")
    for module, names in (
        (report, ("machine", "software", "memory", "variables")),
        (model_trials, trials),
    ):
        for name in names:
            monkeypatch.setattr(module, name, fail)
    found = write(capsys, status=1)
    assert [*found] == SECTIONS
    assert all(facts["failed"].startswith("ValueError: planted") for facts in found.values())


@pytest.mark.usefixtures("short")
def test_report_names_neither_user_nor_folders_nor_host(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "annas"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LOGNAME", "annas")
    monkeypatch.setattr(platform, "node", lambda: "Annas-Macbook.local")
    monkeypatch.setenv("MLX_METAL_PATH", "/Users/annas/metal")
    monkeypatch.setenv("MLX_JACCL_COORDINATOR", "10.1.2.3:5000")
    monkeypatch.setenv("MLX_RANK", "3")
    monkeypatch.setenv("AGX_RELAX_CDM_CTXSTORE_TIMEOUT", "1")

    def fail(_: Path) -> Iterator[tuple[str, str]]:
        yield "fact", f"{home}/.cache of annas"
        raise OSError(f"/Users/ben/x, /home/ben/y, {tempfile.gettempdir()}/z of annas on Annas-Macbook, {home}")

    monkeypatch.setattr(model_trials, "tokens", fail)
    assert main(["doctor", "--report"]) == 1
    shown = capsys.readouterr().out
    assert getpass.getuser() == "annas"
    for secret in ("annas", "Annas", "Macbook", "ben/", str(home), str(tmp_path), "10.1.2.3", tempfile.gettempdir()):
        assert secret not in shown
    found = read(shown)
    assert found["variables"]["MLX_RANK"] == "3"
    assert found["variables"]["AGX_RELAX_CDM_CTXSTORE_TIMEOUT"] == "1"
    assert "not shown" in found["variables"]["MLX_METAL_PATH"]
    assert found["tokens"]["fact"].endswith("/.cache of ***") or found["tokens"]["fact"] == "~/.cache of ***"
    assert "OSError: ~/x, ~/y, $TMPDIR/z of *** on ***, " in found["tokens"]["failed"]


@pytest.mark.parametrize("name", ["m", "mlx", "a.b"])
def test_user_name_within_other_words_stays(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("LOGNAME", name)
    assert report.redacted(f"{name} and {name}x") == f"*** and {name}x"


@pytest.mark.parametrize("home", ["/", "/srv"])
def test_home_of_a_container(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("LOGNAME", "root")
    assert report.redacted("/usr/lib/libc.so") == "/usr/lib/libc.so"
    assert "root" not in report.redacted(f"{home}/.cache by root")


def test_variables_that_make_steps_copy_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in report.SLOWING:
        monkeypatch.setenv(name, "100")
    found = dict(report.variables())
    assert found["MLX_MAX_OPS_PER_BUFFER"] == "100"
    assert found["warning"].startswith(
        "unset MLX_MAX_OPS_PER_BUFFER and MLX_MAX_MB_PER_BUFFER: with larger command buffers, each step may copy"
    )
    monkeypatch.delenv("MLX_MAX_OPS_PER_BUFFER")
    assert dict(report.variables())["warning"].startswith("unset MLX_MAX_MB_PER_BUFFER: ")


SYSCTL = """machdep.cpu.brand_string: Apple M1 Pro
hw.model: MacBookPro18,3
hw.perflevel0.physicalcpu: 8
hw.perflevel1.physicalcpu: 2
kern.osversion: 23B92
sysctl.proc_translated: 1
iogpu.wired_limit_mb: 0
vm.swapusage: total = 2048.00M  used = 1024.50M  free = 1023.50M  (encrypted)
kern.memorystatus_vm_pressure_level: 2
"""


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    def output(*command: str) -> str:
        return SYSCTL if "sysctl" in command[0] else '  | "gpu-core-count" = 16\n'

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("14.1.1", ("", "", ""), "arm64"))
    monkeypatch.setattr(report, "_output", output)
    return monkeypatch


@pytest.mark.usefixtures("mac")
def test_facts_of_a_mac() -> None:
    machine = dict(report.machine())
    assert machine["chip"] == "Apple M1 Pro, MacBookPro18,3"
    assert machine["CPU cores"].endswith(": 8 performance, 2 efficiency")
    assert machine["GPU cores"] == "16"
    assert "Rosetta" in machine["architecture of Python"]
    assert dict(report.software())["system"] == "macOS 14.1.1 (23B92)"
    memory = dict(report.memory())
    assert memory["pressure"] == "warning"
    assert memory["swap"].startswith("total = 2048.00M")
    assert memory["iogpu.wired_limit_mb"] == "0 (the system's default)"


def test_limits_that_mlx_says_are_shown(mac: pytest.MonkeyPatch) -> None:
    info = {"max_recommended_working_set_size": 12 * 2**30, "max_buffer_length": 9 * 2**30}
    mac.setattr(mx, "device_info", lambda: info)
    memory = dict(report.memory())
    assert memory["recommended working set"] == "12.9 GB"
    assert memory["largest buffer"] == "9.7 GB"


def test_facts_that_a_mac_does_not_tell_are_unknown(mac: pytest.MonkeyPatch) -> None:
    mac.setattr(report, "_output", lambda *_: "")
    assert dict(report.machine())["GPU cores"] == "unknown"
    assert dict(report.memory())["swap"] == "unknown"


def test_command_that_is_missing_writes_nothing() -> None:
    assert report._output("/no/such/command") == ""


def test_attention_that_is_wrong_for_a_head_dim_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = attention.fused

    def attend(queries: mx.array, *arguments: Any) -> mx.array:
        found = fused(queries, *arguments)
        return found * 0 if queries.shape[-1] == 80 and queries.shape[-2] == 5 else found

    monkeypatch.setattr(attention, "fused", attend)
    failed = [(error, case) for error, case in model_trials.self_test() if error.startswith("FAILED: 1 of ")]
    assert len(failed) == 2 * len(shape.KEYS)
    assert any(case == "attention, head dim 80, 5 queries x 40 keys, ragged rows" for _, case in failed)


def tokens(*ids: int, top: Any = ()) -> list[Token]:
    return [Token(id, -0.5, top) for id in ids]


def test_difference_says_where_answers_part_and_how_close_the_tokens_were() -> None:
    assert difference(tokens(1, 2), tokens(1, 2)) == "2 tokens are equal, their logprobs within 0"
    shifted = [Token(1, -0.25), Token(2, -0.5)]
    assert difference(tokens(1, 2), shifted) == "2 tokens are equal, their logprobs within 0.25"
    assert difference(tokens(1, 2, 3), tokens(1, 2)).endswith("within 0, but there are 3 and 2")
    own, other = tokens(1, 7, 3), tokens(1, 9, 3, top=((9, -0.5), (7, -0.75)))
    assert difference(own, other) == (
        "1 tokens are equal, their logprobs within 0; then token 7 (-0.5000; 9: not among the 0 likeliest) "
        "and token 9 (-0.5000; 7: -0.7500)"
    )


def test_step_time_counts_only_while_all_rows_run() -> None:
    run = model_trials._Run([], [[0.0, 1.0, 2.0, 2.5, 3.0], [2.0, 2.5, 3.0]])
    assert run.step_seconds() == 0.5
    assert run.most_rows() == 2
    assert model_trials._Run([], [[0.0, 1.0], [2.0, 3.0]]).most_rows() == 1

"""The imitated Mac lacks what macOS lacks, and its GPU refuses what Metal refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, TypeAlias

import mlx.core as mx
import pytest

from tests import machines
from tests.warm import python

pytestmark = pytest.mark.skipif(sys.platform != "linux" and not machines.ASKED_FOR, reason="imitated on Linux only")

SCRIPT = """
import json, os, platform, resource, select, sys, tempfile
from pathlib import Path
import localai_shim
from tests.machines import mac, metal
metal.imitate()
mac.imitate()
import mlx.core as mx
from mlx.utils import tree_flatten
from localai_shim.backends import machine
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions
from localai_shim.runtime.host import connect
from tests.tiny import make_half_model

def said_by(code):
    a, z, at, first = mx.zeros((2, 3), mx.int64), mx.zeros(3, mx.complex64), mx.array([0, 1]), mx.array([[0], [0]])
    try:
        exec(code, {"mx": mx, "a": a, "z": z, "at": at, "first": first})
    except Exception as error:
        return str(error)
    return "computed"

operations = {code: said_by(code) for code in CODES}

def device():
    return "gpu" if mx.default_device() == mx.Device(mx.gpu) else "cpu"

devices = [device()]
with mx.stream(mx.cpu):
    devices.append(device())
    with mx.stream(mx.gpu):
        devices.append(device())
    devices.append(device())
mx.set_default_device(mx.cpu)
devices.append(device())
mx.set_default_device(mx.gpu)
devices.append(device())

connect()
with tempfile.TemporaryDirectory() as folder:
    model = load_model(str(make_half_model(Path(folder), "qwen3")), LoadOptions())
dtypes = {str(array.dtype) for _, array in tree_flatten(model._model.parameters())}
branches = [machine.describe_backend(), machine.free_memory(), machine.gpu_memory(), model.samples_on_device, *dtypes]

missing = []
for look in (lambda: open("/proc/self/stat"), lambda: os.listdir("/sys"), lambda: os.stat("/proc")):
    try:
        look()
    except FileNotFoundError as error:
        missing.append(error.filename)
system = {
    "names": [sys.platform, platform.system(), platform.machine(), os.uname().sysname],
    "missing": missing,
    "exist": [os.path.exists(path) for path in ("/proc/self", "/")],
    "calls": [hasattr(os, "sched_getaffinity"), hasattr(os, "pidfd_open"), hasattr(select, "epoll")],
    "open files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    "linked": os.path.realpath(tempfile.gettempdir()) != tempfile.gettempdir(),
}
print(json.dumps([operations, devices, branches, system]))
"""


Told: TypeAlias = tuple[dict[str, str], list[str], list[Any], dict[str, Any]]


@pytest.fixture(scope="module")
def told() -> Told:
    """What a process on the imitated machine says: of operations, its devices, branches of the code, and its system."""
    script = SCRIPT.replace("CODES", repr([*REFUSED, *COMPUTED]))
    done = subprocess.run([*python("mlx"), "-c", script], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    operations, devices, branches, system = json.loads(done.stdout)
    return operations, devices, branches, system


REFUSED = {
    "a[at] = 1": "[Scatter::eval_gpu] Does not support int64",
    "a[:, at] = mx.array([1, 2])": "[Scatter::eval_gpu] Does not support int64",
    "a.astype(mx.uint64)[at] = 1": "[Scatter::eval_gpu] Does not support uint64",
    "z[at] = 1j": "[Scatter::eval_gpu] Does not support complex64",
    "a.at[at].add(1)": "[Scatter::eval_gpu] Does not support int64",
    "z.at[at].maximum(1j)": "[Scatter::eval_gpu] Does not support complex64",
    "mx.put_along_axis(a, first, first, axis=1)": "[ScatterAxis::eval_gpu] Does not support int64",
    "a.astype(mx.float64)": "float64 is not supported on the GPU",
    "mx.zeros(3, mx.float64)": "float64 is not supported on the GPU",
    "mx.full((2,), 1, dtype=mx.float64)": "float64 is not supported on the GPU",
    "mx.array([1.0], mx.float64).astype(mx.float32)": "float64 is not supported on the GPU",
    "mx.linalg.svd(mx.eye(3))": "[linalg::svd] This op is not yet supported on the GPU",
    "mx.linalg.inv(mx.eye(3))": "[linalg::inv] This op is not yet supported on the GPU",
    "mx.set_wired_limit(2**40)": "[metal::set_wired_limit]",
}
"""Code, and how Metal's error begins."""

COMPUTED = [
    "a[0] = 1",
    "a[:, 1:] = 2",
    "a.astype(mx.int32)[at] = 1",
    "a[a == 0] = 1",
    "z.at[at].add(1j)",
    "a[at]",
    "mx.put_along_axis(a.astype(mx.int32), first, first, axis=1)",
    "mx.linalg.inv(mx.eye(3), stream=mx.cpu)",
    "a.astype(mx.float64, stream=mx.cpu)",
    "with mx.stream(mx.cpu): mx.linalg.svd(mx.eye(3)); a[at] = 1; a.astype(mx.float64)",
    "mx.random.categorical(mx.zeros((2, 5)))",
    "mx.set_wired_limit(2**30)",
]


@pytest.mark.parametrize("code", REFUSED)
def test_what_metal_refuses_is_refused(code: str, told: Told) -> None:
    assert told[0][code].startswith(REFUSED[code])


@pytest.mark.parametrize("code", COMPUTED)
def test_what_metal_computes_is_computed(code: str, told: Told) -> None:
    assert told[0][code] == "computed"


def test_the_default_device_is_the_gpu_except_inside_a_stream_of_the_cpu(told: Told) -> None:
    assert told[1] == ["gpu", "cpu", "gpu", "cpu", "cpu", "gpu"]


def test_code_takes_its_branches_for_gpus_and_keeps_half_precision(told: Told) -> None:
    assert told[2] == ["gpu", None, 11_453_251_584, True, "mlx.core.bfloat16"]


def test_python_finds_nothing_of_linux(told: Told) -> None:
    assert told[3] == {
        "names": ["darwin", "Darwin", "arm64", "Darwin"],
        "missing": ["/proc/self/stat", "/sys", "/proc"],
        "exist": [False, True],
        "calls": [False, False, False],
        "open files": 256,
        "linked": True,
    }


@pytest.mark.skipif(not machines.ASKED_FOR, reason="this run imitates no machine")
def test_a_run_that_asks_for_the_machine_has_it() -> None:
    assert sys.platform == "darwin" and mx.default_device() == mx.Device(mx.gpu)

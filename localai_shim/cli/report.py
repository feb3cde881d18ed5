"""`doctor --report`: what an issue about a machine has to say, as text to paste. It names no person and no place."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ..builtin import CHECKPOINT
from ..stats import show_bytes
from ..types import VERSION
from . import model_trials
from .shared import Fact, one_line, write

if TYPE_CHECKING:
    from rich.console import Console

LIBRARIES = ("mlx", "mlx-metal", "mlx-cuda-13", "mlx-cuda-12", "mlx-cpu", "mlx-lm", "mlx-vlm", "transformers", "openai")
BACKENDS = ("mlx-metal", "mlx-cuda-13", "mlx-cuda-12", "mlx-cpu")
SYSCTLS = (
    "machdep.cpu.brand_string",
    "hw.model",
    "hw.perflevel0.physicalcpu",
    "hw.perflevel1.physicalcpu",
    "kern.osversion",
    "sysctl.proc_translated",
    "iogpu.wired_limit_mb",
    "vm.swapusage",
    "kern.memorystatus_vm_pressure_level",
)
PRESSURE = {"1": "normal", "2": "warning", "4": "critical"}
PREFIXES = ("MLX_", "AGX_")  # the second of Apple's GPU driver
SLOWING = ("MLX_MAX_OPS_PER_BUFFER", "MLX_MAX_MB_PER_BUFFER")
UNKNOWN = "unknown"


def machine() -> Iterator[Fact]:
    """Chip, cores, architecture, and GPU."""
    known = sysctls()
    model = f", {known['hw.model']}" if "hw.model" in known else ""
    yield "chip", known.get("machdep.cpu.brand_string", _linux("/proc/cpuinfo", "model name")) + model
    kinds = [known.get(f"hw.perflevel{level}.physicalcpu", "") for level in (0, 1)]
    yield "CPU cores", f"{os.cpu_count()}" + (f": {kinds[0]} performance, {kinds[1]} efficiency" if all(kinds) else "")
    translated = known.get("sysctl.proc_translated") == "1"
    rosetta = ": this Python runs under Rosetta. Install an arm64 Python" if translated else ""
    yield "architecture of Python", platform.machine() + rosetta
    if sys.platform == "darwin":
        found = re.search(r'"gpu-core-count" = (\d+)', _output("ioreg", "-r", "-d", "1", "-c", "AGXAccelerator"))
        yield "GPU cores", found[1] if found else UNKNOWN
    import mlx.core as mx

    info = mx.device_info()
    yield (
        "MLX's device",
        f"{mx.default_device()}, {info.get('device_name', UNKNOWN)} ({info.get('architecture', UNKNOWN)})",
    )


def software() -> Iterator[Fact]:
    """Versions of the system, Python, and the libraries."""
    if sys.platform == "darwin":
        system = f"macOS {platform.mac_ver()[0]} ({sysctls().get('kern.osversion', UNKNOWN)})"
    else:
        system = f"{_linux('/etc/os-release', 'PRETTY_NAME', '=')}, {platform.platform()}"
    yield "system", system
    yield "Python", f"{platform.python_implementation()} {platform.python_version()}, {platform.python_compiler()}"
    yield "localai_shim", VERSION
    for name in LIBRARIES:
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if name not in BACKENDS:
                yield name, "not installed"
            continue
        built_for = re.findall(r"^Tag: (.*)$", found.read_text("WHEEL") or "", re.MULTILINE)
        yield name, f"{found.version} ({', '.join(built_for)})" if name.startswith("mlx") else found.version


def memory() -> Iterator[Fact]:
    """Memory, its limits, and how short it is."""
    from ..backends.machine import free_memory, total_memory

    yield "memory", show_bytes(total_memory())
    free = free_memory()
    yield "free", UNKNOWN if free is None else show_bytes(free)
    if sys.platform == "darwin":
        known = sysctls()
        level = known.get("kern.memorystatus_vm_pressure_level", UNKNOWN)
        yield "pressure", PRESSURE.get(level, level)
        yield "swap", known.get("vm.swapusage", UNKNOWN)
        wired = known.get("iogpu.wired_limit_mb", UNKNOWN)
        yield "iogpu.wired_limit_mb", f"{wired} (the system's default)" if wired == "0" else wired
    else:
        yield "pressure", _linux("/proc/pressure/memory", "some", " ")
        yield "swap", f"{_linux('/proc/meminfo', 'SwapTotal')}, free {_linux('/proc/meminfo', 'SwapFree')}"
    import mlx.core as mx

    info = mx.device_info()
    for name, key in (
        ("recommended working set", "max_recommended_working_set_size"),
        ("largest buffer", "max_buffer_length"),
    ):
        yield name, show_bytes(int(info[key])) if key in info else "MLX does not say on this device"


def variables() -> Iterator[Fact]:
    """Variables of MLX and of Apple's GPU driver. Only numbers are shown: other values may name files and hosts."""
    found = {name: value for name, value in sorted(os.environ.items()) if name.startswith(PREFIXES)}
    for name, value in found.items():
        yield name, value if re.fullmatch(r"\d+", value) else "set, and not shown since it is no number"
    if slowing := [name for name in SLOWING if name in found]:
        yield "warning", f"unset {' and '.join(slowing)}: with larger command buffers, each step may copy all KV caches"
    if not found:
        yield "none", "is set"


def sysctls() -> dict[str, str]:
    """Values of macOS's kernel by name. Names that it does not know are missing; on other systems all are."""
    if sys.platform != "darwin":
        return {}
    lines = (line.partition(": ") for line in _output("/usr/sbin/sysctl", *SYSCTLS).splitlines())
    return {name: value.strip() for name, separator, value in lines if separator}


def _output(*command: str) -> str:
    """Output of a command of the system; empty if it cannot be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _linux(path: str, name: str, separator: str = ":") -> str:
    """Value in one of the system's files of names and values."""
    try:
        lines = (line.partition(separator) for line in Path(path).read_text(encoding="utf-8").splitlines())
    except OSError:
        return UNKNOWN
    return next((value.strip().strip('"') for found, _, value in lines if found.strip() == name), UNKNOWN)


Section = Callable[[], Iterator[Fact]]
NAME_WIDTH = 30
_HOMES = re.compile(r"/(?:Users|home)/[^/\s'\":;,]+")


def write_report(console: Console) -> int:
    """Write all sections as they are done. The status is 1 if one of them failed."""
    failed = False
    with tempfile.TemporaryDirectory(prefix="localai_shim-") as folder:
        for name, section in _sections(Path(folder)):
            write(console, f"{name}\n", "bold")
            try:
                _write_facts(console, section())
            except Exception as error:
                failed = True
                _write_facts(console, [("failed", _shown(error))])
    return int(failed)


def _sections(folder: Path) -> Iterator[tuple[str, Section]]:
    yield "machine", machine
    yield "software", software
    yield "memory", memory
    yield "variables", variables
    yield "model", functools.partial(model_trials.make_model, folder, CHECKPOINT)
    yield "self-test", model_trials.self_test
    yield "tokens", functools.partial(model_trials.tokens, folder)
    yield "steps", functools.partial(model_trials.steps, folder)
    yield "chunks", functools.partial(model_trials.chunks, folder)
    yield "free buffers", functools.partial(model_trials.free_buffers, folder)


def _write_facts(console: Console, facts: Iterable[Fact]) -> None:
    for name, value in facts:
        write(console, f"  {name:{NAME_WIDTH}}  {redacted(one_line(value))}\n")


def _shown(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def redacted(text: str) -> str:
    """A text without the user's name, their folders, and the name of the machine."""
    for path, shown in _paths().items():
        text = text.replace(path, shown)
    text = _HOMES.sub("~", text)
    for name in _names():
        text = re.sub(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", "***", text)
    return text


def _paths() -> dict[str, str]:
    """The user's folders, longest first, and what is shown for them."""
    known = {tempfile.gettempdir(): "$TMPDIR", str(Path.home()): "~"}
    known |= {os.path.realpath(path): shown for path, shown in known.items()}
    return {path: known[path] for path in sorted(known, key=len, reverse=True) if path != "/"}


def _names() -> list[str]:
    """Names of the user and of the machine, longest first."""
    import getpass

    names = {platform.node(), platform.node().partition(".")[0]}
    with contextlib.suppress(ImportError, KeyError, OSError):  # a container's user may have none
        names.add(getpass.getuser())
    return sorted(names - {""}, key=len, reverse=True)

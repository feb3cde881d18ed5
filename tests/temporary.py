"""Temporary files of a run of the tests."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

KERNELS = Path(__file__).parents[1] / ".pytest_cache" / "mlx-kernels"
KERNEL_OPTIONS = ("-std=c++17", "-O3", "-Wall", "-fPIC", "-shared")  # MLX's
FINISHED_SECONDS = 2.0  # after which nobody writes a file any more that was not written meanwhile


def keep_in_one_folder() -> None:
    """Have what this process and those that it starts make in one folder, which goes with it.

    The folders of pytest itself stay where they are looked for.
    """
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="localai_shim-")
    os.chmod(folder, 0o711)  # some tests run a child as another user
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache")  # nothing is left in the user's own
    if sys.platform == "linux" and shutil.which("g++"):
        share_header()
    share_kernels()


def share_header() -> None:
    """Give MLX's kernels a precompiled header: g++ then takes 0.3 s for each instead of 1.5 s.

    A kernel includes "mlx/backend/cpu/compiled_preamble.h", which g++ seeks first, precompiled, in the kernel's own
    folder. It checks that its own version and its options are those that the header was compiled with, and reads the
    header itself otherwise.
    """
    mlx, name = find_spec("mlx"), "mlx/backend/cpu/compiled_preamble.h"
    assert mlx is not None and mlx.submodule_search_locations
    include = Path(mlx.submodule_search_locations[0], "include")
    shared = KERNELS / version("mlx") / f"{name}.gch"
    link = Path(tempfile.gettempdir(), "mlx", version("mlx"), "cpu", f"{name}.gch")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(shared)  # which may not be there yet
    if shared.exists() or "PYTEST_XDIST_WORKER" in os.environ:
        return
    shared.parent.mkdir(parents=True, exist_ok=True)
    part = shared.with_suffix(f".{os.getpid()}")
    compiling = f"g++ {' '.join(KERNEL_OPTIONS)} -I '{include}' -x c++-header '{include / name}' -o '{part}'"
    # In the background: tests are collected meanwhile.
    subprocess.run(["sh", "-c", f"({compiling} && mv '{part}' '{shared}') >/dev/null 2>&1 &"], check=True)


def share_kernels() -> None:
    """Take the kernels that MLX has compiled in other runs and in other workers, and leave them what it has here.

    On CPUs it compiles each with g++, and looks for it among the temporary files, of which each
    process has its own: it does not allow for another one that writes the same file.
    """
    own = Path(tempfile.gettempdir(), "mlx")
    for source, target in ((own, KERNELS), (KERNELS, own)):
        for kernel in source.rglob("*.so"):
            copy = target / kernel.relative_to(source)
            with suppress(OSError):  # the other end has taken it meanwhile
                if not copy.exists() and time.time() - kernel.stat().st_mtime > FINISHED_SECONDS:
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    part = copy.with_suffix(f".{os.getpid()}")
                    shutil.copy2(kernel, part)
                    os.replace(part, copy)

"""Temporary files of a run of the tests."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

KERNELS = Path(__file__).parents[1] / ".pytest_cache" / "mlx-kernels"
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
    share_kernels()


def share_kernels() -> None:
    """Take the kernels that MLX has compiled in other runs and in other workers, and leave them what it has here.

    On CPUs it compiles each with g++, which takes 0.8 s, and looks for it among the temporary files, of which each
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

"""Temporary files of a run of the tests."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile


def keep_in_one_folder() -> None:
    """Have what this process and those that it starts make in one folder, which goes with it.

    The folders of pytest itself stay where they are looked for.
    """
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="localai_shim-")
    os.chmod(folder, 0o711)  # some tests run a child as another user
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache")  # nothing is left in the user's own

"""Machines that the tests run on only in imitation: a Mac with Apple silicon, whose GPU is a CPU.

`TEST_MACHINE=metal` makes every process of pytest imitate one (`make test-metal`). Scripts that tests start run as they
are. It finds what code assumes about Linux and about CPUs; it says nothing about Metal's kernels.
"""

from __future__ import annotations

import os

ASKED_FOR = os.environ.get("TEST_MACHINE") == "metal"


def imitate() -> None:
    """Imitate the machine that TEST_MACHINE names, before any test is imported."""
    if ASKED_FOR:
        import localai_shim  # noqa: F401  before MLX, for which it finds a BLAS
        from tests.machines import mac, metal

        metal.imitate()
        mac.imitate()

"""Another machine's forms on this one: passes are filled up as on CUDA, and layers stay as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localai_shim.backends.cuda.forms import CudaForms
from localai_shim.backends.own_forms import Applied, OwnForms
from localai_shim.engine import ports


class FillingForms(CudaForms):
    """Those of CUDA, without the kernels for layers, which compute on CUDA only."""

    def _prepare(self, model: object, memory_limit: int | None) -> Applied:
        return {}


class TurningForms(OwnForms):
    """MLX's own, with one position for each token as on CUDA."""

    turned_from = staticmethod(CudaForms.turned_from)


def use_forms(monkeypatch: pytest.MonkeyPatch, forms: OwnForms) -> None:
    """Let models that are loaded from now on ask for these forms."""
    monkeypatch.setattr(ports, "_connected", replace(ports.host(), forms=lambda: forms))

"""The operations of a graph: what a GPU launches, whatever machine counts them."""

from __future__ import annotations

import io
import re
from collections import Counter

import mlx.core as mx
import pytest

from localai_shim.backends.x86 import rotary

_OPERATION = re.compile(r'label ?= ?"([^"]*)", shape=rectangle')


def operations(*arrays: mx.array) -> Counter[str]:
    """The operations that these arrays wait for, by name."""
    text = io.StringIO()
    mx.export_to_dot(text, *arrays)
    return Counter(_OPERATION.findall(text.getvalue()))


def fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have normalisation and rotary embeddings be one operation, as on a GPU; what they compute is another matter."""
    monkeypatch.setattr(mx.fast, "rms_norm", lambda x, *args, **kwargs: mx.round(x))
    for module in (mx.fast, rotary):
        monkeypatch.setattr(module, "rope", lambda x, *args, **kwargs: mx.abs(x))

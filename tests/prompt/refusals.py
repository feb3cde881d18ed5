"""What the readers of prompts refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from localai_shim.errors import BadRequest


def refusal(read: Callable[..., Any], *given: Any) -> BadRequest:
    """The error that reading this raises."""
    with pytest.raises(BadRequest) as caught:
        read(*given)
    return caught.value

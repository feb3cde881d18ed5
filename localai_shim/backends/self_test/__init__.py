"""Self-test of a device: operations that a model needs, compared with what NumPy computes of the same numbers.

The numbers are small multiples of 1/64, which every dtype holds exactly, so nothing is rounded before an operation.
What is allowed depends on the dtype and on NumPy's result. Faults of kernels are far larger than rounding: rows of
zeros, another row's numbers, keys that are left out.
"""

from __future__ import annotations

from .attention import Attend, check_attention, fused
from .operations import check_packed_products, check_products, check_rope, check_vocabulary
from .shape import Check, Shape

__all__ = ["Check", "Shape", "run"]


def run(shape: Shape, attend: Attend | None = None) -> list[Check]:
    """Test all operations of a shape on the default device.

    Args:
        shape: a model's.
        attend: attention as the model computes it; defaults to `mx.fast.scaled_dot_product_attention`.
    """
    attended = list(check_attention(shape, attend or fused).values())
    return [
        *attended,
        *check_products(shape),
        *check_packed_products(shape),
        *check_rope(shape),
        *check_vocabulary(shape),
    ]

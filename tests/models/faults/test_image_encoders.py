"""Positions of patches are interpolated as PyTorch does it."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from mlx_vlm.models import kernels

from localai_shim.models.faults.image_encoders import interpolate_cubic

ROW = mx.array([0.0, 1.0, 4.0, 2.0])
PYTORCH = [-0.08680558, 0.21875, 1.55208313, 3.76041675, 3.28125, 1.82638955]
"""`torch.nn.functional.interpolate(row, size=(1, 6), mode="bicubic")`"""


def test_neighbors_beyond_an_edge_are_those_at_the_edge() -> None:
    across = interpolate_cubic(ROW.reshape(1, 1, 1, 4), size=(1, 6))
    down = interpolate_cubic(ROW.reshape(1, 1, 4, 1), size=[6, 1])
    np.testing.assert_allclose(np.array(across).reshape(-1), PYTORCH, atol=1e-5)
    np.testing.assert_allclose(np.array(down).reshape(-1), PYTORCH, atol=1e-5)
    assert not np.allclose(np.array(kernels.bicubic_interpolate(ROW.reshape(1, 1, 1, 4), size=(1, 6)))[0, 0], PYTORCH)


def test_antialiased_and_aligned_images_are_resized_by_upstream() -> None:
    image = mx.random.normal((1, 3, 4, 5))
    for how in ({"antialias": True}, {"align_corners": True}):
        made = interpolate_cubic(image, (3, 8), **how)
        assert mx.array_equal(made, kernels.bicubic_interpolate(image, (3, 8), **how))
    assert interpolate_cubic(image, scale_factor=2).shape == (1, 3, 8, 10)

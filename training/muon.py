"""Optimisation: Muon for matrices, AdamW for the rest, and the average of the last weights."""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

MOMENTUM: Final = 0.95
COEFFICIENTS: Final = (3.4445, -4.7750, 2.0315)


def orthogonal(x: Tensor, steps: int = 5) -> Tensor:
    """The nearest orthogonal matrices of a stack, about, by Newton and Schulz."""
    a, b, c = COEFFICIENTS
    x = x.bfloat16() if x.is_cuda else x
    tall = x.size(-2) > x.size(-1)
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x


class Muon:
    """Momentum whose update is made orthogonal, for stacks of matrices."""

    def __init__(self, weights: Sequence[Tensor], decay: float) -> None:
        self.weights, self.decay = list(weights), decay
        self.momenta = [torch.zeros_like(weight) for weight in weights]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move the weights against their gradients."""
        for weight, momentum in zip(self.weights, self.momenta, strict=True):
            assert weight.grad is not None
            momentum.lerp_(weight.grad, 1 - MOMENTUM)
            ahead = weight.grad.lerp(momentum, MOMENTUM)
            scale = max(1.0, weight.size(-2) / weight.size(-1)) ** 0.5
            weight.mul_(1 - rate * self.decay).add_(orthogonal(ahead).to(weight.dtype), alpha=-rate * scale)
            weight.grad = None


class Average:
    """A running mean of weights."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.means = [torch.zeros_like(weight) for weight in weights]
        self.count = 0

    @torch.no_grad()
    def add(self, weights: Sequence[Tensor]) -> None:
        """Take the weights of this moment into the mean."""
        self.count += 1
        torch._foreach_lerp_(self.means, list(weights), 1 / self.count)

"""A batch's work in flight between two steps, as one value.

`Idle` -> `Queued` | `AwaitingHost` | `Verifying` when a step is launched. To finish one gives what it sampled, and what
is in flight then: the step that was built behind it, or `Idle`. A value is of the batch's present rows, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import mlx.core as mx
import numpy as np

from ..sampling.sampler import Sample, Sampler
from . import verify
from .forward import StepGraph, these
from .verify import Verifying

_async_eval: Callable[..., None] = mx.async_eval


@dataclass(slots=True)
class Idle:
    """Nothing: rows' last tokens are to be run next."""

    joined: bool = False
    """Rows have joined since the last step: they get their first tokens before anything is guessed or built ahead."""
    sizes: Sequence[int] = ()
    """Tokens of each row in the step that has just ended, by bucket, if it was one of several."""
    built: verify.VerifyGraph | None = None
    """A step of as many tokens again."""

    def launch(self) -> None:
        """Queue nothing."""

    def wait(self) -> None:
        """Return at once."""

    def take(self, indices: Sequence[int]) -> Idle:
        """The same."""
        return self


@dataclass(slots=True)
class Queued:
    """A step of one token each whose sample is queued on the device, too, and not read yet."""

    sample: Sample
    hidden: mx.array | None = None
    """`[rows, width]`: hidden states of the tokens that run, if they are wanted."""
    next: Queued | None = None
    """The step after that one, built and not queued yet."""

    def launch(self) -> None:
        _async_eval(*self.sample.arrays())

    def wait(self) -> None:
        mx.eval(*self.sample.arrays())

    def finish(self, sampler: Sampler) -> tuple[Sample, Idle | Queued]:
        """The sample, and what is to be in flight behind it."""
        return self.sample, Idle() if self.next is None else self.next

    def take(self, indices: Sequence[int]) -> Queued:
        """The same for these of the rows."""
        following = None if self.next is None else self.next.take(indices)
        return Queued(self.sample.take(indices), these(self.hidden, indices), following)


@dataclass(slots=True)
class AwaitingHost:
    """A step of one token each from whose logits the host is to sample."""

    logits: mx.array
    hidden: mx.array | None = None
    """`[rows, width]`: hidden states of the tokens that run, if they are wanted."""
    built: StepGraph | None = None
    """The step after these logits."""

    def launch(self) -> None:
        _async_eval(self.logits)

    def wait(self) -> None:
        mx.eval(self.logits)

    def finish(self, sampler: Sampler) -> tuple[Sample, Idle | AwaitingHost]:
        """The sample, and what is to be in flight behind it."""
        sample = sampler.sample(self.logits)
        return sample, Idle() if self.built is None else AwaitingHost(*self.built.run(np.maximum(sample.tokens, 0)))

    def take(self, indices: Sequence[int]) -> AwaitingHost:
        """The same for these of the rows."""
        built = None if self.built is None else self.built.take(indices)
        return AwaitingHost(self.logits[mx.array(list(indices))], these(self.hidden, indices), built)


InFlight: TypeAlias = Idle | Queued | AwaitingHost | Verifying

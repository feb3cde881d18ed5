"""Optimisation of a checkpoint with MLX."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_map
from mlx_lm import load
from mlx_lm.models.qwen3 import Model

from training.batches import Batch

REPORT_EVERY: Final = 200


@dataclass(frozen=True)
class Plan:
    """How to optimise.

    ``peak`` is the highest learning rate, reached after ``warmup`` steps or half of a shorter run; ``half`` says
    whether to compute in bfloat16.
    """

    steps: int
    peak: float
    warmup: int
    decay: float
    half: bool
    save_every: int


def load_model(folder: Path) -> Model:
    """The model of a checkpoint, in float32."""
    model, *_ = load(str(folder))
    model.set_dtype(mx.float32)
    assert isinstance(model, Model)
    return model


def save_weights(model: Model, folder: Path) -> None:
    """Writes ``model.safetensors`` in float16."""
    weights = {path: weight.astype(mx.float16) for path, weight in tree_flatten(model.parameters())}
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})


def loss_of(model: Model, half: bool, parameters: dict[str, Any], tokens: mx.array, taught: mx.array) -> mx.array:
    """The mean cross entropy, in nats, of the tokens that are taught."""
    model.update(tree_map(lambda weight: weight.astype(mx.bfloat16), parameters) if half else parameters)
    logits = model(tokens[:, :-1]).astype(mx.float32)
    losses = nn.losses.cross_entropy(logits, tokens[:, 1:])
    return mx.sum(losses * taught[:, 1:]) / mx.sum(taught[:, 1:])


def optimise(model: Model, batches: Iterator[Batch], held_out: list[Batch], plan: Plan, folder: Path) -> None:
    """Trains the model in place, saving and reporting as it goes."""
    warmup = max(1, min(plan.warmup, plan.steps // 2))
    ramp = optim.linear_schedule(0.0, plan.peak, warmup)
    fall = optim.cosine_decay(plan.peak, max(1, plan.steps - warmup), plan.peak * 0.01)
    schedule = optim.join_schedules([ramp, fall], [warmup])
    optimizer = optim.AdamW(learning_rate=schedule, betas=[0.9, 0.98], weight_decay=plan.decay)
    parameters = model.parameters()
    optimizer.init(parameters)
    loss_and_gradient = mx.value_and_grad(partial(loss_of, model, plan.half))
    state = [parameters, optimizer.state]

    @partial(mx.compile, inputs=state, outputs=state)
    def step(tokens: mx.array, taught: mx.array) -> mx.array:
        loss, gradients = loss_and_gradient(state[0], tokens, taught)
        gradients, _ = optim.clip_grad_norm(gradients, 1.0)
        state[0] = optimizer.apply_gradients(gradients, state[0])
        return loss

    started, losses, seen = time.perf_counter(), [], 0
    for number in range(1, plan.steps + 1):
        batch = next(batches)
        seen += batch.tokens.size
        losses.append(step(mx.array(batch.tokens), mx.array(batch.taught)))
        mx.async_eval(losses[-1], state)  # type: ignore[no-untyped-call]
        if number % REPORT_EVERY == 0 or number == plan.steps:
            mean, elapsed = mx.mean(mx.stack(losses)).item(), time.perf_counter() - started
            tests = [loss_of(model, False, state[0], mx.array(b.tokens), mx.array(b.taught)).item() for b in held_out]
            held = sum(tests) / len(tests)
            print(f"step {number} loss {mean:.4f} held out {held:.4f} tokens {seen:,} time {elapsed:.0f} s", flush=True)
            losses.clear()
        if number % plan.save_every == 0 or number == plan.steps:
            model.update(state[0])
            save_weights(model, folder)

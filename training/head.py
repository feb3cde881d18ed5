"""Trains an MTP head for a checkpoint with MLX: one more layer that guesses the token after the next one."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from localai_shim.backends.machine import require_backend
from localai_shim.builtin import CHECKPOINT
from training.batches import Batch, shard, training_batches
from training.registry import Split

FILE: Final = "mtp.safetensors"
BITS: Final = 8
GROUP: Final = 64
LENGTHS: Final = (96, 192, 448, 1024)
"""Tokens of the rows that are trained on; of longer ones the first."""
KEPT: Final = 0.6
"""Share of the states that are the head's own, as where the entries of right guesses stay."""
HELD_OUT_BATCHES: Final = 6
REPORTS: Final = 10


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m training.head", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help=f"folder that {FILE} is written to")
    parser.add_argument(
        "--checkpoint", type=Path, default=CHECKPOINT, help="the model (default: the one in the package)"
    )
    parser.add_argument("--seconds", type=float, default=100.0, help="of training (default: %(default)s)")
    parser.add_argument("--batch-tokens", type=int, default=2048, help="tokens a step (default: %(default)s)")
    parser.add_argument("--peak", type=float, default=2e-3, help="highest learning rate (default: %(default)s)")
    parser.add_argument("--depth", type=int, default=3, help="guesses behind each other (default: %(default)s)")
    parser.add_argument("--half", action="store_true", help="compute in bfloat16, for a GPU")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    workers = max(1, (os.cpu_count() or 2) - 1)
    parser.add_argument("--workers", type=int, default=workers, help="processes that make data (default: %(default)s)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the program."""
    options = parsed(arguments)
    require_backend()
    tokenizer_file = options.checkpoint / "tokenizer.json"
    held_out = shard(str(tokenizer_file), f"{options.seed}/held out", Split.HELD_OUT, options.batch_tokens)[
        :HELD_OUT_BATCHES
    ]
    batches = training_batches(tokenizer_file, options.seed, options.batch_tokens, options.workers)
    train(options, batches, held_out)


def train(options: argparse.Namespace, batches: Iterator[Batch], held_out: Sequence[Batch]) -> None:
    """Trains a head for some seconds, and writes it."""
    # Not at the top: every process that makes data imports this module and needs no MLX.
    import mlx.core as mx
    import mlx.nn as nn
    import mlx.optimizers as optim
    from mlx.utils import tree_flatten, tree_map
    from mlx_lm import load
    from mlx_lm.models.base import create_attention_mask
    from mlx_lm.models.qwen3 import ModelArgs, TransformerBlock

    model: Any = load(str(options.checkpoint))[0]
    model.set_dtype(mx.bfloat16 if options.half else mx.float32)
    model.freeze()
    args = ModelArgs.from_dict(json.loads((options.checkpoint / "config.json").read_text(encoding="utf-8")))

    class Head(nn.Module):  # type: ignore[misc]  # MLX's classes have no types
        """The layout of Qwen's heads: the names of its weights are those of their checkpoints."""

        def __init__(self) -> None:
            super().__init__()
            width = args.hidden_size
            self.pre_fc_norm_embedding = nn.RMSNorm(width, eps=args.rms_norm_eps)
            self.pre_fc_norm_hidden = nn.RMSNorm(width, eps=args.rms_norm_eps)
            self.fc = nn.Linear(2 * width, width, bias=False)
            self.layers = [TransformerBlock(args)]
            self.norm = nn.RMSNorm(width, eps=args.rms_norm_eps)

        def __call__(self, hidden: mx.array, embedded: mx.array) -> mx.array:
            """Hidden states of the tokens after those that are embedded, `[rows, k, width]`."""
            both = [self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)]
            x = self.fc(mx.concatenate(both, axis=-1))
            states: mx.array = self.norm(self.layers[0](x, create_attention_mask(x, None), None))
            return states

    head = Head()
    head.layers[0].update(model.model.layers[-1].parameters())
    head.norm.update(model.model.norm.parameters())
    width = args.hidden_size
    head.fc.weight = 0.02 * mx.random.normal((width, 2 * width)) + mx.eye(width, 2 * width, width)
    parameters: Any = tree_map(lambda weight: weight.astype(mx.float32), head.parameters())

    def partly_own(hidden: mx.array, embedded: mx.array) -> mx.array:
        """The model's states, of which some are the head's own for the same tokens."""
        own = mx.stop_gradient(head(hidden[:, :-1], embedded[:, 1:]))
        kept = mx.random.uniform(shape=(*own.shape[:2], 1)) < KEPT
        return mx.concatenate([hidden[:, :1], mx.where(kept, own, hidden[:, 1:])], axis=1)

    def each_depth(
        tokens: mx.array, taught: mx.array, *, keeps: bool = True
    ) -> Iterator[tuple[mx.array, mx.array, mx.array]]:
        """Yields the head's logits, the model's for the same tokens, and which of these count, by depth."""
        hidden = model.model(tokens)
        teacher = model.model.embed_tokens.as_linear(hidden).astype(mx.float32)
        embedded = model.model.embed_tokens(tokens)
        out = partly_own(hidden, embedded) if keeps else hidden
        for depth in range(1, options.depth + 1):
            out = head(out[:, :-1], embedded[:, depth:])
            # Of its place i, the input is token i + depth, and the guess is of what follows that one.
            logits = model.model.embed_tokens.as_linear(out).astype(mx.float32)
            follow = taught[:, depth + 1 :]
            yield logits[:, :-1], teacher[:, depth:-1], follow

    def loss_of(weights: Any, tokens: mx.array, taught: mx.array) -> mx.array:
        """The mean cross entropy of the head's guesses and the model's own distribution, in nats."""
        head.update(tree_map(lambda weight: weight.astype(mx.bfloat16), weights) if options.half else weights)
        parts: list[mx.array] = []
        for logits, teacher, counts in each_depth(tokens, taught):
            wanted = mx.stop_gradient(mx.softmax(teacher, axis=-1))
            losses = -mx.sum(wanted * nn.log_softmax(logits, axis=-1), axis=-1)
            parts.append(mx.sum(losses * counts) / mx.maximum(mx.sum(counts), 1))
        return mx.mean(mx.stack(parts))

    def agreement(*, keeps: bool) -> list[float]:
        """How often the likeliest tokens are the same, by depth: on held-out dialogues."""
        same, many = np.zeros(options.depth), np.zeros(options.depth)
        for batch in held_out:
            for depth, (logits, teacher, counts) in enumerate(each_depth(*_arrays(batch), keeps=keeps)):
                hits = (mx.argmax(logits, axis=-1) == mx.argmax(teacher, axis=-1)) & (counts > 0)
                same[depth] += np.array(hits).sum()
                many[depth] += np.array(counts > 0).sum()
        return [round(float(each), 3) for each in same / np.maximum(many, 1)]

    def _arrays(batch: Batch) -> tuple[mx.array, mx.array]:
        """Tokens in one of few shapes, because GPUs prepare for each new one, and which of them are taught."""
        length = next((each for each in LENGTHS if each >= batch.tokens.shape[1] - 1), LENGTHS[-1])
        rows = max(1, options.batch_tokens // length)
        padding = ((0, 0), (0, max(0, length + 1 - batch.tokens.shape[1])))
        tokens, taught = (np.pad(each[:rows, : length + 1], padding) for each in (batch.tokens, batch.taught))
        return mx.array(tokens.astype(np.int32)), mx.array(taught.astype(np.float32))

    optimizer: Any = optim.AdamW(learning_rate=options.peak, betas=[0.9, 0.98], weight_decay=0.01)
    optimizer.init(parameters)
    gradient: Callable[..., tuple[mx.array, Any]] = mx.value_and_grad(loss_of)
    state: list[Any] = [parameters, optimizer.state]

    # Not compiled: on a GPU that takes longer than it saves in a run of two minutes.
    def step(tokens: mx.array, taught: mx.array) -> mx.array:
        loss, gradients = gradient(state[0], tokens, taught)
        gradients, _ = optim.clip_grad_norm(gradients, 1.0)
        state[0] = optimizer.apply_gradients(gradients, state[0])
        return loss

    began, losses, seen, number, reported = time.perf_counter(), list[mx.array](), 0, 0, 0.0
    while (elapsed := time.perf_counter() - began) < options.seconds:
        batch, done = next(batches), elapsed / options.seconds
        optimizer.learning_rate = mx.array(options.peak * min(1.0, number / 50) * min(1.0, 1.25 * (1 - done) + 0.01))
        number, seen = number + 1, seen + batch.tokens.size
        losses.append(step(*_arrays(batch)))
        mx.async_eval(losses[-1], state)  # type: ignore[no-untyped-call]
        if elapsed > reported + options.seconds / REPORTS:
            reported = elapsed
            mean = mx.mean(mx.stack(losses)).item()
            losses.clear()
            print(f"step {number} loss {mean:.4f} tokens {seen:,} time {elapsed:.0f} s", flush=True)
    head.update(state[0])
    model.set_dtype(mx.float32)
    print("agreement by depth:", agreement(keeps=False), "and with kept guesses:", agreement(keeps=True))
    nn.quantize(head, GROUP, BITS)
    print(f"the same in {BITS} bits:", agreement(keeps=False), agreement(keeps=True))
    weights = {
        f"mtp.{name}": array.astype(mx.float16) if array.dtype == mx.float32 else array
        for name, array in tree_flatten(head.parameters())
    }
    options.out.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(options.out / FILE), weights, metadata={"format": "mlx"})


if __name__ == "__main__":
    main()

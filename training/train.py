"""Goes on training a checkpoint with MLX, on the machine at hand; `pretrain` makes one from nothing on a GPU."""

import argparse
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from localai_shim.backends.machine import require_backend
from localai_shim.builtin import CHECKPOINT
from training.batches import shard, training_batches
from training.registry import Split

HELD_OUT_BATCHES: Final = 4


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m training.train", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder that the checkpoint is written to")
    parser.add_argument(
        "--start", type=Path, default=CHECKPOINT, help="the checkpoint (default: the one in the package)"
    )
    parser.add_argument("--more", nargs="*", default=[], metavar="KIND", help="kinds that half of the dialogues are of")
    parser.add_argument("--steps", type=int, default=300, help="optimiser steps (default: %(default)s)")
    parser.add_argument("--batch-tokens", type=int, default=2048, help="tokens a step (default: %(default)s)")
    parser.add_argument("--peak", type=float, default=3e-4, help="highest learning rate (default: %(default)s)")
    parser.add_argument(
        "--warmup", type=int, default=30, help="steps up to it, half of all at most (default: %(default)s)"
    )
    parser.add_argument("--decay", type=float, default=0.0, help="weight decay (default: %(default)s)")
    parser.add_argument("--half", action="store_true", help="compute in bfloat16, for a GPU")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    parser.add_argument("--save-every", type=int, default=2000, metavar="STEPS", help="(default: %(default)s)")
    workers = max(1, (os.cpu_count() or 2) - 1)
    parser.add_argument("--workers", type=int, default=workers, help="processes that make data (default: %(default)s)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the program."""
    options = parsed(arguments)
    require_backend()
    # Not at the top: every process that makes data imports this module and needs no MLX.
    from training.optimise import Plan, load_model, optimise

    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    for path in options.start.iterdir():
        if path.suffix != ".safetensors":
            shutil.copyfile(path, folder / path.name)

    tokenizer_file = folder / "tokenizer.json"
    held_out = shard(str(tokenizer_file), f"{options.seed}/held out", Split.HELD_OUT, 4096)[:HELD_OUT_BATCHES]
    batches = training_batches(tokenizer_file, options.seed, options.batch_tokens, options.workers, tuple(options.more))
    plan = Plan(options.steps, options.peak, options.warmup, options.decay, options.half, options.save_every)
    optimise(load_model(options.start), batches, held_out, plan, folder)


if __name__ == "__main__":
    main()

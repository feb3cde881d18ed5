"""Trains the model with torch on a GPU, for a given time, from nothing or on from a saved state."""

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from queue import Queue
from random import Random
from threading import Thread
from typing import Final

import numpy as np
import torch
from torch import Tensor

from training.convert import load_weights, write_checkpoint, write_weights
from training.muon import Average, Muon
from training.network import (
    Attention,
    Network,
    Shape,
    after,
    before,
    flash_attention,
    loss_of,
    padded_attention,
    plain_attention,
)
from training.packing import IGNORED, write_shards
from training.tokenizer import save_tokenizer, train_tokenizer

LENGTH: Final = 65_536
PACKS_OF_SHARD: Final = 4
CONTEXT: Final = 4096
ENOUGH: Final = 64
TAUGHT: Final = 1 / 4
"""Share of a pack's places whose next token may be taught; a pack has a sixth, about."""


Taken = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int]


class Feed:
    """Packs of the shards that workers write: new ones first, else again one of those that are there."""

    def __init__(self, folder: Path, device: torch.device, seed: int) -> None:
        self.folder, self.device, self.rng = folder, device, Random(seed)
        self.seen: set[str] = set()
        self.pool: list[tuple[Tensor, Tensor, np.ndarray]] = []
        self.fresh: list[tuple[Tensor, Tensor, np.ndarray]] = []
        self.used = self.made = 0
        self.looked = 0.0

    def look(self) -> None:
        """Take what was written meanwhile."""
        self.looked = time.monotonic()
        for path in sorted(self.folder.glob("*.npz")):
            if path.name in self.seen:
                continue
            self.seen.add(path.name)
            with np.load(path) as data:
                ends = np.cumsum(data["sizes"])
                starts = np.split(data["starts"], ends[:-1])
                for tokens, wanted, places in zip(data["tokens"], data["wanted"], starts, strict=True):
                    self.fresh.append((torch.from_numpy(tokens), torch.from_numpy(wanted), places))
            path.unlink()
            if len(self.fresh) >= ENOUGH:
                break

    def take(self) -> Taken:
        """Tokens, taught places, the wanted tokens there and their weights, starts, positions, and the longest's length.

        A dialogue weighs as the root of its taught tokens: else long answers would drown those of one word.
        """
        if not self.fresh and (not self.pool or time.monotonic() - self.looked > 0.2):
            self.look()
            while not self.fresh and not self.pool:
                time.sleep(0.1)
                self.look()
        self.used += 1
        if self.fresh:
            pack = self.fresh.pop(self.rng.randrange(len(self.fresh)))
            self.pool.append(pack)
            self.made += 1
            if len(self.pool) > 8_000:
                self.pool.pop(self.rng.randrange(len(self.pool)))
        else:
            pack = self.rng.choice(self.pool)
        tokens, wanted, places = pack
        sizes = np.diff(places)
        positions = torch.from_numpy(np.arange(len(tokens)) - np.repeat(places[:-1], sizes))
        taught = torch.full((int(len(tokens) * TAUGHT),), -1)  # Of one size, so that one compiled function fits.
        found = (wanted >= 0).nonzero()[: len(taught), 0]
        taught[: len(found)] = found
        targets = torch.where(taught >= 0, wanted[taught].long(), IGNORED)
        dialogue = torch.bucketize(taught, torch.from_numpy(places[1:].astype(np.int64)), right=True)
        weights = torch.bincount(dialogue[: len(found)], minlength=len(places))[dialogue].clamp(min=1) ** -0.5
        weights = torch.where(taught >= 0, weights, 0.0)
        ids, where, taught, targets = (
            self.moved(one.to(torch.int64)) for one in (tokens, positions, taught.clamp(min=0), targets)
        )
        return ids, taught, targets, self.moved(weights), self.moved(torch.from_numpy(places)), where, int(sizes.max())

    def moved(self, values: Tensor) -> Tensor:
        """The values on the device, without waiting for them."""
        pinned = values.pin_memory() if self.device.type == "cuda" else values
        return pinned.to(self.device, non_blocking=True)

    def ahead(self, count: int) -> Iterator[Taken]:
        """Packs without end, of which a thread has some ready."""
        ready: Queue[Taken] = Queue(count)

        def fill() -> None:
            while True:
                ready.put(self.take())

        Thread(target=fill, daemon=True).start()
        while True:
            yield ready.get()


def rate_at(spent: float, warm: float, fall: float) -> float:
    """The share of the highest learning rate after a share of the time."""
    if spent < warm:
        return spent / warm
    return min(1.0, max(0.0, (1 - spent) / fall))


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m training.pretrain", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint and the state")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json to use (default: made anew)")
    parser.add_argument(
        "--shards", type=Path, default=Path("/tmp/shards"), help="scratch folder (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=420, help="how long to train (default: %(default)s)")
    parser.add_argument("--start", type=Path, metavar="FOLDER", help="go on from the weights of a checkpoint")
    parser.add_argument("--packs", type=int, default=3, help="packs of 65,536 tokens a step (default: %(default)s)")
    parser.add_argument("--length", type=int, default=LENGTH, help="tokens of a pack (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=Shape().layers, help="(default: %(default)s)")
    parser.add_argument("--matrix-rate", type=float, default=0.02, help="for Muon (default: %(default)s)")
    parser.add_argument("--other-rate", type=float, default=3e-3, help="for AdamW (default: %(default)s)")
    parser.add_argument("--fall", type=float, default=0.4, help="share of the time in which rates fall")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1), help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    parser.add_argument("--more", nargs="*", default=[], metavar="KIND", help="kinds that half of the dialogues are of")
    return parser.parse_args(arguments)


def workers(options: argparse.Namespace, tokenizer_file: Path) -> Iterator[multiprocessing.process.BaseProcess]:
    """Processes that write shards."""
    context = multiprocessing.get_context("spawn")
    for number in range(options.workers):
        seed = f"{options.seed}/{number}"
        work = (tokenizer_file, options.shards, seed, options.length, PACKS_OF_SHARD, options.more)
        process = context.Process(target=write_shards, args=work, daemon=True)
        process.start()
        yield process


def train(options: argparse.Namespace, feed: Feed, network: Network, device: torch.device) -> None:
    """Train for the time that is given, and leave the mean of the last weights in the network."""
    others = [network.embedding, network.norms, network.head_norms, network.last_norm]
    adam = torch.optim.AdamW(
        others, lr=options.other_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=device.type == "cuda"
    )
    muon = Muon(network.matrices(), decay=0.05)
    everything = list(network.parameters())
    ready = feed.ahead(2 * options.packs)
    average = Average(everything)
    compiled_loss = torch.compile(loss_of, dynamic=False) if device.type == "cuda" else loss_of
    number, losses, began, reported, high = 0, list[Tensor](), 0.0, 0.0, False
    while True:
        if number == 5:  # Compiling does not count.
            began = reported = time.monotonic()
        spent = 0.0 if number < 5 else (time.monotonic() - began) / options.seconds
        if spent >= 1:
            break
        share = rate_at(spent, 0.02, options.fall) if number >= 5 else 0.0
        if spent >= 1 - options.fall and not high:  # A later run may go on from here.
            high = True
            write_weights(network, options.out / "high.safetensors")
        packs = list(islice(ready, options.packs))
        total = torch.stack([weights.sum() for _, _, _, weights, *_ in packs]).sum().clamp(min=1)
        step_loss = torch.zeros((), device=device)
        for tokens, taught, wanted, weights, starts, positions, longest in packs:
            hidden = network(tokens, starts, positions, longest).index_select(0, taught)
            loss = compiled_loss(hidden, network.embedding, wanted, weights / total)
            loss.backward()
            step_loss += loss.detach()
        torch.nn.utils.clip_grad_norm_(everything, 1.0)
        muon.step(options.matrix_rate * share)
        for group in adam.param_groups:
            group["lr"] = options.other_rate * share
        adam.step()
        adam.zero_grad(set_to_none=True)
        losses.append(step_loss)
        number += 1
        if spent > 0.96 or (spent > 0.9 and number % 4 == 0):
            average.add(everything)
        if time.monotonic() - reported > 15 and number > 5:
            reported = time.monotonic()
            seconds = reported - began
            seen = (number - 5) * options.packs * options.length
            mean = torch.stack(losses).mean().item()
            losses.clear()
            print(f"{seconds:.0f} s step {number} loss {mean:.4f} rate {share:.2f} tokens {seen / 1e6:.0f} M "
                  f"({seen / seconds / 1e6:.2f} M/s) fresh {feed.made}/{feed.used}", flush=True)  # fmt: skip
    with torch.no_grad():
        if average.count:
            torch._foreach_copy_(everything, average.means)
    print(f"{number} steps, {number * options.packs * options.length / 1e6:.0f} M tokens, "
          f"mean of {average.count}", flush=True)  # fmt: skip


def checked_attention(shape: Shape, device: torch.device) -> Attention:
    """The kernel for dialogues in one line, once it does what attention one by one does; else padded rows."""
    starts = torch.tensor([0, 30, 41, 100], device=device, dtype=torch.int32)
    q, k, v = (
        torch.randn(100, shape.heads, shape.head, device=device, dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    )
    expected = plain_attention(q, k, v, starts, 59)
    slopes = torch.autograd.grad(expected.float().square().sum(), (q, k, v))
    for attend in (flash_attention, padded_attention):
        try:
            made = attend(q, k, v, starts, 59)
            found = torch.autograd.grad(made.float().square().sum(), (q, k, v))
        except (RuntimeError, NotImplementedError, TypeError) as error:
            print(f"{attend.__name__}: {error}", flush=True)
            continue
        off = max((a - b).abs().max().item() for a, b in zip((expected, *slopes), (made, *found), strict=True))
        print(f"{attend.__name__} differs by {off:.4f}", flush=True)
        if off < 0.1:
            return attend
    raise SystemExit("no attention kernel is right")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program."""
    options = parsed(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    options.shards.mkdir(parents=True, exist_ok=True)
    if options.tokenizer:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(options.tokenizer))
    else:
        tokenizer = train_tokenizer(options.seed, Shape().vocabulary)
    save_tokenizer(tokenizer, options.out, CONTEXT)
    helpers = list(workers(options, options.out / "tokenizer.json"))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    network = Network(Shape(tokenizer.get_vocab_size(), layers=options.layers), options.seed).to(device)
    if options.start:
        load_weights(network, options.start)
    if device.type == "cuda":
        network.attend = checked_attention(network.shape, device)
        network.before, network.after = torch.compile(before, dynamic=False), torch.compile(after, dynamic=False)
    try:
        train(options, Feed(options.shards, device, options.seed), network, device)
    finally:
        for helper in helpers:
            helper.terminate()
    write_checkpoint(network, tokenizer, options.out, CONTEXT)


if __name__ == "__main__":
    main()

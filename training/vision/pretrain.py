"""Trains the model that sees, with torch on a GPU, for a given time, from nothing or on from a saved state."""

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from random import Random
from shutil import copyfile
from threading import Thread
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from training.muon import Average, Muon
from training.pretrain import rate_at
from training.registry import Split
from training.vision.convert import load_weights, write_checkpoint, write_weights
from training.vision.dialogues import IMAGE
from training.vision.drawing import SIDE, draw, shown
from training.vision.network import Network, Shape, loss_of, text_layer, tower_layer
from training.vision.skills import CALLS, FOUR, ONE, TWO, Mix, sample
from training.vision.tokens import IGNORED, Encoder, save_tokenizer, shortened


@dataclass(frozen=True)
class Sort:
    """Rows of one size: the most pictures, tokens, the share of the steps, and what is in them."""

    pictures: int
    length: int
    share: float
    mix: Mix


SORTS: Final = (Sort(1, 224, 0.66, ONE), Sort(2, 288, 0.12, TWO), Sort(4, 448, 0.1, FOUR), Sort(4, 896, 0.12, CALLS))
CHUNK: Final = 256
WARM: Final = 2 * len(SORTS)
Rows = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int16], npt.NDArray[np.int16]]


def rows(encoder: Encoder, rng: Random, sort: Sort, count: int) -> Rows:
    """Pictures (rows, pictures, side, side, 3), token ids and the wanted ones (rows, length)."""
    pixels = np.zeros((count, sort.pictures, SIDE, SIDE, 3), np.uint8)
    ids, wanted = np.zeros((count, sort.length), np.int16), np.full((count, sort.length), IGNORED, np.int16)
    for i in range(count):
        dialogue = sample(rng, Split.TRAIN, sort.mix)
        tokens, after = shortened(encoder, dialogue, sort.length)
        for at, scene in enumerate(dialogue.scenes):
            pixels[i, at] = shown(draw(rng, scene))
        ids[i, : len(tokens)], wanted[i, : len(after)] = tokens, after
    return pixels, ids, wanted


def write_chunks(tokenizer: Path, folder: Path, seed: str) -> None:
    """Write rows without end, each file complete once its name ends in `.npz`; a worker process runs it."""
    encoder, rng, number = Encoder(tokenizer), Random(seed), 0
    while True:
        while len(os.listdir(folder)) > 400:
            time.sleep(0.1)
        [at] = rng.choices(range(len(SORTS)), [sort.share for sort in SORTS])
        pixels, ids, wanted = rows(encoder, rng, SORTS[at], CHUNK // SORTS[at].pictures)
        name = f"{at}-{seed.replace('/', '-')}-{number:05}"
        with (folder / f"{name}.part").open("wb") as file:
            np.savez(file, pixels=pixels, ids=ids, wanted=wanted)
        (folder / f"{name}.part").rename(folder / f"{name}.npz")
        number += 1


class Pool:
    """Rows on the device; new ones take the places of the oldest."""

    def __init__(self, sort: Sort, size: int, device: torch.device) -> None:
        length = sort.length
        self.pixels = torch.zeros(size, sort.pictures, SIDE, SIDE, 3, dtype=torch.uint8, device=device)
        self.ids = torch.zeros(size, length, dtype=torch.int16, device=device)
        self.wanted = torch.zeros(size, length, dtype=torch.int16, device=device)
        self.size, self.made = size, 0

    def add(self, pixels: Tensor, ids: Tensor, wanted: Tensor) -> None:
        """Put rows into the pool."""
        places = (torch.arange(len(ids), device=self.ids.device) + self.made).remainder(self.size)
        for mine, given in ((self.pixels, pixels), (self.ids, ids), (self.wanted, wanted)):
            mine[places] = given.to(mine.device, non_blocking=True)
        self.made += len(ids)

    def take(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Rows by chance: pixels (rows, pictures, ...), token ids and the wanted ones."""
        places = torch.randint(min(self.made, self.size), (count,), device=self.ids.device)
        return self.pixels[places], self.ids[places].long(), self.wanted[places].long()


class Feed:
    """Moves what workers write into the pools; a thread reads the files."""

    def __init__(self, folder: Path, pools: Sequence[Pool]) -> None:
        self.folder, self.pools = folder, pools
        self.ready: Queue[tuple[int, list[Tensor]]] = Queue(16)
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        pinned = self.pools[0].ids.is_cuda
        while True:
            for path in sorted(self.folder.glob("*.npz"), key=lambda one: one.stat().st_mtime)[:16]:
                with np.load(path) as data:
                    made = [torch.from_numpy(data[name]) for name in ("pixels", "ids", "wanted")]
                path.unlink()
                self.ready.put((int(path.name[0]), [one.pin_memory() for one in made] if pinned else made))
            time.sleep(0.02)

    def move(self, most: int) -> None:
        """Put at most so many files' rows into the pools."""
        for _ in range(min(most, self.ready.qsize())):
            at, rows = self.ready.get()
            self.pools[at].add(*rows)


def on_tower(pixels: Tensor, kind: torch.dtype) -> Tensor:
    """Pixels in -1 to 1, with noise and a little more or less light, (pictures, 3, side, side)."""
    x = pixels.flatten(0, 1).permute(0, 3, 1, 2).float() / 127.5 - 1
    strength = torch.rand(len(x), 1, 1, 1, device=x.device).square() * 0.08
    light = torch.rand(len(x), 1, 1, 1, device=x.device) * 0.04 - 0.02
    return (x + torch.randn_like(x) * strength + light).clamp(-1, 1).to(kind)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m training.vision.pretrain", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/pictures"), help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=420, help="how long to train (default: %(default)s)")
    parser.add_argument(
        "--start", type=Path, metavar="FILE", help="go on from these weights, with tokenizer.json beside them"
    )
    parser.add_argument("--rows", type=int, default=512, help="of a step (default: %(default)s)")
    parser.add_argument("--pool", type=int, default=400_000, help="rows on the device (default: %(default)s)")
    parser.add_argument("--matrix-rate", type=float, default=0.02, help="for Muon (default: %(default)s)")
    parser.add_argument("--other-rate", type=float, default=2e-3, help="for AdamW (default: %(default)s)")
    parser.add_argument("--fall", type=float, default=0.4, help="share of the time in which rates fall")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1), help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    return parser.parse_args(arguments)


def workers(options: argparse.Namespace) -> Iterator[Any]:
    """Processes that draw."""
    context = multiprocessing.get_context("spawn")
    for number in range(options.workers):
        work = (options.out / "tokenizer.json", options.scratch, f"{options.seed}/{number}")
        process = context.Process(target=write_chunks, args=work, daemon=True)
        process.start()
        yield process


Step = Callable[[Pool, int], Tensor]


def step_of(network: Network, image: int, device: torch.device) -> Step:
    """A function that computes the loss of rows of a pool."""
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    loss = torch.compile(loss_of, dynamic=False) if device.type == "cuda" else loss_of

    def step(pool: Pool, count: int) -> Tensor:
        pixels, ids, wanted = pool.take(count)
        features = network.features(on_tower(pixels, kind))
        hidden = network(ids, features.reshape(count, -1, features.shape[-1]), image)
        made: Tensor = loss(hidden, network.logits, wanted)
        return made

    return step


def train(options: argparse.Namespace, network: Network, pools: Sequence[Pool], feed: Feed, step: Step) -> None:
    """Train for the time that is given, and leave the mean of the last weights in the network."""
    matrices = network.matrices()
    known = {id(one) for one in matrices}
    everything = list(network.parameters())
    others = [one for one in everything if id(one) not in known]
    fused = everything[0].is_cuda
    adam = torch.optim.AdamW(others, lr=options.other_rate, betas=(0.9, 0.97), weight_decay=0.0, fused=fused)
    muon, average, losses, number = Muon(matrices, decay=0.05), Average(everything), list[Tensor](), 0
    rng, shares = Random(options.seed), [sort.share for sort in SORTS]
    began = reported = 0.0
    high = False
    while True:
        if number == WARM:  # Compiling does not count.
            began = reported = time.monotonic()
        spent = (time.monotonic() - began) / options.seconds if number >= WARM else 0.0
        if spent >= 1:
            break
        share = rate_at(spent, 0.02, options.fall) if number >= WARM else 0.0
        if spent >= 1 - options.fall and not high:  # A later run may go on from here.
            high = True
            write_weights(network, options.out / "high.safetensors")
        feed.move(3)
        # All sorts are compiled first.
        [at] = [number % len(SORTS)] if number < WARM else rng.choices(range(len(SORTS)), shares)
        loss = step(pools[at], options.rows // SORTS[at].pictures)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        muon.step(options.matrix_rate * share)
        for group in adam.param_groups:
            group["lr"] = options.other_rate * share
        adam.step()
        adam.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        number += 1
        if spent > 0.96 or (spent > 0.9 and number % 4 == 0):
            average.add(everything)
        if number > WARM and time.monotonic() - reported > 15:
            reported = time.monotonic()
            mean = torch.stack(losses).mean().item()
            losses.clear()
            made = [pool.made for pool in pools]
            print(f"{reported - began:.0f} s step {number} loss {mean:.4f} rate {share:.2f} fresh {made}", flush=True)
    with torch.no_grad():
        if average.count:
            torch._foreach_copy_(everything, average.means)
    print(f"{number} steps, mean of {average.count}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program."""
    options = parsed(arguments)
    for folder in (options.out, options.scratch):
        folder.mkdir(parents=True, exist_ok=True)
    save_tokenizer(options.out)
    if options.start:
        copyfile(options.start.with_name("tokenizer.json"), options.out / "tokenizer.json")
    table = Encoder(options.out / "tokenizer.json").table
    helpers = list(workers(options))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    network = Network(Shape(len(table)), options.seed).to(device)
    print(f"{sum(one.numel() for one in network.parameters())} weights, vocabulary {len(table)}", flush=True)
    if options.start:
        load_weights(network, options.start)
    if device.type == "cuda":
        network.tower_layer = torch.compile(tower_layer, dynamic=False)
        network.layer = torch.compile(text_layer, dynamic=False)
    pools = [Pool(sort, int(options.pool * min(1, 1.5 * sort.share) / sort.pictures), device) for sort in SORTS]
    feed = Feed(options.scratch, pools)
    try:
        while min(pool.made for pool in pools) < CHUNK // 2:
            time.sleep(0.2)
            feed.move(16)
        train(options, network, pools, feed, step_of(network, table[IMAGE], device))
    finally:
        for helper in helpers:
            helper.terminate()
    write_checkpoint(network, options.out, table)


if __name__ == "__main__":
    main()

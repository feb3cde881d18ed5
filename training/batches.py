"""Dialogues as batches of token ids, made by worker processes in a fixed order."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from training.dialogues import either
from training.packing import Encoder, marked, taught_pieces
from training.registry import Split

LENGTHS: Final = (48, 64, 80, 96, 128, 160, 192, 256, 320, 448, 640, 1024, 1536, 2048, 3072, 4096)
TOKENS_PER_DIALOGUE: Final = 5


@dataclass(frozen=True)
class Batch:
    """Rows of one dialogue each.

    ``tokens``: uint16, (rows, length + 1), padded on the right. ``taught``: bool, the same shape, the tokens that the
    model has to predict.
    """

    tokens: npt.NDArray[np.uint16]
    taught: npt.NDArray[np.bool_]


Row = tuple[list[int], list[bool]]


@cache
def encoder_of(tokenizer_file: str) -> Encoder:
    """The tokenizer of a file, with the pieces that this process has met."""
    return Encoder(Tokenizer.from_file(tokenizer_file))


def rows(encoder: Encoder, rng: Random, split: Split, dialogues: int, more: Sequence[str]) -> list[Row]:
    """Token ids of dialogues, and for each token whether the model should write it."""
    return [marked(encoder, taught_pieces(rng, *either(rng, split, more))) for _ in range(dialogues)]


def padded(group: Sequence[Row], length: int) -> Batch:
    """Rows of at most ``length + 1`` tokens as one batch."""
    tokens = np.zeros((len(group), length + 1), dtype=np.uint16)
    taught = np.zeros((len(group), length + 1), dtype=np.bool_)
    for index, (ids, marks) in enumerate(group):
        tokens[index, : len(ids)] = ids
        taught[index, : len(ids)] = marks
    return Batch(tokens, taught)


def grouped(all_rows: Sequence[Row], batch_tokens: int) -> list[Batch]:
    """Full batches of ``batch_tokens`` tokens, padding included; rows too few to fill one go to the next length."""
    batches: list[Batch] = []
    waiting = deque(sorted(all_rows, key=lambda row: len(row[0])))
    carried: list[Row] = []
    for length in LENGTHS:
        while waiting and len(waiting[0][0]) <= length + 1:
            carried.append(waiting.popleft())
        size = max(1, batch_tokens // length)
        while len(carried) >= size:
            batches.append(padded(carried[-size:], length))
            del carried[-size:]
    return batches


def shard(tokenizer_file: str, seed: str, split: Split, batch_tokens: int, more: Sequence[str] = ()) -> list[Batch]:
    """Some batches in random order; the same arguments always give the same ones."""
    rng = Random(seed)
    encoder = encoder_of(tokenizer_file)
    batches = grouped(rows(encoder, rng, split, batch_tokens // TOKENS_PER_DIALOGUE, more), batch_tokens)
    rng.shuffle(batches)
    return batches


def training_batches(
    tokenizer_file: Path, seed: int, batch_tokens: int, workers: int, more: Sequence[str] = ()
) -> Iterator[Batch]:
    """Batches without end, in an order that does not depend on ``workers``."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:

        def submit(number: int) -> Future[list[Batch]]:
            return pool.submit(shard, str(tokenizer_file), f"{seed}/{number}", Split.TRAIN, batch_tokens, more)

        numbers = count()
        pending = deque(submit(number) for number in islice(numbers, 3 * workers))
        try:
            while True:
                yield from pending.popleft().result()
                pending.append(submit(next(numbers)))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

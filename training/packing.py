"""Dialogues as token ids, packed one behind the other without padding, made by worker processes in a fixed order."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt
import regex
from tokenizers import Tokenizer

from training.chat import END_OF_TEXT, SPECIAL_TOKENS, completion_text, pieces
from training.dialogues import either
from training.forced import forced_pieces
from training.registry import Dialogue, Kind, Split, answer_of, thought_of
from training.tokenizer import PIECES

LONGEST: Final = 4096
CACHED_PIECES: Final = 400_000
IGNORED: Final = -100

Ids = list[int]
Row = tuple[Ids, Ids]


def taught_pieces(rng: Random, kind: Kind, dialogue: Dialogue) -> list[tuple[str, bool]]:
    """The whole text of a dialogue, in pieces that the model should write or not."""
    answer = rng.choice(dialogue.answers)
    if dialogue.raw is not None:
        return [(dialogue.raw, False), (answer + END_OF_TEXT, True)]
    thinking = rng.random() < kind.thinks
    before = pieces(dialogue.messages, dialogue.tools, thinking=thinking, taught=dialogue.taught)
    written = answer_of(dialogue, answer, thinking=thinking)
    completion = completion_text(written, thought_of(kind, dialogue), thinking=thinking)
    if not dialogue.forced:
        return [*before, (completion, True)]
    opening, _, end = completion.rpartition(written)
    return [*before, (opening, True), *forced_pieces(written), (end, True)]


class Encoder:
    """The tokenizer with a table of the pieces of text that it has met; several times as fast as without."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab()
        self.special = {token: vocabulary[token] for token in SPECIAL_TOKENS}
        self.split = regex.compile("(" + "|".join(map(regex.escape, SPECIAL_TOKENS)) + ")").split
        self.find = regex.compile(PIECES).findall
        self.known: dict[str, Ids] = {}

    def __call__(self, text: str) -> Ids:
        """Token ids of a text that may hold special tokens."""
        ids: Ids = []
        for part in self.split(text):
            if part in self.special:
                ids.append(self.special[part])
                continue
            for piece in self.find(part):
                found = self.known.get(piece)
                if found is None:
                    found = self.tokenizer.encode(piece, add_special_tokens=False).ids
                    if len(self.known) < CACHED_PIECES:
                        self.known[piece] = found
                ids += found
        return ids


def marked(encoder: Encoder, parts: Sequence[tuple[str, bool]]) -> tuple[Ids, list[bool]]:
    """Token ids, and for each whether the model should write it."""
    ids: Ids = []
    marks: list[bool] = []
    for text, taught in parts:
        more = encoder(text)
        ids += more
        marks += [taught] * len(more)
    return ids, marks


def row(encoder: Encoder, parts: Sequence[tuple[str, bool]]) -> Row:
    """Token ids, and for each the next one where the model should write it."""
    ids, marks = marked(encoder, parts)
    wanted = [after if mark else IGNORED for after, mark in zip(ids[1:], marks[1:], strict=True)]
    return ids[:-1], wanted


@dataclass(frozen=True)
class Pack:
    """Dialogues in one line of a fixed length.

    ``tokens`` and ``wanted`` are int16 of that length; ``starts`` are the places at which dialogues begin, and the end.
    """

    tokens: npt.NDArray[np.int16]
    wanted: npt.NDArray[np.int16]
    starts: npt.NDArray[np.int32]


def packs(encoder: Encoder, rng: Random, split: Split, length: int, count: int, more: Sequence[str] = ()) -> list[Pack]:
    """``count`` packs of ``length`` tokens; the last dialogue of each is cut."""
    made: list[Pack] = []
    for _ in range(count):
        ids: Ids = []
        wanted: Ids = []
        starts: list[int] = []
        while len(ids) < length:
            tokens, after = row(encoder, taught_pieces(rng, *either(rng, split, more)))
            if len(tokens) <= LONGEST:
                starts.append(len(ids))
                ids += tokens
                wanted += after
        line = np.array(ids[:length], np.int16), np.array(wanted[:length], np.int16)
        made.append(Pack(*line, np.array([*starts, length], np.int32)))
    return made


def write_shards(
    tokenizer_file: Path, folder: Path, seed: str, length: int, count: int, more: Sequence[str] = ()
) -> None:
    """Write packs without end into files, each complete once its name ends in `.npz`; a worker process runs it."""
    encoder, rng = Encoder(Tokenizer.from_file(str(tokenizer_file))), Random(seed)
    number = 0
    while True:
        made = packs(encoder, rng, Split.TRAIN, length, count, more)
        name = f"{seed.replace('/', '-')}-{number:05}"
        starts = np.concatenate([one.starts for one in made])
        sizes = np.array([len(one.starts) for one in made], np.int32)
        partial = folder / f"{name}.part"
        with partial.open("wb") as file:
            np.savez(file, tokens=np.stack([one.tokens for one in made]), wanted=np.stack([one.wanted for one in made]),
                     starts=starts, sizes=sizes)  # fmt: skip
        partial.rename(folder / f"{name}.npz")
        number += 1

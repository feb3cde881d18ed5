"""Held-out accuracy of a network in torch, skill by skill, on the device that trained it."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training.registry import Split
from training.vision.convert import load_weights
from training.vision.dialogues import IMAGE
from training.vision.drawing import SIDE, Pixels, draw, shown
from training.vision.network import Network, Shape
from training.vision.skills import SKILLS
from training.vision.tokens import END, IMAGE_TOKENS, Encoder, prompt_of


@dataclass(frozen=True)
class Case:
    """A held-out prompt with its pictures, and the answer."""

    skill: str
    prompt: str
    pictures: list[Pixels]
    answer: str


def some(work: tuple[str, int, int]) -> list[Case]:
    """Held-out questions of a skill."""
    skill, seed, count = work
    rng, made = Random(f"{skill}/{seed}"), list[Case]()
    for _ in range(count):
        dialogue = SKILLS[skill](rng, Split.HELD_OUT)
        prompt, answer = prompt_of(dialogue)
        made.append(Case(skill, prompt, [shown(draw(rng, scene)) for scene in dialogue.scenes], answer))
    return made


@torch.no_grad()  # type: ignore[untyped-decorator]
def answers(network: Network, encoder: Encoder, cases: Sequence[Case], most: int, kind: torch.dtype) -> list[list[int]]:
    """The token ids that follow each prompt, greedily, with the one that ends them."""
    device = network.embedding.device
    image, end = encoder.table[IMAGE], encoder.table[END]
    prompts = [encoder(case.prompt) for case in cases]
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    ids = torch.zeros(len(cases), int(lengths.max()) + most, dtype=torch.int64)
    pixels = np.zeros((len(cases), max(1, *(len(case.pictures) for case in cases)), SIDE, SIDE, 3), np.uint8)
    for i, (case, prompt) in enumerate(zip(cases, prompts, strict=True)):
        ids[i, : len(prompt)] = torch.tensor(prompt)
        for at, picture in enumerate(case.pictures):
            pixels[i, at] = picture
    ids = ids.to(device)
    x = torch.from_numpy(pixels).to(device).flatten(0, 1).permute(0, 3, 1, 2).to(kind) / 127.5 - 1
    features = network.features(x).view(len(cases), -1, network.shape.width)
    assert features.shape[1] % IMAGE_TOKENS == 0
    rows, made = torch.arange(len(cases), device=device), list[Tensor]()
    finished = torch.zeros(len(cases), dtype=torch.bool, device=device)
    for step in range(most):
        hidden = network(ids[:, : int(lengths.max()) + step], features, image)[rows, lengths + step - 1]
        chosen = F.linear(hidden, network.logits.to(kind)).float().argmax(-1)
        ids[rows, lengths + step] = chosen
        made.append(chosen)
        finished |= chosen == end
        if bool(finished.all()):
            break
    found: list[list[int]] = torch.stack(made, 1).tolist()
    return [row[: row.index(end) + 1] if end in row else row for row in found]


def text_of(encoder: Encoder, ids: Sequence[int]) -> str:
    """The text of token ids."""
    entries = {at: entry for entry, at in encoder.table.items()}
    return "".join(entries[one] for one in ids).replace("Ġ", " ").replace("Ċ", "\n").removesuffix(END)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of a folder's checkpoint, the weakest skill first, and some of its mistakes."""
    parser = argparse.ArgumentParser(prog="python -m training.vision.quick", description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--count", type=int, default=100, help="questions of each skill (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    parser.add_argument("--show", type=int, default=3, help="mistakes to show of each skill (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=128, help="prompts at a time (default: %(default)s)")
    parser.add_argument("--most", type=int, default=64, help="tokens of an answer (default: %(default)s)")
    options = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder = Encoder(options.checkpoint / "tokenizer.json")
    network = Network(Shape(len(encoder.table)))
    load_weights(network, options.checkpoint / "model.safetensors")
    network = network.to(device)
    with get_context("spawn").Pool() as pool:
        made = pool.map(some, [(skill, options.seed, options.count) for skill in SKILLS], chunksize=1)
    cases = sorted((case for one in made for case in one), key=lambda case: (len(case.pictures), len(case.prompt)))
    right: dict[str, list[bool]] = {skill: [] for skill in SKILLS}
    wrong: dict[str, list[str]] = {skill: [] for skill in SKILLS}
    for start in range(0, len(cases), options.batch):
        batch = cases[start : start + options.batch]
        for case, ids in zip(batch, answers(network, encoder, batch, options.most, torch.float32), strict=True):
            good = ids == encoder(case.answer + END)
            right[case.skill].append(good)
            if not good:
                wrong[case.skill].append(f"{case.prompt[-160:]!r}\n      {text_of(encoder, ids)!r} not {case.answer!r}")
    shares = {skill: sum(goods) / len(goods) for skill, goods in right.items()}
    for skill in sorted(shares, key=lambda one: shares[one]):
        print(f"| {skill} | {shares[skill]:.1%} |")
        for text in wrong[skill][: options.show]:
            print(f"   {text}")
    print(f"mean of {len(shares)}: {sum(shares.values()) / len(shares):.1%}", flush=True)


if __name__ == "__main__":
    main()

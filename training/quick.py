"""Held-out accuracy of a network in torch, skill by skill, on the device that trained it."""

import sys
from multiprocessing import get_context
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

import torch
from tokenizers import Tokenizer

from training.answers import answers
from training.chat import END_OF_TEXT, IM_END, prompt_text
from training.convert import load_network
from training.dialogues import COMPARED, sample
from training.packing import Encoder
from training.registry import REGISTRY, Dialogue, Kind, Split, answer_of

BATCH: Final = 512
LONGEST: Final = 320


def some(work: tuple[str, int]) -> list[Dialogue]:
    """Held-out dialogues of a kind."""
    name, count = work
    rng = Random(f"1/{name}")
    return [sample(rng, Split.HELD_OUT, REGISTRY.kinds[name]) for _ in range(count)]


def held_out(count: int, thinking: bool) -> list[tuple[Kind, Dialogue]]:
    """Held-out dialogues of every kind but the free ones, of which any answer may be right."""
    kinds = [kind for kind in COMPARED if not thinking or kind.thinks > 0.4]
    with get_context("spawn").Pool() as pool:
        made = pool.map(some, [(kind.name, count) for kind in kinds], chunksize=1)
    return [(kind, one) for kind, dialogues in zip(kinds, made, strict=True) for one in dialogues]


def main() -> None:
    """Print the table of the checkpoint in the folder that is given, and mistakes after it."""
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    network = load_network(folder).to(device)
    encoder = Encoder(tokenizer)
    ends = [tokenizer.token_to_id(IM_END), tokenizer.token_to_id(END_OF_TEXT)]
    began = monotonic()
    for thinking in (False, True):
        cases = held_out(count, thinking)
        texts = [
            one.raw if one.raw is not None else prompt_text(one.messages, one.tools, thinking=thinking)
            for _, one in cases
        ]
        prompts = [encoder(text) for text in texts]
        order = sorted(range(len(cases)), key=lambda at: len(prompts[at]))
        written: dict[int, str] = {}
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            made = answers(network, [prompts[at] for at in rows], ends, LONGEST)
            written.update(
                {at: tokenizer.decode(ids, skip_special_tokens=False) for at, ids in zip(rows, made, strict=True)}
            )
        right: dict[str, list[bool]] = {}
        wrong: dict[str, list[str]] = {}
        for at, (kind, one) in enumerate(cases):
            text = written[at].rpartition("</think>\n\n")[2]
            good = text in [answer_of(one, answer, thinking=thinking) for answer in one.answers]
            right.setdefault(kind.name, []).append(good)
            if not good:
                wrong.setdefault(kind.name, []).append(
                    f"{texts[at][-400:]!r}\n   wrote {text!r}\n   right {one.answers[0]!r}"
                )
        print(f"thinking {thinking}, {monotonic() - began:.0f} s")
        shares = {name: sum(goods) / len(goods) for name, goods in right.items()}
        for name in sorted(shares, key=lambda one: shares[one]):
            print(f"| {name} | {shares[name]:.1%} |")
        print(f"mean of {len(shares)}: {sum(shares.values()) / len(shares):.1%}", flush=True)
        (folder / f"mistakes-{'thinking' if thinking else 'plain'}.txt").write_text(
            "\n".join(f"{name}: {text}" for name, items in wrong.items() for text in items[:12])
        )


if __name__ == "__main__":
    main()

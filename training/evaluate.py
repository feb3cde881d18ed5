"""Greedy accuracy of a checkpoint on held-out dialogues, kind by kind."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from localai_shim.backends.machine import require_backend
from localai_shim.builtin import CHECKPOINT
from training.chat import prompt_text
from training.dialogues import COMPARED, sample
from training.registry import Dialogue, Kind, Split, answer_of

LONGEST_ANSWER = 320
BATCH_ROWS = 64


@dataclass(frozen=True)
class Case:
    """A dialogue put to the model, and what it wrote."""

    dialogue: Dialogue
    written: str

    @property
    def right(self) -> bool:
        """Whether the text after any thought is one of the accepted answers, character by character."""
        thought, _, text = self.written.rpartition("</think>\n\n")
        return text in [answer_of(self.dialogue, answer, thinking=bool(thought)) for answer in self.dialogue.answers]


@dataclass
class Report:
    """Cases by kind."""

    cases: dict[str, list[Case]] = field(default_factory=dict[str, list[Case]])

    def accuracy(self, name: str) -> float:
        """The share of right answers for a kind."""
        cases = self.cases[name]
        return sum(case.right for case in cases) / len(cases)

    def overall(self) -> float:
        """The mean of the kinds' accuracies."""
        return sum(map(self.accuracy, self.cases)) / len(self.cases)


class Answerer:
    """A checkpoint that answers prompts greedily, in batches and in float32."""

    def __init__(self, folder: Path) -> None:
        require_backend()
        # Not at the top: OpenBLAS has to be loaded before MLX.
        import mlx.core as mx
        from mlx_lm import load

        model, tokenizer, *_ = load(str(folder))
        self.model: Any = model
        self.tokenizer: Any = tokenizer
        # MLX multiplies float16 matrices slowly on a CPU.
        self.model.set_dtype(mx.float32)

    def prompt_ids(self, dialogue: Dialogue, *, thinking: bool) -> list[int]:
        """The token ids of a prompt."""
        text = dialogue.raw
        if text is None:
            text = prompt_text(dialogue.messages, dialogue.tools, thinking=thinking)
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def answer(self, dialogues: Sequence[Dialogue], *, thinking: bool = False) -> list[Case]:
        """What the model writes for each dialogue."""
        from mlx_lm import batch_generate

        prompts = [self.prompt_ids(dialogue, thinking=thinking) for dialogue in dialogues]
        made = batch_generate(
            self.model,
            self.tokenizer,
            prompts,
            max_tokens=LONGEST_ANSWER,
            completion_batch_size=BATCH_ROWS,
            prefill_batch_size=BATCH_ROWS,
        )
        return [Case(dialogue, text) for dialogue, text in zip(dialogues, made.texts, strict=True)]


def drawn(kind: Kind, seed: int, count: int) -> list[Dialogue]:
    """Held-out dialogues of a kind."""
    rng = Random(f"{seed}/{kind.name}")
    return [sample(rng, Split.HELD_OUT, kind) for _ in range(count)]


def evaluate(answerer: Answerer, kinds: Iterable[Kind], count: int, seed: int, *, thinking: bool = False) -> Report:
    """``count`` held-out dialogues of each kind."""
    chosen = [kind for kind in kinds if not (thinking and kind.name == "plain_text")]
    dialogues = [dialogue for kind in chosen for dialogue in drawn(kind, seed, count)]
    cases = answerer.answer(dialogues, thinking=thinking)
    return Report({kind.name: cases[index * count : (index + 1) * count] for index, kind in enumerate(chosen)})


def table(report: Report) -> str:
    """The report as a Markdown table, the weakest kinds first; free kinds are not compared and not in it."""
    content = {kind.name: kind.content for kind in COMPARED}
    lines = ["| kind | content | accuracy |", "| --- | --- | --- |"]
    for name in sorted(report.cases, key=report.accuracy):
        lines.append(f"| {name} | {content[name]} | {report.accuracy(name):.1%} |")
    for group in ("open", "wording", "closed"):
        accuracies = [report.accuracy(name) for name in report.cases if content[name] == group]
        if accuracies:
            lines.append(f"| mean of {len(accuracies)} kinds | {group} | {sum(accuracies) / len(accuracies):.1%} |")
    return "\n".join([*lines, f"| mean of all {len(report.cases)} kinds | | {report.overall():.1%} |"])


def mistakes(report: Report) -> str:
    """The wrong answers, with what was asked and what was expected."""
    wrong = [(name, case) for name, cases in report.cases.items() for case in cases if not case.right]
    return "\n".join(
        f"{name}: {case.dialogue.raw or case.dialogue.messages[-1]['content']!r}\n"
        f"  wrote {case.written!r}\n  right {case.dialogue.answers[0]!r}"
        for name, case in wrong
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(prog="python -m training.evaluate", description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT, help="(default: the one in the package)")
    parser.add_argument("--count", type=int, default=50, help="dialogues of each kind (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument("--kinds", nargs="+", metavar="KIND", help="only these (default: all that have a right answer)")
    parser.add_argument("--thinking", action="store_true", help="let the model think first")
    parser.add_argument("--mistakes", action="store_true", help="print the wrong answers too")
    options = parser.parse_args(arguments)
    kinds = [kind for kind in COMPARED if not options.kinds or kind.name in options.kinds]
    report = evaluate(Answerer(options.checkpoint), kinds, options.count, options.seed, thinking=options.thinking)
    sys.stdout.write(table(report) + "\n")
    if options.mistakes:
        sys.stdout.write(mistakes(report) + "\n")


if __name__ == "__main__":
    main()

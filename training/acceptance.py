"""Measures how many draft tokens of the bundled model's MTP head are right, by kind of text, on held-out dialogues."""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from localai_shim import LocalOpenAI
from training.chat import prompt_text
from training.dialogues import KINDS
from training.evaluate import drawn
from training.registry import Kind

GROUPS: Final = {
    "tool calls": ("tool_call", "natural_call", "several_calls", "order_with_options", "known_function"),
    "answers from tool results": ("result_record", "result_table", "bare_result", "results_of_several"),
    "sums in steps": ("long_sum", "long_difference", "long_product", "multiply_two_digits"),
    "copies and lists": ("copy_prose", "copy_text", "reverse_list", "sort_words", "list_items"),
    "stories, poems, jokes": ("story", "poem", "joke", "fun_fact"),
    "short facts": ("capital", "common_fact", "animal_sound", "group_of", "opposite"),
    "JSON": ("json_of_schema", "fact_as_json", "extract_keys"),
}


def accepted(client: LocalOpenAI, kinds: Sequence[Kind], count: int, temperature: float) -> tuple[int, int]:
    """Draft tokens of the head for some dialogues of each kind, and those that were right."""
    before = client.stats().drafts.get("mtp")
    for number, dialogue in enumerate(each for kind in kinds for each in drawn(kind, 1, count)):
        prompt = dialogue.raw or prompt_text(dialogue.messages, dialogue.tools, thinking=False)
        client.completions.create(model="m", prompt=prompt, max_tokens=200, temperature=temperature, seed=number)
    after = client.stats().drafts.get("mtp")
    if after is None:
        return 0, 0
    if before is None:
        return after.drafted, after.accepted
    return after.drafted - before.drafted, after.accepted - before.accepted


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(prog="python -m training.acceptance", description=__doc__)
    parser.add_argument("--count", type=int, default=6, help="dialogues of each kind (default: %(default)s)")
    options = parser.parse_args(arguments)
    sys.stdout.write("| text | greedy | temperature 0.8 |\n| --- | --- | --- |\n")
    with LocalOpenAI() as client:
        for name, names in GROUPS.items():
            kinds = [kind for kind in KINDS if kind.name in names]
            found = [accepted(client, kinds, options.count, temperature) for temperature in (0.0, 0.8)]
            shares = " | ".join(
                f"{right / drafted:.0%} of {drafted}" if drafted else "none" for drafted, right in found
            )
            sys.stdout.write(f"| {name} | {shares} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

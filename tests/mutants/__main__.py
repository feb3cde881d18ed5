"""Change the code in small ways, one at a time, and see which changes no test notices.

`make mutants COUNT=60 SEED=1` works on a copy of the tree. A mutant is killed by the first test that fails. One that
survives is equivalent to the original, or a test is missing: a reader decides.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

from tests.mutants.drawing import Mutant, draw
from tests.mutants.judging import judge, run
from tests.mutants.table import TABLE

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "*.egg-info", "build", "dist")


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = Path(folder, "tree")
        shutil.copytree(options.project, root, ignore=LEFT_OUT)
        mutants = dict(enumerate(draw(root, TABLE, options.seed, options.count), 1))
        if options.only:
            mutants = {number: mutants[number] for number in map(int, options.only.split(","))}
        if options.list:
            for number, mutant in mutants.items():
                tell({"number": number, **mutant.described(root)}, None)
        else:
            judge_all(root, mutants, options.limit, options.report)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=36, help="about how many mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=180, help="seconds for each mutant")
    parser.add_argument("--only", help="numbers of mutants, with commas between them")
    parser.add_argument("--list", action="store_true", help="list the mutants, and run no test")
    parser.add_argument("--report", type=Path, help="a file to which the lines are added, too")
    parser.add_argument("--project", type=Path, default=ROOT, help="another checkout")
    return parser.parse_args()


def judge_all(root: Path, mutants: dict[int, Mutant], limit: float, report: Path | None) -> None:
    killers: set[str] = set()
    survived = 0
    for number, mutant in mutants.items():
        verdict = judge(root, mutant, limit)
        result = "killed" if verdict.killed else "survived" if verdict.whole else "survived, cut off"
        line = {"number": number, **mutant.described(root), "result": result, "by": verdict.by}
        tell({**line, "seconds": round(verdict.seconds)}, report)
        survived += not verdict.killed
        if "::" in verdict.by:
            killers.add(verdict.by.removeprefix("died in "))
    print(f"{len(mutants) - survived} of {len(mutants)} mutants were killed")
    if killers and (unchanged := run(root, sorted(killers), 3600)).by:
        raise SystemExit(f"{unchanged.by} also fails without a mutant")


def tell(line: dict[str, object], report: Path | None) -> None:
    print(json.dumps(line), flush=True)
    if report is not None:
        with report.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()

"""Mutants of a table's groups, the same ones each time for a seed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.changes import Change, Source, changes
from tests.mutants.table import Group

TRIES = 100
"""How often a place is drawn for each mutant: a short module has few."""


@dataclass(frozen=True)
class Mutant:
    """A module with one change."""

    group: Group
    path: Path
    source: Source
    change: Change

    @property
    def line(self) -> int:
        return self.change.node.lineno

    @property
    def text(self) -> str:
        return self.source.changed(self.change)

    def described(self, root: Path) -> dict[str, object]:
        before, after = self.source.of(self.change.node), self.change.text
        return {
            "where": f"{self.path.relative_to(root)}:{self.line}",
            "kind": self.change.kind,
            "before": " ".join(before.split()),
            "after": " ".join(after.split()),
        }


def draw(root: Path, table: Mapping[str, Group], seed: int, count: int) -> list[Mutant]:
    """Draw about `count` mutants, by the groups' shares, and at least one of each group."""
    total = sum(group.share for group in table.values())
    drawn: list[Mutant] = []
    for name, group in table.items():
        wanted = max(1, round(group.share * count / total))
        drawn += _draw_of(root, group, wanted, random.Random(f"{seed} {name}"))
    return drawn


def _draw_of(root: Path, group: Group, wanted: int, random: random.Random) -> list[Mutant]:
    """Draw a module (the longer, the likelier), a kind of change, and a place: at most one mutant for each line."""
    sources = {path: Source(path) for module in group.modules for path in _files(root / module)}
    found: dict[tuple[Path, int], Mutant] = {}
    for _ in range(TRIES * wanted):
        if len(found) == wanted:
            break
        path = random.choices([*sources], [len(source.text) for source in sources.values()])[0]
        kinds: dict[str, list[Change]] = defaultdict(list)
        for change in changes(sources[path]):
            kinds[change.kind].append(change)
        if kinds:
            mutant = Mutant(group, path, sources[path], random.choice(kinds[random.choice(sorted(kinds))]))
            compile(mutant.text, str(path), "exec")
            found.setdefault((path, mutant.line), mutant)
    return [*found.values()]


def _files(module: Path) -> list[Path]:
    return sorted(module.rglob("*.py")) if module.is_dir() else [module]

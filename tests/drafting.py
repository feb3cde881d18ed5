"""Two models of which the small one guesses most of what the large one says, made of one checkpoint."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

LATER = re.compile(r"\.layers\.(\d+)\.")
OUTPUTS = ("o_proj.weight", "down_proj.weight")


def split(folder: Path, into: Path, layers: int, share: float) -> tuple[Path, Path]:
    """Save a model whose layers after the first ones add only a share of what they did, and one of the first alone.

    Args:
        folder: a checkpoint of mlx-lm's with attention and one dense block per layer.
        into: where both are saved.
        layers: of the small one.
        share: 1 leaves the large one as it is; with 0 both say the same.

    Returns:
        The folders of the large one and of the small one.
    """
    import mlx.core as mx

    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    first: dict[str, mx.array] = {}
    for name, array in list(weights.items()):
        found = LATER.search(name)
        if found is None or int(found[1]) < layers:
            first[name] = array
        elif name.endswith(OUTPUTS):
            weights[name] = array * share
    config = json.loads((folder / "config.json").read_text())
    made = {"large": (weights, config), "small": (first, {**config, "num_hidden_layers": layers})}
    for name, (arrays, its) in made.items():
        shutil.copytree(folder, into / name, ignore=shutil.ignore_patterns("*.safetensors"))
        (into / name / "config.json").write_text(json.dumps(its))
        mx.save_safetensors(str(into / name / "model.safetensors"), arrays, metadata={"format": "mlx"})
    return into / "large", into / "small"

"""The small checkpoints that ship with the package; `training/` made them."""

from pathlib import Path

_HERE = Path(__file__).resolve().parent
CHECKPOINT: Path = _HERE / "checkpoint"
VISION: Path = _HERE / "vision"

"""The small checkpoint that ships with the package; `training/` made it."""

from pathlib import Path

CHECKPOINT: Path = Path(__file__).resolve().parent / "checkpoint"

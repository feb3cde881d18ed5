"""The small checkpoint that ships with the package; see README.md beside this file."""

from pathlib import Path

CHECKPOINT: Path = Path(__file__).resolve().parent / "checkpoint"

"""Chat templates of our own, one in the form of each family that people run.

They are short and hold what makes a family hard: its markers, where its tools and results stand, what it does to
arguments and to roles that it lacks, and what it refuses. No text of the real ones is in them.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "families"
TEMPLATES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.jinja"))}
"""The text of each by the family's name."""

WITHOUT_TOOLS = ("dialogue", "gemma2", "plain")
"""Those that show no tools, no calls and no results."""

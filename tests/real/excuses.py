"""What a template cannot be asked for, and why."""

from __future__ import annotations

EXCUSES: dict[tuple[str, str], str] = {}
"""(template, use) -> the reason."""

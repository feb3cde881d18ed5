"""Channels of the families that have them."""

from __future__ import annotations

from localai_shim.formats.table import FORMATS

CHANNELS = {name: row.channels for name, row in FORMATS.items() if row.channels is not None}

"""How much is fuzzed: blocks of cases that are the same each time."""

from __future__ import annotations

import os

FIRST = int(os.environ.get("FUZZ_FIRST", 0))
BLOCKS = range(FIRST, FIRST + int(os.environ.get("FUZZ", 1)))
"""`FUZZ=100` is all: 50,000 bodies, 13,500 outputs of models, 5,000 folders. `FUZZ_FIRST=7` begins with block 7."""

"""GGUF files that llama.cpp's converter has made."""

from __future__ import annotations

import lzma
import os
from pathlib import Path

CONVERTED = Path(os.environ.get("CONVERTED", Path(__file__).with_name("converted")))


def unpack(name: str, folder: Path) -> Path:
    file = folder / f"{name}.gguf"
    file.write_bytes(lzma.decompress((CONVERTED / file.with_suffix(".gguf.xz").name).read_bytes()))
    return file

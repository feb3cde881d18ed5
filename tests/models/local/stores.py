"""Folders of other programs, made by hand as they lay them out."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.models.gguf.writing import close, write
from tests.tiny import tiny

KIND = "application/vnd.ollama.image."
REGISTRY = "registry.ollama.ai/library"


class Stores:
    """A home folder without models, and what puts models into it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.ollama = home / ".ollama" / "models"
        self.lm_studio = home / ".lmstudio" / "models"
        self.llama_cpp = home / ".cache" / "llama.cpp"
        self.omlx = home / ".omlx" / "models"
        self.jan = home / ".config" / "Jan" / "data" / "llamacpp" / "models"

    def folder(self, path: Path) -> Path:
        """A checkpoint that runs."""
        shutil.copytree(tiny("qwen3"), path)
        return path

    def header(self, path: Path, architecture: str = "llama") -> Path:
        """A file with the header of a GGUF file, and one tensor."""
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = gguf.GGUFWriter(path, architecture)
        writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
        return close(writer)

    def model(self, path: Path) -> Path:
        """A GGUF file that runs."""
        path.parent.mkdir(parents=True, exist_ok=True)
        return write(tiny("qwen3"), path)

    def cached(self, name: str, files: dict[str, Path], commit: str = "0" * 40, ref: str = "main") -> Path:
        """Files in the hub's cache as the hub's library puts them: links to blobs. Returns the snapshot."""
        repository = self.home / "hub" / f"models--{name.replace('/', '--')}"
        snapshot = repository / "snapshots" / commit
        (repository / "blobs").mkdir(parents=True, exist_ok=True)
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / ref).write_text(commit)
        for file, source in files.items():
            blob = repository / "blobs" / hashlib.sha256(file.encode()).hexdigest()
            shutil.copy(source, blob)
            (snapshot / file).parent.mkdir(parents=True, exist_ok=True)
            (snapshot / file).symlink_to(Path("../" * (2 + file.count("/"))) / "blobs" / blob.name)
        return snapshot

    def pulled(self, name: str, model: Path | None, *, owner: str = REGISTRY, **layers: Any) -> Path:
        """A model of Ollama; `layers` are texts, or values of JSON. Returns its manifest."""
        contents = {"model": model.read_bytes()} if model is not None else {}
        for kind, content in layers.items():
            contents[kind] = (content if isinstance(content, str) else json.dumps(content)).encode()
        entries = []
        for kind, content in contents.items():
            digest = hashlib.sha256(content).hexdigest()
            (self.ollama / "blobs").mkdir(parents=True, exist_ok=True)
            (self.ollama / "blobs" / f"sha256-{digest}").write_bytes(content)
            entries.append({"mediaType": KIND + kind, "digest": f"sha256:{digest}", "size": len(content)})
        base, _, tag = name.partition(":")
        manifest = self.ollama / "manifests" / owner / base / (tag or "latest")
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_text(json.dumps({"schemaVersion": 2, "layers": entries}))
        return manifest


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stores:
    """A machine without models, whose hub has no network."""
    from huggingface_hub import constants

    for name in ("OLLAMA_MODELS", "LLAMA_CACHE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return Stores(tmp_path)

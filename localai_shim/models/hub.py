"""The Hugging Face hub: fetches a model, and lists those in the cache on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..types import Json, ModelLoadError
from .checkpoint_files import read_json
from .markup import read_formats

_MORE_FILES = ("*_Dense/*.safetensors",)  # of sentence-transformers' layers


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A checkpoint that is on this machine, as far as its files say."""

    name: str
    kind: str
    """The config's `model_type`, and what it reads beside text."""
    bytes: int
    """Of its weights' files."""
    calls: str
    """Format of its tool calls; empty where it has no chat template."""
    reasoning: str
    """Format of its reasoning; likewise."""
    problem: str = ""
    """Reason why it cannot be loaded; empty where nothing speaks against it."""


def cached_models() -> list[LocalModel]:
    """The models in the hub's cache, by name."""
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        found = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except CacheNotFound:
        return []
    repos = [repo for repo in found if repo.repo_type == "model" and repo.revisions]
    newest = [(repo.repo_id, max(repo.revisions, key=lambda r: ("main" in r.refs, r.last_modified))) for repo in repos]
    return [describe(name, str(revision.snapshot_path)) for name, revision in sorted(newest, key=lambda pair: pair[0])]


def describe(name: str, folder: str) -> LocalModel:
    """Describe the model of a folder by its files; none of the weights are read."""
    path = Path(folder)
    config, index = read_json(path / "config.json"), read_json(path / "model.safetensors.index.json")
    weights = [file for file in path.glob("*.safetensors") if file.exists()]
    reads = [kind for kind, key in (("image", "vision_config"), ("audio", "audio_config")) if config.get(key)]
    kind = ", ".join([str(config.get("model_type") or "unknown"), *reads])
    missing = set((index.get("weight_map") or {}).values()) - {file.name for file in weights}
    problem = ""
    if not config and next(path.glob("*.gguf"), None):
        problem = "no: it is GGUF, pass the path of a file"
    elif not config:
        problem = "no: it has no config.json"
    elif missing:
        problem = f"no: {len(missing)} of its files are missing"
    elif not weights:
        problem = "no: it has no weights as safetensors"
    found = read_formats(path)
    calls = "" if found is None or found.tools is None else found.tools.name
    reasoning = "" if found is None else found.reasoning
    return LocalModel(name, kind, sum(file.stat().st_size for file in weights), calls, reasoning, problem)


def config_here(path_or_id: str) -> Json:
    """The config of a model that is on this machine; empty where it would have to be fetched."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    if Path(path_or_id).exists():
        return read_json(Path(path_or_id) / "config.json")
    try:
        found = try_to_load_from_cache(path_or_id, "config.json")
    except HFValidationError:
        return {}
    return read_json(Path(found)) if isinstance(found, str) else {}


def fetch(path_or_id: str, progress: bool | None) -> Path:
    """The folder of a model, or its GGUF file; it is fetched from the hub where it is none yet.

    Raises:
        ModelLoadError: it cannot be had. That may change, unless the id is none.
    """
    import mlx_lm.utils
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError

    from .progress import bar_class

    try:
        if Path(path_or_id).exists():
            return Path(path_or_id)
        files = [*mlx_lm.utils.DEFAULT_ALLOW_PATTERNS, *_MORE_FILES]
        return Path(mlx_lm.utils.snapshot_download(path_or_id, allow_patterns=files, tqdm_class=bar_class(progress)))
    except Exception as error:
        raise ModelLoadError(
            f"The model '{path_or_id}' is neither a folder on this machine nor a model that could be fetched from "
            f"the Hugging Face hub: {error}",
            missing=isinstance(error, RepositoryNotFoundError | HFValidationError | LocalEntryNotFoundError),
            transient=not isinstance(error, HFValidationError),
        ) from error

"""The Hugging Face hub: fetches a model, and lists those in the cache on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..types import Json, ModelLoadError
from .checkpoint.completeness import IncompleteError, missing_weights
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
    config = read_json(path / "config.json")
    weights = [file for file in path.glob("*.safetensors") if file.exists()]
    reads = [kind for kind, key in (("image", "vision_config"), ("audio", "audio_config")) if config.get(key)]
    kind = ", ".join([str(config.get("model_type") or "unknown"), *reads])
    problem = ""
    if not config and next(path.glob("*.gguf"), None):
        problem = "no: it is GGUF, pass the path of a file"
    elif not config:
        problem = "no: it has no config.json"
    elif not weights:
        problem = "no: it has no weights as safetensors"
    else:
        try:
            missing = missing_weights(path)
        except IncompleteError as error:
            problem = f"no: {error}"
        else:
            problem = f"no: {len(missing)} of its files are missing" if missing else ""
    found = read_formats(path)
    calls = "" if found is None or found.tools is None else found.tools.name
    reasoning = "" if found is None else found.reasoning
    return LocalModel(name, kind, sum(file.stat().st_size for file in weights), calls, reasoning, problem)


def config_here(path_or_id: str, revision: str | None = None) -> Json:
    """The config of a model that is on this machine; empty where it would have to be fetched."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    if Path(path_or_id).exists():
        return read_json(Path(path_or_id) / "config.json")
    try:
        found = try_to_load_from_cache(path_or_id, "config.json", revision=revision)
    except HFValidationError:
        return {}
    return read_json(Path(found)) if isinstance(found, str) else {}


def fetch(path_or_id: str, progress: bool | None, revision: str | None = None) -> Path:
    """The folder of a model, or its GGUF file; downloaded from the hub if it is not on this machine yet.

    Args:
        path_or_id: the folder, the file, or the model's ID on the hub.
        progress: as the client's option.
        revision: of a model on the hub; None: main.

    Raises:
        ModelLoadError: it cannot be had. That may change, unless the ID is none.
    """
    import mlx_lm.utils
    from huggingface_hub import errors

    from .progress import bar_class

    try:
        if Path(path_or_id).exists():
            return Path(path_or_id)
        files = [*mlx_lm.utils.DEFAULT_ALLOW_PATTERNS, *_MORE_FILES]
        how = {"allow_patterns": files, "tqdm_class": bar_class(progress)}
        return Path(mlx_lm.utils.snapshot_download(path_or_id, revision=revision, **how))
    except errors.RevisionNotFoundError as error:
        what = f"The model '{path_or_id}' has no revision '{revision or 'main'}' on the Hugging Face Hub."
        raise ModelLoadError(what, missing=True, transient=True) from error
    except Exception as error:
        if isinstance(error, getattr(errors, "IncompleteSnapshotError", ())):  # newer than the oldest that is supported
            what = f"The model '{path_or_id}' was downloaded in part only, and the rest cannot be downloaded now"
            raise ModelLoadError(f"{what}: {error}", transient=True) from error
        hint = "" if "/" in path_or_id else " An ID has an owner, as in 'mlx-community/Qwen3-8B-4bit'."
        raise ModelLoadError(
            f"The model '{path_or_id}' is neither a folder on this machine nor a model that could be fetched from "
            f"the Hugging Face hub.{hint} It says: {error}",
            missing=isinstance(
                error, errors.RepositoryNotFoundError | errors.HFValidationError | errors.LocalEntryNotFoundError
            ),
            transient=not isinstance(error, errors.HFValidationError),
        ) from error

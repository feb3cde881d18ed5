"""The Hugging Face hub: fetches a model, unless its cache on this machine has it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from ..options import ANYWHERE, Search
from ..types import Json, ModelLoadError
from .chat_templates import read_formats
from .checkpoint.files import read_json
from .local.search import hub_model, similar_names

_MORE_FILES = ("*_Dense/*.safetensors", "mtp.safetensors", "mtp/*")  # of sentence-transformers' layers, and heads
SPEECH_FILES = ("*.safetensors", "*.npz", "*.model", "*.yaml", "*.mvn", "voices/*", "speech_tokenizer/*")
"""Files of models of mlx-audio besides those of other models."""
WHISPER_FILES = ("weights*.safetensors", "weights.npz")
"""The same, of Whisper in MLX's form."""


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


def fetch(
    path_or_id: str,
    progress: bool | None,
    revision: str | None = None,
    search: Search = ANYWHERE,
    more: Sequence[str] = (),
) -> Path:
    """The folder of a model, or its GGUF file; downloaded from the hub if it is not on this machine yet.

    Args:
        path_or_id: the folder, the file, or the model's ID on the hub.
        progress: as the client's option.
        revision: of a model on the hub; None: main.
        search: with `local`, a whole copy in the hub's cache is used without asking the hub for a newer one.
        more: patterns of further files.

    Raises:
        ModelLoadError: it cannot be had. That may change, unless the ID is none.
    """
    import mlx_lm.utils
    from huggingface_hub import errors

    from .progress import bar_class

    newer = getattr(errors, "IncompleteSnapshotError", None)  # than the oldest version that is supported
    incomplete = () if newer is None else (newer,)
    files = [*mlx_lm.utils.DEFAULT_ALLOW_PATTERNS, *_MORE_FILES, *more]

    def get(**how: object) -> Path:
        return Path(mlx_lm.utils.snapshot_download(path_or_id, revision=revision, allow_patterns=files, **how))

    try:
        if Path(path_or_id).exists():
            return Path(path_or_id)
        if search.offline:
            return get(local_files_only=True)
        if search.local and not more and is_whole(path_or_id, revision):
            with contextlib.suppress(errors.LocalEntryNotFoundError):
                return get(local_files_only=True)
        return get(tqdm_class=bar_class(progress))
    except errors.RevisionNotFoundError as error:
        what = f"The model '{path_or_id}' has no revision '{revision or 'main'}' on the Hugging Face Hub."
        raise ModelLoadError(what, missing=True, transient=True) from error
    except Exception as error:
        if isinstance(error, incomplete):
            what = f"The model '{path_or_id}' was downloaded in part only, and the rest cannot be downloaded now"
            raise ModelLoadError(f"{what}: {error}", transient=True) from error
        similar = similar_names(path_or_id) if search.local else ""
        if search.offline and isinstance(error, errors.LocalEntryNotFoundError):
            how = f"{path_or_id} --revision {revision}" if revision else path_or_id
            raise ModelLoadError(
                f"The model '{path_or_id}' is not on this machine, and with `offline` the Hugging Face Hub is not "
                f"asked. Run `hf download {how}`, or leave `offline` out.{similar}",
                missing=True,
                transient=True,
            ) from error
        hint = "" if "/" in path_or_id else " An ID has an owner, as in 'mlx-community/Qwen3-8B-4bit'."
        raise ModelLoadError(
            f"The model '{path_or_id}' is neither a folder on this machine nor a model that could be fetched from "
            f"the Hugging Face hub.{hint}{similar} It says: {error}",
            missing=isinstance(
                error, errors.RepositoryNotFoundError | errors.HFValidationError | errors.LocalEntryNotFoundError
            ),
            transient=not isinstance(error, errors.HFValidationError),
        ) from error


def is_whole(model: str, revision: str | None) -> bool:
    """True if the hub's cache has all of a model.

    The cache may have the hub's list of files. It has none of models that other programs, or older versions, have put
    there, perhaps without files that are needed here: a chat template tells that most likely none is missing.
    """
    found = hub_model(model, revision)
    if found is None or found.problem:
        return False
    commit, repository = found.path.name, found.path.parents[1]
    return (repository / "trees" / f"{commit}.json").is_file() or read_formats(found.path) is not None

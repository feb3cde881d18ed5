"""Models of the Hugging Face hub: fetching one, and those that are in its cache on this machine."""

from __future__ import annotations

from pathlib import Path

from ..types import ModelLoadError


def fetch(path_or_id: str, progress: bool | None) -> Path:
    """The folder of a model, fetched from the hub where it is none yet.

    Raises:
        ModelLoadError: it cannot be had. That may change, unless the id is none.
    """
    import mlx_lm.utils
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError

    from .progress import bar_class

    try:
        if Path(path_or_id).exists():
            return Path(path_or_id)
        return Path(
            mlx_lm.utils.snapshot_download(
                path_or_id, allow_patterns=mlx_lm.utils.DEFAULT_ALLOW_PATTERNS, tqdm_class=bar_class(progress)
            )
        )
    except Exception as error:
        raise ModelLoadError(
            f"The model '{path_or_id}' is neither a folder on this machine nor a model that could be fetched from "
            f"the Hugging Face hub: {error}",
            missing=isinstance(error, RepositoryNotFoundError | HFValidationError | LocalEntryNotFoundError),
            transient=not isinstance(error, HFValidationError),
        ) from error

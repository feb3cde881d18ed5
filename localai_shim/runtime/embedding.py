"""The model that embeds the files of a client's vector stores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, cast

from ..options import LocalOptions, ModelOptions, Search
from ..types import ModelLoadError
from .offload import import_modules
from .sources import Source, make_sources
from .starting import MODULES

_SHARED = ("trust_remote_code", "max_stall", "max_queue", "memory_limit")
"""Options of a client that hold for another model, too."""


class EmbeddingModel(NamedTuple):
    """The model that embeds the files of vector stores."""

    name: str | None = None
    """Among the client's `models`; None: it is not said."""
    source: Source | None = None
    """Another model than these."""

    def source_among(self, sources: Mapping[str, Source]) -> Source | None:
        """The model's source; None if the client has only an engine.

        If it is not said, it is the first model that can do nothing but embed, or else the first one.
        """
        if self.source is not None or not sources:
            return self.source
        if self.name is not None:
            return sources[self.name]
        if len(sources) > 1:
            import_modules(*MODULES)
            from ..models.loading import only_tasks

            for source in sources.values():
                if only_tasks(Path(source.path)) == ("embed",):
                    return source
        return next(iter(sources.values()))


def read_embedding(
    given: LocalOptions, sources: Mapping[str, Source], options: ModelOptions, progress: bool | None, search: Search
) -> EmbeddingModel:
    """A client's `embedding_model`: a name in `models`, or a model as `model` names one.

    Raises:
        FileNotFoundError: there is no such model.
        ValueError: it is no name.
    """
    model = given.get("embedding_model")
    if model is None:
        return EmbeddingModel()
    if not isinstance(model, str | os.PathLike) or not os.fspath(model):
        raise ValueError(f"`embedding_model` must be the name, folder, or Hub ID of a model, not {model!r}")
    if isinstance(model, str) and model in sources:
        return EmbeddingModel(model)
    own = cast(ModelOptions, {name: value for name, value in options.items() if name in _SHARED})
    try:
        return EmbeddingModel(source=make_sources({"": model}, own, progress, search)[""])
    except ModelLoadError as error:
        raise FileNotFoundError(f"`embedding_model`: {error}") from None

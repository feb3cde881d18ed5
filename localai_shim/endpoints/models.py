"""GET /models and GET /models/{id}."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from openai.types import Model

from ..errors import NotFound
from ..media import modalities
from ..types import Json, LoadedModel, Task
from ..vectors import Embedding
from .fields import Fields

OWNER = "localai_shim"


class Listed(NamedTuple):
    """Entry of a model, loaded or not, in the list of models."""

    created: int
    """Seconds since the epoch."""
    root: str
    """The folder or the hub id that it comes from."""
    context_length: int | None = None
    """Most tokens of prompt and output together; until the model is loaded, memory may turn out to allow fewer."""
    modalities: tuple[str, ...] | None = None
    """Kinds of input: text, and image, video and audio where the model reads them. None until it is loaded."""
    tasks: tuple[Task, ...] | None = None
    """Tasks that the model serves. None until it is loaded, except for models that generate no text."""
    dimensions: int | None = None
    """Numbers in the vectors that it makes of texts; None where it makes none."""

    parent: str | None = None
    """Of an adapter, the model that it is for."""

    @classmethod
    def of(cls, model: LoadedModel, created: int, root: str) -> Listed:
        """One that is loaded."""
        embedding = model.settings.get("embed")
        dimensions = embedding.dimensions if isinstance(embedding, Embedding) else None
        reads = modalities(model.text.media_kinds)
        return cls(created, root, model.context_length, reads, tuple(model.tasks), dimensions)


def list_models(models: Mapping[str, Listed], fields: Fields, query: Mapping[str, object]) -> Json:
    """GET /models: all models of this client, by name."""
    return {"object": "list", "data": [_model(name, known).to_dict() for name, known in models.items()]}


def _model(name: str, known: Listed) -> Model:
    """With vLLM's `root`, `parent` and `max_model_len`, and what the model reads, is for and embeds as."""
    fields = {"id": name, "created": known.created, "object": "model", "owned_by": OWNER, "root": known.root}
    reads = None if known.modalities is None else list(known.modalities)
    tasks = None if known.tasks is None else list(known.tasks)
    parent = {} if known.parent is None else {"parent": known.parent}
    more = {**parent, "modalities": reads, "tasks": tasks, "embedding_dimensions": known.dimensions}
    return Model.model_validate({**fields, "max_model_len": known.context_length, **more})


def retrieve(
    models: Mapping[str, Listed], serves: Callable[[str], bool], fields: Fields, query: Mapping[str, object], name: str
) -> Model:
    """GET /models/{name}: one model. A model that serves every name is returned for any name.

    Args:
        serves: says if requests may have a name, in `models` or not.

    Raises:
        NotFound: this client has no model of that name.
    """
    if name not in models:
        if not serves(name):
            raise unknown_model(name, models)
        name = next(iter(models))
    return _model(name, models[name])


def unknown_model(name: str, models: Collection[str]) -> NotFound:
    """The error for a model name that this client does not serve."""
    known = ", ".join(f"'{m}'" for m in models)
    return NotFound(
        f"The model '{name}' does not exist: this client is local and serves {known}. Pass one of these as 'model'.",
        param="model",
        code="model_not_found",
    )

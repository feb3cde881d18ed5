"""GET /models and GET /models/{id}."""

from __future__ import annotations

from collections.abc import Mapping

from openai.types import Model

from ..errors import NotFound

OWNER = "localai_shim"


def listing(models: Mapping[str, int]) -> list[Model]:
    """All models of this client, by name and time of creation (seconds since the epoch)."""
    return [Model(id=name, created=created, object="model", owned_by=OWNER) for name, created in models.items()]


def retrieve(name: str, models: Mapping[str, int], *, only: bool) -> Model:
    """One model; where it serves every name, that is what any name stands for.

    Args:
        only: names that are not in `models` are not served.

    Raises:
        NotFound: this client has no model of that name.
    """
    if name not in models:
        if only:
            raise unknown_model(name, models)
        name = next(iter(models))
    return Model(id=name, created=models[name], object="model", owned_by=OWNER)


def unknown_model(name: str, models: Mapping[str, int]) -> NotFound:
    """The error for a model name that this client does not serve."""
    known = ", ".join(f"'{m}'" for m in models)
    return NotFound(
        f"The model '{name}' does not exist: this client is local and serves {known}.",
        param="model",
        code="model_not_found",
    )

"""Settings in sentence-transformers' files: how a vector is made of a text's hidden states, and prompts.

`modules.json` lists the steps: Transformer, Pooling, Dense layers, Normalize; `config_sentence_transformers.json` has
the prompts, `sentence_bert_config.json` the length at which texts are cut.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...types import Json, ModelLoadError
from ..checkpoint.files import read_json

TOKEN_VECTORS = "makes a vector of each token (late interaction, as ColBERT's), not of each text"

_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The flags of older files, in the order in which several modes' results are concatenated."""
_ACTIVATIONS = {"Identity": None, "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu", "SiLU": "silu", "Sigmoid": "sigmoid"}


@dataclass(frozen=True, slots=True)
class Dense:
    """A layer behind the pooling."""

    folder: Path
    activation: str | None
    """A function of `mlx.nn`; None: there is none."""


@dataclass(frozen=True, slots=True)
class SentenceFiles:
    """Settings in the files."""

    modes: tuple[str, ...]
    """Ways of pooling hidden states; the results of several are concatenated."""
    include_prompt: bool = True
    """Pooling looks at the prompt's tokens, too."""
    dense: Sequence[Dense] = ()
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    default_prompt: str | None = None
    max_tokens: int | None = None
    """Most tokens of a text; None: the model's own limit."""


def read_sentence_files(folder: Path) -> SentenceFiles | None:
    """Read the settings of a folder's files; None where there are none.

    Raises:
        ModelLoadError: they describe something else than a vector per text.
    """
    modules = _modules(folder)
    if not modules:
        return None
    modes: tuple[str, ...] = ()
    include_prompt, dense = True, list[Dense]()
    for kind, path in modules:
        config = read_json(path / "config.json")
        if kind in ("Pooling", "Dense") and not (path / "config.json").is_file():
            raise ModelLoadError(f"The step '{path.name}' (modules.json) has no config.json.")
        if kind == "Pooling":
            modes, include_prompt = _pooling(config), config.get("include_prompt", True)
        elif kind == "Dense":
            dense.append(Dense(path, _activation(config)))
        elif kind not in ("Transformer", "Normalize", "Dropout"):
            raise ModelLoadError(f"The model '{folder.name}' has a step that is not supported: {kind} (modules.json).")
    if not modes:
        raise ModelLoadError(f"The model '{folder.name}' cannot be served: it {TOKEN_VECTORS}.")
    more = read_json(folder / "config_sentence_transformers.json")
    length = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
    prompts = more.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise ModelLoadError(f"config_sentence_transformers.json: 'prompts' is {prompts!r:.100}, not an object.")
    return SentenceFiles(
        modes,
        include_prompt,
        dense,
        {str(name): str(text) for name, text in prompts.items()},
        more.get("default_prompt_name"),
        length if isinstance(length, int) else None,
    )


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """(kind, folder) of the steps; where modules.json is missing, those whose folders have their usual names."""
    if (folder / "modules.json").is_file():
        try:
            listed = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
            return [(str(each["type"]).rpartition(".")[2], folder / each["path"]) for each in listed]
        except (ValueError, KeyError, TypeError) as error:
            raise ModelLoadError(f"modules.json is damaged: {type(error).__name__}: {error}") from error
    dense = [("Dense", path) for path in sorted(folder.glob("[0-9]_Dense"))]
    if not (folder / "1_Pooling" / "config.json").exists():
        return dense if (folder / "1_Dense" / "config.json").exists() else []
    return [("Transformer", folder), ("Pooling", folder / "1_Pooling"), *dense]


def _pooling(config: Json) -> tuple[str, ...]:
    given = config.get("pooling_mode")
    if given is None:
        modes = tuple(mode for flag, mode in _MODES.items() if config.get(flag)) or ("mean",)
    else:
        modes = (given,) if isinstance(given, str) else tuple(given)
    for mode in modes:
        if mode not in _MODES.values():
            raise ModelLoadError(f"The pooling mode '{mode}' is not supported (1_Pooling/config.json).")
    return modes


def _activation(config: Json) -> str | None:
    name = str(config.get("activation_function", "Tanh")).rpartition(".")[2]  # sentence-transformers' default
    if name not in _ACTIVATIONS:
        raise ModelLoadError(f"The activation '{name}' is not supported (a Dense layer's config.json).")
    return _ACTIVATIONS[name]

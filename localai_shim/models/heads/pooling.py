"""Vectors of hidden states: pooling, dense layers and length 1, as sentence-transformers' files say.

`modules.json` lists the steps: Transformer, Pooling, Dense layers, Normalize; `config_sentence_transformers.json` has
the prompts, `sentence_bert_config.json` the length at which texts are cut.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx import nn
from mlx.utils import tree_flatten

from ...engine.cache_contents import RowCache
from ...engine.ports import host
from ...types import Json, ModelLoadError
from ...vectors import Embedding
from ..checkpoint.files import read_json

log = logging.getLogger("localai_shim")

_MIN_LENGTH = 1e-12  # of a vector that is divided by its length
_TRIAL, _TRIAL_PIECE = [3 + 11 * i % 53 for i in range(12)], 5  # tokens that every vocabulary has
STATE_TOLERANCE = 0.05  # of hidden states, by which rounding may move them; a token that is not seen moves them more
_INNER = ("language_model", "model", "transformer", "backbone")
"""Attributes in which decoders of mlx-lm and mlx-vlm keep the part before their head."""

Hidden = Callable[[mx.array, mx.array], mx.array]
"""(tokens `[n, k]`, mask of those that count `[n, k]`) -> hidden states `[n, k, width]`."""
Read = Callable[[mx.array], mx.array]
"""The next tokens of one text `[1, k]` -> their hidden states `[1, k, width]`."""
Finish = Callable[[mx.array], mx.array]
"""Pooled states -> what is asked for of them."""


# -- files -----------------------------------------------------------------------------------------------------------

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


# -- encoders --------------------------------------------------------------------------------------------------------


class Encoder:
    """Makes a vector of each text.

    Args:
        hidden: runs the model.
        head: makes vectors of what it gives.
        padding: the token that fills shorter texts.
        begin: begins one more text that is read in pieces; None: the model sees all of a text at once.
    """

    def __init__(self, hidden: Hidden, head: Head, padding: int = 0, begin: Callable[[], Read] | None = None) -> None:
        self._hidden, self._head, self._padding, self._begin = hidden, head, padding, begin
        self._tried = begin is None

    @property
    def settings(self) -> Embedding:
        """Its description for the endpoints. Nothing is computed."""
        files = self._head.files
        default = files.default_prompt if files.default_prompt in files.prompts else None
        return Embedding(self([[0]]).shape[-1], None, files.prompts, default, files.include_prompt)

    def __call__(self, texts: Sequence[Sequence[int]], skip: int = 0) -> mx.array:
        """`[texts, dimensions]` float32, lazy. `skip`: tokens at the beginning of each text that are a prompt's."""
        states, counts = self.states(texts)
        return self._head(states, counts, skip)

    def states(self, texts: Sequence[Sequence[int]]) -> tuple[mx.array, list[int]]:
        """Hidden states `[texts, tokens, width]`, lazy, and how many tokens each text has; the rest is padding."""
        tokens, mask = pad(texts, self._padding)
        return self._hidden(mx.array(tokens), mx.array(mask))[: len(texts)], [len(text) for text in texts]

    def begin(self, text: Sequence[int], skip: int = 0) -> Reading | None:
        """A text that is read in pieces; None where the model has to see all of it at once."""
        return self.reading(text, self._head.pooling([len(text)], skip), self._head.finish)

    def reading(self, text: Sequence[int], pooling: Pooling, finish: Finish) -> Reading | None:
        """Begin a reading like `begin`, with a head of the caller's own."""
        if not self._tried:
            self._tried = True
            if not self._agrees():
                log.warning("this model's code gives other vectors when a text is read in pieces: it is read in one")
                self._begin = None
        return None if self._begin is None else Reading(text, self._begin(), pooling, finish)

    def _agrees(self) -> bool:
        """True if a short text has the same hidden states when it is read in two pieces."""
        assert self._begin is not None
        tokens = mx.array([_TRIAL])
        try:
            read, whole = self._begin(), self._hidden(tokens, mx.ones_like(tokens))
            made = mx.concatenate([read(tokens[:, :_TRIAL_PIECE]), read(tokens[:, _TRIAL_PIECE:])], axis=1)
            return bool(mx.linalg.norm(made - whole) <= STATE_TOLERANCE * mx.linalg.norm(whole))
        except Exception:
            log.debug("this model reads no text in pieces", exc_info=True)
            return False


class Reading:
    """A text that is read in pieces.

    Args:
        text: token ids.
        read: runs the next ones.
        pooling: takes their hidden states.
        finish: makes what is asked for of what that gives.
    """

    def __init__(self, text: Sequence[int], read: Read, pooling: Pooling, finish: Finish) -> None:
        self._text, self._read, self._pooling, self._finish = text, read, pooling, finish
        self.done = 0
        """Tokens that were read."""

    @property
    def left(self) -> int:
        """Tokens to read."""
        return len(self._text) - self.done

    def run(self, most: int) -> None:
        """Read the next tokens, `most` at most, and wait for them."""
        piece = list(self._text[self.done : self.done + most])
        states = self._read(mx.array([piece]))
        self._pooling.add(states, self.done)
        mx.eval(states, self._pooling.kept)
        self.done += len(piece)

    def result(self) -> mx.array:
        """`[1, dimensions]`, lazy, once nothing is left."""
        return self._finish(self._pooling.result())


def pad(texts: Sequence[Sequence[int]], padding: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Texts as `[texts, tokens]`, with padding on the right, and which of the tokens are theirs.

    There are more of both on a machine that prepares for each new shape.

    Args:
        texts: token ids.
        padding: the token that fills shorter texts.
    """
    counts = np.array([len(text) for text in texts])
    rows, length = len(texts), int(counts.max())
    forms = host().forms()
    counts = np.pad(counts, (0, forms.filled_rows(rows) - rows), constant_values=1)  # all see something
    length = forms.filled(length)
    tokens = np.full((len(counts), length), padding, np.int32)
    for row, text in zip(tokens, texts, strict=False):
        row[: len(text)] = text
    mask = np.arange(length) < counts[:, None]
    return tokens, mask.astype(np.int32)


class Head:
    """Makes vectors of length 1 of hidden states.

    Args:
        files: how.
        own: the dense layers that the model itself has loaded; None: they are read from their folders.
    """

    def __init__(self, files: SentenceFiles, own: Sequence[nn.Module] | None = None) -> None:
        self.files = files
        self._dense = [_read_dense(layer) for layer in files.dense] if own is None else list(own)
        read = [] if own is not None else [layer.parameters() for layer in self._dense]
        self.parameters = [array for _, array in tree_flatten(read)]

    def __call__(self, hidden: mx.array, counts: Sequence[int], skip: int = 0) -> mx.array:
        """`[texts, dimensions]` float32, of `[texts, tokens, width]`.

        Args:
            counts: tokens of each text; the rest is padding.
            skip: tokens at the beginnings that are a prompt's.
        """
        pooling = self.pooling(counts, skip)
        pooling.add(hidden)
        return self.finish(pooling.result())

    def pooling(self, counts: Sequence[int], skip: int = 0) -> Pooling:
        """Pooling of the hidden states of texts; see `__call__`."""
        return Pooling(self.files.modes, counts, 0 if self.files.include_prompt else skip)

    def finish(self, made: mx.array) -> mx.array:
        """`[texts, dimensions]` float32, of what was pooled."""
        made = made.astype(mx.float32)
        names = [layer.activation for layer in self.files.dense] or [None] * len(self._dense)
        for layer, name in zip(self._dense, names, strict=True):
            made = layer(made) if name is None else getattr(nn, name)(layer(made))
            made = made.astype(mx.float32)
        lengths = mx.linalg.norm(made, axis=-1, keepdims=True)
        return made / mx.maximum(lengths, _MIN_LENGTH)


class Pooling:
    """Pools hidden states of texts; those of a single one may come in pieces.

    Args:
        modes: how; the results of several are concatenated.
        counts: tokens of each text.
        skip: tokens at the beginnings that are not pooled, except a text's last one.
    """

    def __init__(self, modes: Sequence[str], counts: Sequence[int], skip: int = 0) -> None:
        self._modes, self._counts = modes, np.array(counts)
        self._first = np.minimum(skip, self._counts - 1)
        self.kept: list[mx.array | None] = [None] * len(modes)
        """`[texts, width]` of each mode so far, lazy; None: nothing yet."""

    def add(self, hidden: mx.array, start: int = 0) -> None:
        """Take the states `[texts, tokens, width]` of the next tokens, which begin at `start`."""
        places = np.arange(start, start + hidden.shape[1])
        counted = (places >= self._first[:, None]) & (places < self._counts[:, None])
        self.kept = [
            self._pooled(mode, kept, hidden, counted, places) for mode, kept in zip(self._modes, self.kept, strict=True)
        ]

    def _pooled(
        self,
        mode: str,
        kept: mx.array | None,
        hidden: mx.array,
        counted: npt.NDArray[np.bool_],
        places: npt.NDArray[np.int_],
    ) -> mx.array:
        """`[texts, width]`: one mode's result or sum, of what was kept of it and the states of further tokens."""
        if mode == "cls":
            return hidden[:, 0] if kept is None else kept
        if mode == "lasttoken":
            at = np.clip(self._counts - 1 - places[0], 0, len(places) - 1)
            return mx.take_along_axis(hidden, mx.array(at)[:, None, None], axis=1)[:, 0]
        # Padding counts 0, and may be no number: models may leave anything there.
        hidden = hidden.astype(mx.float32)
        seen = mx.array(counted)[:, :, None]
        if mode == "max":
            most = mx.where(seen, hidden, -mx.inf).max(axis=1)
            return most if kept is None else mx.maximum(kept, most)
        weights = mx.array((counted * (places + 1 if mode == "weightedmean" else 1)).astype(np.float32))
        total = (weights[:, None] @ mx.where(seen, hidden, 0))[:, 0]
        return total if kept is None else kept + total

    def result(self) -> mx.array:
        """`[texts, width]`: those of the modes side by side."""
        made = []
        for mode, kept in zip(self._modes, self.kept, strict=True):
            assert kept is not None
            first, end = self._first[:, None], self._counts[:, None]
            size = end - first
            if mode == "weightedmean":
                size = (end * (end + 1) - first * (first + 1)) // 2
            if mode == "mean_sqrt_len_tokens":
                size = np.sqrt(size)
            made.append(kept if mode in ("cls", "lasttoken", "max") else kept / mx.array(size.astype(np.float32)))
        return made[0] if len(made) == 1 else mx.concatenate(made, axis=-1)


def _read_dense(layer: Dense) -> nn.Linear:
    """The layer, evaluated when it is first run."""
    found = sorted(layer.folder.glob("*.safetensors"))
    if not found:
        raise ModelLoadError(f"There are no safetensors in '{layer.folder.name}' next to its config.json.")
    weights = mx.load(str(found[0]))
    assert isinstance(weights, dict)
    weight, bias = weights["linear.weight"].astype(mx.float32), weights.get("linear.bias")
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    return made.update({"weight": weight} if bias is None else {"weight": weight, "bias": bias.astype(mx.float32)})


def inner_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules in one another, by name, of which the last makes a decoder's hidden states; none: the model does.

    Some of mlx-vlm's models name themselves as their language model.
    """
    path = [("", model)]
    while True:
        parts = ((name, getattr(path[-1][1], name, None)) for name in _INNER)
        found = next((p for p in parts if callable(p[1]) and not any(p[1] is each for _, each in path)), None)
        if found is None:
            return path[1:]
        path.append(found)


def decoder_encoder(model: nn.Module, new_cache: Callable[[], RowCache], path: Path) -> Encoder | None:
    """Make an encoder of a decoder; None where its code gives nothing but logits.

    Args:
        model: of mlx-lm, or mlx-vlm's language model.
        new_cache: an empty cache, an object per layer.
        path: the checkpoint's folder: files of sentence-transformers say how states are pooled, if there are any.
    """
    inner = [("", model), *inner_modules(model)][-1][1]
    files, forms = read_sentence_files(path) or SentenceFiles(("lasttoken",)), host().forms()

    def begin() -> Read:
        cache = new_cache()

        def read(tokens: mx.array) -> mx.array:
            given, padding = forms.fill(tokens, cache)
            states: mx.array = inner(given, cache=cache)
            forms.forget(cache, padding)
            return states[:, : tokens.shape[1]]

        return read

    def hidden(tokens: mx.array, mask: mx.array) -> mx.array:
        # Padding is on the right, where causal attention never looks.
        states: mx.array = inner(tokens, cache=new_cache())
        return states

    try:
        token = mx.zeros((1, 1), mx.int32)
        made = model(token, cache=new_cache())
        if inner is model or hidden(token, token).shape[-1] == getattr(made, "logits", made).shape[-1]:
            return None
        return Encoder(hidden, Head(files), begin=begin)
    except Exception:
        log.debug("this model's hidden states cannot be had", exc_info=True)
        return None

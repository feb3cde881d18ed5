"""Encoders of mlx-vlm: models that only make vectors of texts, and rerankers that are sequence classifiers.

A reranker reads a query and a document, and has one label.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
from mlx import nn

from ..engine.ports import TextHead, host
from ..options import LoadOptions
from ..types import Adapter, Json, ModelLoadError, NewWeights, Product, Task
from ..vectors import Reranking
from .checkpoint.files import Checkpoint, context_length, read_json
from .config.reading import encoder_config
from .heads.generative_reranker import PairTokenizer
from .heads.pooling import TOKEN_VECTORS, Encoder, Head, Reading, SentenceFiles, pad, read_sentence_files
from .text import ReadCheckpoint, TextTokenizer

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from tokenizers import Tokenizer

_ENCODERS = {
    **{name: name for name in ("bert", "llama_bidirec", "modernbert")},
    **dict.fromkeys(("camembert", "roberta", "xlm-roberta", "xlm_roberta"), "xlm_roberta"),
}
"""model_type -> mlx-vlm's module, of what embeds and does nothing else."""
_WITHOUT_HEAD = {
    "gemma3_text": "gemma3_embedding",
    "lfm2": "lfm2_embedding",
    "ministral3": "ministral3_embedding",
    "qwen3": "qwen3_embedding",
}
"""The same for models that otherwise generate text: with files of sentence-transformers, or no head."""
_WITH_HEAD = ("ForCausalLM", "ForConditionalGeneration")
_POSITIONS_BEHIND_PADDING = "xlm_roberta"
_USUAL_MODES = {"lfm2_embedding": "cls", "qwen3_embedding": "lasttoken"}
"""Of checkpoints without these files; the others have the mean."""
_OWN_LAYER = re.compile(r"\d+_[A-Z]\w*\.")  # weights of a folder beside the model's own


def use_exact_gelu(model: nn.Module) -> None:
    """Let all GELUs that a model is made of be exact; some of mlx-vlm's are approximations, which move vectors by 1e-4.

    Args:
        model: its modules are changed.
    """
    exact = host().forms().exact_gelu
    for module in model.modules():
        for name, child in module.children().items():
            if isinstance(child, nn.GELU):
                setattr(module, name, exact)


def encoder_module(folder: Path, config: Json) -> str | None:
    """mlx-vlm's module for a checkpoint that only embeds; None: it is none."""
    kind, classes = str(config.get("model_type", "")), config.get("architectures") or ()
    headless = bool(classes) and not any(str(name).endswith(_WITH_HEAD) for name in classes)
    if kind in _WITHOUT_HEAD and (headless or (folder / "modules.json").exists()):
        return _WITHOUT_HEAD[kind]
    return _ENCODERS.get(kind)


class FixedModel(ReadCheckpoint):
    """A model that takes neither other weights nor adapters: it generates no text."""

    what = "a model that generates no text"
    adapter_bytes = 0
    eos_token_ids: frozenset[int] = frozenset()
    generation_defaults: Mapping[str, object] = {}

    def read_weights(self, weights: NewWeights) -> Callable[[], None]:
        raise ModelLoadError(f"the weights of {self.what} cannot be updated")

    def add_adapter(self, adapter: Adapter, products: Mapping[str, Product]) -> Iterator[None]:
        raise ModelLoadError(f"{self.what} takes no adapters")

    def remove_adapter(self, adapter: Adapter) -> Iterator[None]:
        return iter(())

    def adapted(self, adapters: Sequence[Adapter | None]) -> AbstractContextManager[None]:
        raise ValueError("this model has no adapters")


class EncoderModel(FixedModel):
    """An encoder of mlx-vlm and its tokenizer, whatever it is for. Made on the engine thread.

    Args:
        files: contents of the files in its folder.
        more: parameters that the model itself does not have.

    Attributes: as those of `TextModel`; `text` may be used from any thread.
    """

    libraries = ("mlx", "mlx-lm", "mlx-vlm", "transformers")

    def __init__(self, checkpoint: Checkpoint, files: SentenceFiles, more: Sequence[mx.array] = ()) -> None:
        super().__init__(checkpoint, more)
        _, model, tokenizer, config, path, options, _ = checkpoint
        module, padding = encoder_module(path, config) or "", config.get("pad_token_id")
        self._model = model
        self._padding = 0  # nothing looks at what stands there
        if isinstance(padding, int) and 0 <= padding < config.get("vocab_size", padding + 1):
            self._padding = padding
        use_exact_gelu(model)
        self.context_length: int | None = max_tokens(module, config, files, options)
        if (backend := getattr(tokenizer._tokenizer, "backend_tokenizer", None)) is not None:
            backend.no_truncation()  # the files of many embedders say that it should cut and pad
            backend.no_padding()
        self.text = TextTokenizer(tokenizer, True, model)


def _load(
    path: Path, options: LoadOptions, config: Json, name: str, class_name: str, **more: object
) -> tuple[nn.Module, TokenizerWrapper]:
    """A class of mlx-vlm's module of this name, whose weights are not read yet, and its tokenizer."""
    from mlx_lm.utils import load_tokenizer
    from mlx_vlm.encoder_loader import load_encoder_model

    how = {"model_remapping": {str(config["model_type"]): name}, "model_class_name": class_name, **more}
    model = load_encoder_model(path, config=config, lazy=True, **how)
    return model, load_tokenizer(path, {"trust_remote_code": options.get("trust_remote_code", False)})


class EmbeddingModel(EncoderModel):
    """An encoder that makes vectors of texts."""

    tasks: Sequence[Task] = ("embed",)

    def __init__(self, checkpoint: Checkpoint) -> None:
        path = checkpoint.path
        usual = _USUAL_MODES.get(encoder_module(path, checkpoint.config) or "", "mean")
        files = read_sentence_files(path) or SentenceFiles((usual,))
        self._own: Sequence[nn.Module] | None = getattr(checkpoint.model, "dense", None)
        head = Head(files, self._own)
        super().__init__(checkpoint, files, head.parameters)
        self.encode = Encoder(self._hidden, head, self._padding)
        self.heads: Mapping[Task, TextHead] = {"embed": self.encode}
        self.settings: Mapping[Task, object] = {"embed": self.encode.settings}

    @staticmethod
    def read(path: Path, options: LoadOptions) -> tuple[nn.Module, TokenizerWrapper, Json]:
        """A checkpoint's model, whose weights are not read yet, its tokenizer and its config."""
        if options.get("adapter_path") is not None:
            raise ModelLoadError(f"adapter_path: '{path.name}' makes vectors of texts, and takes no LoRA adapters.")
        name = encoder_module(path, read_json(path / "config.json"))
        assert name is not None
        config = encoder_config(path, name)
        if any("colbert" in str(each).lower() for each in config.get("architectures") or ()):
            raise ModelLoadError(f"The model '{path.name}' cannot be served: it {TOKEN_VECTORS}.")
        read_sentence_files(path)  # what they say of another kind is refused before the weights are read
        module = importlib.import_module(f"mlx_vlm.models.{name}")
        own = module.Model if name == "gemma3_embedding" else _without_layers(module.Model)
        vars(module)["LocalModel"] = own
        return *_load(path, options, config, name, "LocalModel"), config

    def _hidden(self, tokens: mx.array, mask: mx.array) -> mx.array:
        if self._own is not None:
            return _gemma_states(self._model.model, tokens, mask)
        states: mx.array = self._model(tokens, attention_mask=mask).last_hidden_state
        return states


def _gemma_states(model: nn.Module, tokens: mx.array, mask: mx.array) -> mx.array:
    """Hidden states of EmbeddingGemma. mlx-vlm's own code lets tokens see all others where they have a window."""
    h = model.embed_tokens(tokens)
    h = h * mx.array(model.config.hidden_size**0.5, h.dtype)
    least = mx.finfo(h.dtype).min  # not infinite: padding may see nothing
    everything = mx.where(mask[:, None, None, :] == 1, 0, least).astype(h.dtype)
    places = mx.arange(tokens.shape[1])
    near = mx.abs(places[:, None] - places[None]) <= model.window_size // 2
    window = mx.where(near, everything, least).astype(h.dtype)
    for i, layer in enumerate(model.layers, 1):
        h = layer(h, window if i % model.sliding_window_pattern else everything, None)
    states: mx.array = model.norm(h)
    return states


def _without_layers(model_class: type) -> type:
    """A class of mlx-vlm that leaves the weights of sentence-transformers' own layers alone."""

    class LocalModel(model_class):  # type: ignore[misc]
        def sanitize(self, weights: dict[str, mx.array]) -> object:
            return super().sanitize({name: a for name, a in weights.items() if not _OWN_LAYER.match(name)})

    return LocalModel


def max_tokens(module: str, config: Json, files: SentenceFiles, options: LoadOptions) -> int | None:
    """Most tokens of a text: the least of what the model, its files and the client allow."""
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and module == _POSITIONS_BEHIND_PADDING:
        behind = config.get("pad_token_id", 1)
        if not isinstance(behind, int) or not 0 <= behind < min(positions, config.get("vocab_size", positions)):
            raise ModelLoadError(
                f"config.json: pad_token_id is {behind!r}, and the {positions} positions begin behind it"
            )
        positions -= behind + 1
    limits = (positions, files.max_tokens, options.get("context_length"))
    return min((limit for limit in limits if isinstance(limit, int)), default=None)


_KINDS = ("bert", "modernbert", "xlm_roberta")
"""mlx-vlm's modules that have such a head."""


def is_classifier(config: Json) -> bool:
    """True if a checkpoint has a head that makes labels of texts."""
    return any(str(name).endswith("ForSequenceClassification") for name in config.get("architectures") or ())


class ClassifierModel(EncoderModel):
    """An encoder with a head of one label."""

    tasks: Sequence[Task] = ("rerank",)

    def __init__(self, checkpoint: Checkpoint) -> None:
        tokenizer = checkpoint.tokenizer._tokenizer
        super().__init__(checkpoint, SentenceFiles(("cls",), max_tokens=context_length({}, tokenizer)))
        pairs, separator = _pair_tokenizer(tokenizer.backend_tokenizer)
        self.score = _Classifier(self._model, self._padding, separator, Reranking(pairs))
        self.heads: Mapping[Task, TextHead] = {"rerank": self.score}
        self.settings: Mapping[Task, object] = {"rerank": self.score.settings}

    @staticmethod
    def read(path: Path, options: LoadOptions) -> tuple[nn.Module, TokenizerWrapper, Json]:
        """A checkpoint's model, whose weights are not read yet, its tokenizer and its config.

        Raises:
            ModelLoadError: it is not a reranker.
        """
        config = read_json(path / "config.json")
        named = config.get("id2label")
        labels = config.get("num_labels") or (len(named) if isinstance(named, dict) else 2)  # as transformers has it
        name = encoder_module(path, config)
        if name not in _KINDS or labels != 1:
            raise ModelLoadError(
                f"'{path.name}' is a sequence classifier of {config.get('model_type')} with {labels} labels. Those "
                "that rerank have one label, and are of bert, modernbert or xlm-roberta; no others can be served."
            )
        if options.get("adapter_path") is not None:
            raise ModelLoadError(f"adapter_path: '{path.name}' reranks documents, and takes no LoRA adapters.")
        config = encoder_config(path, name)
        overrides: Json = {"config_overrides": {"num_labels": 1}}
        model, tokenizer = _load(path, options, config, name, "SequenceClassificationModel", **overrides)
        if not hasattr(tokenizer._tokenizer, "backend_tokenizer"):
            raise ModelLoadError(f"'{path.name}' has no tokenizer.json: there is no fast tokenizer for it.")
        return model, tokenizer, config


class _Classifier:
    """Scores pairs by the label of a classifier.

    Args:
        model: mlx-vlm's.
        padding: the token that fills shorter pairs.
        separator: the token behind the query where the document has another type; None: it has not.
        settings: for endpoints.
    """

    def __init__(self, model: nn.Module, padding: int, separator: int | None, settings: Reranking) -> None:
        self._model, self._padding, self._separator, self.settings = model, padding, separator, settings

    def __call__(self, pairs: Sequence[Sequence[int]], skip: int = 0) -> mx.array:
        """The relevance of each document to its query: `[pairs, 1]`, lazy."""
        tokens, mask = pad(pairs, self._padding)
        given = {"attention_mask": mx.array(mask)}
        if self._separator is not None:  # tokens behind the first separator are of the second kind
            ends = tokens == self._separator
            given["token_type_ids"] = mx.array((ends.cumsum(axis=1) > ends).astype(np.int32))
        logits: mx.array = self._model(mx.array(tokens), **given).logits[: len(pairs)]
        return mx.sigmoid(logits.astype(mx.float32))

    def begin(self, pair: Sequence[int], skip: int = 0) -> Reading | None:
        """Nothing: attention looks in both directions."""
        return None


def _pair_tokenizer(backend: Tokenizer) -> tuple[PairTokenizer, int | None]:
    """Maker of pairs, and the token behind the query where the document has another type; None: it has not."""
    pair = backend.encode("a", "b")
    query, document = ([i for i, part in enumerate(pair.sequence_ids) if part == which] for which in (0, 1))
    parts = (pair.ids[: query[0]], pair.ids[query[-1] + 1 : document[0]], pair.ids[document[-1] + 1 :])
    separator = pair.ids[pair.type_ids.index(1) - 1] if 1 in pair.type_ids else None
    return PairTokenizer(backend, *parts), separator

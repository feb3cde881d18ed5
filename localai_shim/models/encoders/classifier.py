"""Rerankers that are sequence classifiers: encoders of mlx-vlm that read a query and a document, with one label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...engine.ports import TextHead
from ...options import LoadOptions
from ...types import Json, ModelLoadError, Task
from ...vectors import Reranking
from ..checkpoint_files import Checkpoint, context_length, read_json
from ..config.reading import encoder_config
from ..heads.generative_reranker import PairTokenizer
from ..heads.pooling import Reading, pad
from ..heads.sentence_files import SentenceFiles
from .embedding import EncoderModel, encoder_module

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from tokenizers import Tokenizer

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
        from mlx_lm.utils import load_tokenizer
        from mlx_vlm.encoder_loader import load_encoder_model

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
        model = load_encoder_model(
            path,
            config=config,
            model_remapping={str(config["model_type"]): name},
            model_class_name="SequenceClassificationModel",
            config_overrides={"num_labels": 1},
            lazy=True,
        )
        tokenizer = load_tokenizer(path, {"trust_remote_code": options.get("trust_remote_code", False)})
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
        import mlx.core as mx

        tokens, mask = pad(pairs, self._padding)
        given = {"attention_mask": mx.array(mask)}
        if self._separator is not None:  # what stands behind the first one is of the second kind
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

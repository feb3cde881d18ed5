"""Models that make vectors of texts and nothing else: encoders of mlx-vlm."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..options import LoadOptions
from ..types import ModelLoadError, Task
from .files import read_json
from .pooling import Encoder, Head
from .sentence import SentenceFiles, read_sentence_files
from .text import TextTokenizer, fingerprint

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn

_ENCODERS = {
    "bert": "bert",
    "camembert": "xlm_roberta",
    "llama_bidirec": "llama_bidirec",
    "modernbert": "modernbert",
    "roberta": "xlm_roberta",
    "xlm-roberta": "xlm_roberta",
    "xlm_roberta": "xlm_roberta",
}
"""model_type -> mlx-vlm's module, of what embeds and does nothing else."""
_WITHOUT_HEAD = {
    "gemma3_text": "gemma3_embedding",
    "lfm2": "lfm2_embedding",
    "ministral3": "ministral3_embedding",
    "qwen3": "qwen3_embedding",
}
"""The same of what generates text otherwise: with files of sentence-transformers beside it, or no head."""
_WITH_HEAD = ("ForCausalLM", "ForConditionalGeneration")
_POSITIONS_BEHIND_PADDING = "xlm_roberta"
_USUAL_MODES = {"lfm2_embedding": "cls", "qwen3_embedding": "lasttoken"}
"""Of checkpoints without these files; the others have the mean."""
_OWN_LAYER = re.compile(r"\d+_[A-Z]\w*\.")  # weights of a folder beside the model's own


def encoder_module(folder: Path, config: dict[str, Any]) -> str | None:
    """mlx-vlm's module for a checkpoint that only embeds; None: it is none."""
    kind, classes = str(config.get("model_type", "")), config.get("architectures") or ()
    headless = bool(classes) and not any(str(name).endswith(_WITH_HEAD) for name in classes)
    if kind in _WITHOUT_HEAD and (headless or (folder / "modules.json").exists()):
        return _WITHOUT_HEAD[kind]
    return _ENCODERS.get(kind)


class EmbeddingModel:
    """An encoder of mlx-vlm and its tokenizer. Made on the engine thread; `text` may be used from any.

    Attributes: as those of `TextModel`.
    """

    libraries: Sequence[str] = ("mlx", "mlx-lm", "mlx-vlm", "transformers")
    tasks: Sequence[Task] = ("embed",)
    reranking = None

    def __init__(
        self, name: str, model: nn.Module, tokenizer: Any, config: dict[str, Any], path: Path, options: LoadOptions
    ) -> None:
        from mlx.utils import tree_flatten

        module = encoder_module(path, config) or ""
        files = read_sentence_files(path) or SentenceFiles((_USUAL_MODES.get(module, "mean"),))
        self.name, self.tokenizer = name, tokenizer
        self._model: Any = model
        self._own: Sequence[Any] | None = getattr(model, "dense", None)
        if module == "modernbert":
            for layer in self._model.layers:
                layer.mlp.act = gelu()  # mlx-vlm's is an approximation, which moves vectors by 1e-4
        head = Head(files, self._own)
        padding = config.get("pad_token_id")
        self.encode = Encoder(self._hidden, head, padding if isinstance(padding, int) else 0)
        parameters = [array for _, array in tree_flatten(model.parameters())] + head.parameters
        self.weight_bytes = sum(array.nbytes for array in parameters)
        self.context_length: int | None = max_tokens(module, config, files, options)
        self.embedding = self.encode.embedding
        take_all(tokenizer._tokenizer)
        self.text = TextTokenizer(tokenizer, cuts_anywhere=True)
        self.eos_token_ids: frozenset[int] = frozenset()
        self.generation_defaults: dict[str, Any] = {}
        self.fingerprint = fingerprint(config, path, options, parameters, self.libraries)
        self.created = int((path / "config.json").stat().st_mtime)

    @staticmethod
    def read(path: Path, options: LoadOptions) -> tuple[nn.Module, Any, dict[str, Any]]:
        """A checkpoint's model, whose weights are not read yet, its tokenizer and its config."""
        from mlx_lm.utils import load_tokenizer
        from mlx_vlm.encoder_loader import load_encoder_model

        if options.get("adapter_path") is not None:
            raise ModelLoadError(f"adapter_path: '{path.name}' makes vectors of texts, and takes no LoRA adapters.")
        config = read_json(path / "config.json")
        name = encoder_module(path, config)
        assert name is not None
        module: Any = importlib.import_module(f"mlx_vlm.models.{name}")
        module.LocalModel = module.Model if name == "gemma3_embedding" else _without_layers(module.Model)
        remapping = {str(config["model_type"]): name}
        model = load_encoder_model(path, model_remapping=remapping, model_class_name="LocalModel", lazy=True)
        tokenizer = load_tokenizer(path, {"trust_remote_code": options.get("trust_remote_code", False)})
        return model, tokenizer, config

    def score(self, pairs: Sequence[Sequence[int]]) -> mx.array:
        raise ValueError("this model ranks no documents")

    def warm_up(self) -> None:
        """Nothing is prepared before it is needed."""

    def _hidden(self, tokens: mx.array, mask: mx.array) -> mx.array:
        if self._own is not None:
            return _gemma_states(self._model.model, tokens, mask)
        states: mx.array = self._model(tokens, attention_mask=mask).last_hidden_state
        return states


def _gemma_states(model: Any, tokens: mx.array, mask: mx.array) -> mx.array:
    """Hidden states of EmbeddingGemma. mlx-vlm's own code lets tokens see all others where they have a window."""
    import mlx.core as mx

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


def gelu() -> nn.Module:
    from mlx import nn

    return nn.GELU()


def _without_layers(model_class: type) -> type:
    """A class of mlx-vlm that leaves the weights of sentence-transformers' own layers alone."""

    class LocalModel(model_class):  # type: ignore[misc]
        def sanitize(self, weights: dict[str, Any]) -> Any:
            return super().sanitize({name: a for name, a in weights.items() if not _OWN_LAYER.match(name)})

    return LocalModel


def max_tokens(module: str, config: dict[str, Any], files: SentenceFiles, options: LoadOptions) -> int | None:
    """Most tokens of a text: the least of what the model, its files and the client allow."""
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and module == _POSITIONS_BEHIND_PADDING:
        positions -= int(config.get("pad_token_id", 1)) + 1
    limits = (positions, files.max_tokens, options.get("context_length"))
    return min((limit for limit in limits if isinstance(limit, int)), default=None)


def take_all(tokenizer: Any) -> None:
    """Have a fast tokenizer neither cut nor pad: the files of many embedders say that it should."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.no_truncation()
        backend.no_padding()

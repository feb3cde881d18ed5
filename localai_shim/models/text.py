"""Text models of mlx-lm."""

from __future__ import annotations

import copy
import hashlib
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from ..backends.machine import has_gpu
from ..engine.cache_contents import Quantised, RowCache, is_trimmable
from ..engine.ports import Features, PassOutput, StepInput, TextHead, host
from ..media import Media, MediaKind, MediaSize, MediaSpan, ProcessedMedia
from ..options import LoadOptions
from ..output.detokenizer import TokenBytes
from ..threads.panics import PanicError, panics_are_errors
from ..types import Adapter, Json, NewWeights, Product, Prompt, Task
from . import caches
from .chat_templates import limited_template
from .checkpoint.files import Checkpoint, context_length, fingerprint
from .checkpoint.generation_config import generation_defaults
from .config.reading import load_text_model, query_heads
from .gguf.checkpoint import read_checkpoint, read_wrapped_tokenizer
from .gguf.detection import is_gguf
from .heads.generative_reranker import find_judge
from .heads.last_logits import Split, end_tokens
from .heads.pooling import decoder_encoder
from .misreading_layers import batch_attention

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from transformers import PreTrainedTokenizerBase

    from .adapters.bank import Bank

Tools = list[Json] | None
Restore = Callable[[str], str] | None


class TextTokenizer:
    """A text model's tokenizer and chat template. May be used from any thread.

    It does not know the model: llguidance's tokenizer, a native object that the garbage collector cannot look into,
    holds it, and must not hold the weights.

    Attributes:
        tokenizer: mlx-lm's `TokenizerWrapper`.
        cuts_anywhere: rows' caches can be cut to any shorter length.
        is_quick: tokenising is the tokenizers library's.
        embedded: tokens that the model has embeddings of, where that is not all of them. MLX does not check: another
            one's would be whatever follows them in memory.
    """

    media_kinds: frozenset[MediaKind] = frozenset()

    def __init__(self, tokenizer: TokenizerWrapper, cuts_anywhere: bool, model: nn.Module | None = None) -> None:
        correct_decoder(tokenizer._tokenizer)
        self.tokenizer = tokenizer
        self.embedded = None if model is None else _embedded(model, tokenizer)
        self.cuts_anywhere = cuts_anywhere
        self.is_quick = is_plain_fast(tokenizer._tokenizer)

    def process(self, media: Media) -> ProcessedMedia:
        raise ValueError("this model reads text only")

    def unread(self, size: MediaSize) -> ProcessedMedia | None:
        return None

    def spans(self, ids: Sequence[int], media: Sequence[ProcessedMedia]) -> list[MediaSpan]:
        return []

    def apply_chat_template(
        self,
        messages: list[Json],
        variables: Json,
        tools: Tools = None,
        add_generation_prompt: bool = True,
        restore: Restore = None,
        media: Sequence[ProcessedMedia] = (),
    ) -> list[int]:
        """Prompt tokens for a conversation; `restore` changes the rendered text before it is tokenised."""
        if media:
            messages, variables, tools, restore = self._with_media(media, messages, variables, tools, restore)
        text = render(self.tokenizer, messages, variables, tools, add_generation_prompt)
        return self.encode(text if restore is None else restore(text), add_special_tokens=False)

    def _with_media(
        self, media: Sequence[ProcessedMedia], messages: list[Json], variables: Json, tools: Tools, restore: Restore
    ) -> tuple[list[Json], Json, Tools, Restore]:
        """Arguments of the template for a conversation with media, and what changes the text that it makes."""
        raise ValueError("this model reads text only")

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""
        return self.encode_all([text], add_special_tokens=add_special_tokens)[0]

    @panics_are_errors
    def encode_all(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]:
        """Encode each text like `encode`; fast tokenizers run several at once.

        Where the tokenizer is a plain fast one this goes past transformers, which holds the GIL for long over long
        texts: it lists attention masks and offsets that are not needed.
        """
        tokenizer, how = self.tokenizer._tokenizer, {"add_special_tokens": add_special_tokens}
        if not is_plain_fast(tokenizer):
            return [_checked([int(i) for i in tokenizer.encode(text, **how)], self) for text in texts]
        return [_checked(made.ids, self) for made in tokenizer.backend_tokenizer.encode_batch_fast(list(texts), **how)]


def _checked(ids: list[int], tokenizer: TextTokenizer) -> list[int]:
    """Tokens that the model has embeddings of; any other is an error of the text, as a panic is."""
    most = tokenizer.embedded
    if most is not None and (beyond := next((i for i in ids if i >= most), None)) is not None:
        token = tokenizer.tokenizer.convert_ids_to_tokens(beyond)
        raise PanicError(f"its token {beyond}, {token!r}, is beyond the model's {most} embeddings")
    return ids


def _embedded(model: nn.Module, tokenizer: TokenizerWrapper) -> int | None:
    """Tokens that a model has embeddings of; None if that is all of them, or not known."""
    kinds = (nn.Embedding, nn.QuantizedEmbedding)
    rows = max((each.weight.shape[0] for each in model.modules() if isinstance(each, kinds)), default=None)
    last = max(tokenizer.get_vocab().values(), default=-1)
    return None if rows is None or last < rows else rows


def render(
    tokenizer: TokenizerWrapper, messages: list[Json], variables: Json, tools: Tools, add_generation_prompt: bool
) -> str:
    """The text of a conversation; `tokenizer` is mlx-lm's `TokenizerWrapper`.

    mlx-lm's wrapper turns thinking on whenever the vocabulary has think markers. Here what the caller does not
    say is left to the template, as its author meant it and as OpenAI-compatible servers do.
    """
    program = tokenizer._chat_template is not None
    limited = {} if program else limited_template(tokenizer._tokenizer, tools)
    if "enable_thinking" not in variables and not program:
        tokenizer = tokenizer._tokenizer
    if program:  # mlx-lm's own, DeepSeek's: it raises for names that it does not know, such as an effort
        aliases = {"enable_thinking": variables["thinking"]} if "thinking" in variables else {}
        known = {k: v for k, v in variables.items() if k not in ("thinking", "reasoning_effort")}
        variables = {**aliases, **known}
    if tools is not None:
        variables = {**variables, "tools": tools}
        if program and tools and messages[0]["role"] != "system":  # where it lists tools
            messages = [{"role": "system", "content": ""}, *messages]
    how = {"add_generation_prompt": add_generation_prompt, **variables}
    if not program and any(message.get("content", "") is None for message in messages):
        return _render_nulls(tokenizer, messages, {**limited, **how})
    text: str = tokenizer.apply_chat_template(messages, tokenize=False, **{**limited, **how})
    return text


def _render_nulls(tokenizer: PreTrainedTokenizerBase, messages: list[Json], how: Json) -> str:
    """The text of a conversation whose template tells a content that is null from none: transformers drops nulls."""
    from transformers.utils.chat_template_utils import render_jinja_template

    source = tokenizer.get_chat_template(tools=how.get("tools"))
    how = {"chat_template": source, **tokenizer.special_tokens_map, **how}
    [text], _ = render_jinja_template([messages], **how)
    return str(text)


class ReadCheckpoint:
    """Base of models of all kinds: properties that they have of their checkpoints.

    Args:
        more: parameters that the model itself does not have.

    Attributes:
        name: what `response.model` says.
        tokenizer: mlx-lm's `TokenizerWrapper`.
        fingerprint: changes with the model, the options and the versions of what computes.
    """

    libraries: Sequence[str] = ("mlx", "mlx-lm", "transformers")
    """The model that computes."""
    applied: Mapping[str, int] = {}
    """Forms of this machine that were applied, each with its number of layers."""

    def __init__(self, checkpoint: Checkpoint, more: Sequence[mx.array] = ()) -> None:
        name, model, tokenizer, config, path, options, contents = checkpoint
        self.name, self.tokenizer = name, tokenizer
        parameters = [*(array for _, array in tree_flatten(model.parameters())), *more]
        self.weight_bytes = sum(array.nbytes for array in parameters)
        self.fingerprint = fingerprint(config, contents, options, parameters, self.libraries)
        made = path if is_gguf(path) else path / "config.json"
        self.created = int(made.stat().st_mtime) if made.exists() else 0


class TextModel(ReadCheckpoint):
    """An mlx-lm model and its tokenizer. Made on the engine thread; tokenizer and `text` may be used from any.

    Attributes:
        folder: the checkpoint's, or its GGUF file.
        config: the checkpoint's.
        generation_defaults: the model's generation_config.json, or {}.
        text: what makes prompts for it.
        one_token: rows that decode take one token per step, whatever a trial with text says.
        end_tokens: most tokens of a pass that should end a prompt with its last token's logits; 0: none can.
        gives_hidden: passes return hidden states if these are wanted.
    """

    request_defaults: Mapping[str, object] = {}
    """Other defaults for fields of requests: a system prompt, stop strings, a seed, penalties."""
    _decoder: nn.Module | None = None
    """Part of the model that gives logits of tokens, where there is one."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        _, model, tokenizer, config, path, options, _ = checkpoint
        self._forms = host().forms()
        batch_attention(model)
        super().__init__(checkpoint)
        self.one_token = False
        self._model, self.config, self.folder = model, config, path
        self.generation_defaults = generation_defaults(path, config)
        bits = options.get("kv_bits")  # None: keys and values are kept as they are
        self._kv = None if bits is None else Quantised(options.get("kv_group_size") or 64, bits)
        self.context_length = options.get("context_length") or context_length(config, tokenizer)
        self.eos_token_ids = frozenset(int(i) for i in tokenizer.eos_token_ids)
        self.samples_on_device, self.query_heads = has_gpu(), query_heads(config)
        self._fills_media = False
        plain_cache = partial(type(self)._plain_cache, weakref.proxy(self))  # nothing holds the model but its engine
        self.encode = decoder_encoder(self.decoder, plain_cache, path)
        self._split: Split | None = None
        self._bank: Bank | None = None
        self.end_tokens, self.gives_hidden = 0, self.encode is not None
        if self.gives_hidden:  # what computes hidden states is known
            self.end_tokens = end_tokens(len(self.new_cache()), self.weight_bytes)
        self.score = find_judge(self.decoder, self.encode, tokenizer, config)
        heads: dict[Task, TextHead | None] = {"embed": self.encode, "rerank": self.score}
        self.heads = {task: head for task, head in heads.items() if head is not None}
        self.settings: Mapping[Task, object] = {task: head.settings for task, head in self.heads.items()}
        self.tasks: Sequence[Task] = ("generate", *self.heads)
        contents = [caches.read(layer) for layer in self.new_cache()]
        cuts_anywhere = all(layer is not None and is_trimmable(layer) for layer in contents)
        self.text = TextTokenizer(tokenizer, cuts_anywhere, model)

    @property
    def decoder(self) -> nn.Module:
        """The part of the model that gives logits of tokens."""
        return self._decoder or self._model

    @staticmethod
    def read(path: Path, options: LoadOptions) -> tuple[nn.Module, TokenizerWrapper, Json]:
        """A checkpoint's model, whose weights are not read yet, its tokenizer and its config."""
        trusted, adapter_path = options.get("trust_remote_code", False), options.get("adapter_path")
        if is_gguf(path):
            import mlx_lm.utils

            model, tokenizer, config = read_checkpoint(path)
            if adapter_path is not None:
                model = mlx_lm.utils.load_adapters(model, os.fspath(adapter_path)).eval()
            return model, tokenizer, config
        return load_text_model(
            path,
            adapter_path=None if adapter_path is None else os.fspath(adapter_path),
            tokenizer_config={"trust_remote_code": trusted},
            trust_remote_code=trusted,
        )

    def check(self) -> None:
        """Refuse options that could have no effect."""
        if self._kv is not None:
            from .row_caches import fitting

            self._kv = fitting(self._kv, self)

    def new_cache(self) -> RowCache:
        """An empty cache for one row: an object per layer."""
        cache = self._plain_cache()
        if self._kv is None:
            return cache
        from .row_caches import pack

        return pack(cache, self._kv)

    def _plain_cache(self) -> RowCache:
        from mlx_lm.models.cache import make_prompt_cache

        return list(make_prompt_cache(self._model))

    def warm_up(self) -> None:
        """Prepare for steps and for passes of the lengths that prompts are filled up to; takes seconds on CUDA.

        What is prepared belongs to the thread that calls this.
        """
        for length in self._forms.warm_up(self._model):
            cache = self.new_cache()
            self.prefill(StepInput(mx.zeros((1, length), mx.int32), cache))
            mx.eval(self.forward(StepInput(mx.zeros((1, 1), mx.int32), cache)).logits)

    def prefill(self, step: StepInput, *, wait: bool = True) -> PassOutput[mx.array | None]:
        """Run tokens into the layers, and wait for it unless told not to.

        Returns:
            The logits after each row's last token, `[rows, vocabulary]`, where `step.ends`, and hidden states.
        """
        fills = self._fills_media or not step.media
        tokens, padding = self._forms.fill(step.tokens, step.layers) if fills else (step.tokens, 0)
        with self._forms.waited_for(), self._adapted(step):
            made, hidden = self._run(step, tokens)
        logits = made[:, 0].astype(mx.float32) if step.ends else None
        if hidden is not None:
            rows, k = step.tokens.shape
            hidden = hidden[:rows, :k]
        self._forms.forget(step.layers, padding)
        (mx.eval if wait else mx.async_eval)(logits, hidden, [layer.state for layer in step.layers])
        return PassOutput(logits, hidden)

    def forward(self, step: StepInput) -> PassOutput[mx.array]:
        """Logits after each token, `[rows, k, vocabulary]`, and hidden states, lazy.

        Of several tokens an x86 CPU may have computed nearly all of it: there such a step is never built ahead.
        """
        with self._forms.waited_for(step.tokens.shape[1] > 1 and not self.samples_on_device), self._adapted(step):
            logits, hidden = self._run(step, step.tokens)
            return PassOutput(logits.astype(mx.float32), hidden)

    def _run(self, step: StepInput, tokens: mx.array) -> PassOutput[mx.array]:
        """Run a pass with these tokens instead of the step's. Logits have the model's own type.

        If the pass ends prompts, they are those of the last tokens.
        """
        if step.media or (step.state is not None and any(state is not None for state in step.state)):
            raise ValueError("a text model takes neither media nor row states")
        with self._forms.turned_from(step.starts):
            return self._call(step, self._model, tokens)

    def _call(self, step: StepInput, model: nn.Module, tokens: mx.array, **arguments: object) -> PassOutput[mx.array]:
        """Run a model; results other than the logits of all tokens come of a copy that is cut before its head."""
        wants_hidden = step.hidden and self.gives_hidden
        if not (step.ends or wants_hidden):
            made, hidden = model(tokens, cache=step.layers, **arguments), None
        else:
            if self._split is None:
                self._split = Split(model)
            rows, k = step.tokens.shape
            last = [count - 1 for count in step.counts or [k] * rows] if step.ends else None
            made, hidden = self._split(tokens, last, cache=step.layers, **arguments)
        return PassOutput(getattr(made, "logits", made), hidden if wants_hidden else None)

    def read_weights(self, weights: NewWeights) -> Callable[[], None]:
        """Read other weights; returns what gives them to the model's layers, with another fingerprint.

        Raises:
            ModelLoadError: they do not fit; names the tensors and the shapes.
        """
        from .weights import read_update

        update = read_update(self._model, weights, self._sanitize, self.config)

        def apply() -> None:
            update()
            self._split = None
            self.fingerprint = "fp_" + hashlib.sha256(f"{self.fingerprint} {weights.digest}".encode()).hexdigest()[:10]

        return apply

    def _sanitize(self, weights: dict[str, mx.array]) -> dict[str, mx.array]:
        """A checkpoint's tensors as loading makes them the model's."""
        if not hasattr(self._model, "sanitize"):
            return weights
        model = copy.copy(self._model)  # some take their head off where none comes, and fail where it is off
        model.setdefault("lm_head", None)
        made: dict[str, mx.array] = model.sanitize(weights)
        return made

    @property
    def adapter_bytes(self) -> int:
        return 0 if self._bank is None else self._bank.nbytes

    def add_adapter(self, adapter: Adapter, products: Mapping[str, Product]) -> Iterator[None]:
        """Load an adapter piece by piece; once it is through, passes may name it.

        Raises:
            ModelLoadError: it does not fit; names the folder, the tensor and the shapes.
        """
        from .adapters.bank import Bank

        if self._bank is None:
            self._bank = Bank(self.decoder)
        return self._changing_layers(self._bank.add(adapter, products))

    def remove_adapter(self, adapter: Adapter) -> Iterator[None]:
        """Forget an adapter piece by piece; it may be gone."""
        return iter(()) if self._bank is None else self._changing_layers(self._bank.remove(adapter))

    def _changing_layers(self, pieces: Iterator[None]) -> Iterator[None]:
        try:
            for _ in pieces:
                self._split = None  # it knows the layers as they were
                yield
        finally:
            self._split = None

    def adapted(self, adapters: Sequence[Adapter | None]) -> AbstractContextManager[None]:
        """Have the rows of a pass that is built within this use these adapters; one for all rows, if it is one."""
        assert self._bank is not None
        return self._bank.selected(adapters)

    def _adapted(self, step: StepInput) -> AbstractContextManager[None]:
        return nullcontext() if step.adapters is None else self.adapted(step.adapters)

    def embed(self, media: ProcessedMedia) -> Features:
        raise ValueError("this model reads text only")

    def row_state(self, prompt: Prompt) -> object | None:
        return None

    def first_pass(self, prompt: Prompt) -> int:
        return 0


def is_plain_fast(tokenizer: PreTrainedTokenizerBase) -> bool:
    """True if a tokenizer's `encode` is nothing but the tokenizers library."""
    from transformers import PreTrainedTokenizerBase

    return bool(tokenizer.is_fast and type(tokenizer).encode is PreTrainedTokenizerBase.encode)


def correct_decoder(tokenizer: PreTrainedTokenizerBase) -> None:
    """Make a tokenizer decode what it encodes: files may have sentencepiece's decoder behind GPT-2's alphabet."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and TokenBytes(tokenizer).kind == "byte_level" and "ByteLevel" not in repr(backend.decoder):
        from tokenizers import decoders

        backend.decoder = decoders.ByteLevel()


def load_text_tokenizer(path: Path, *, trusts: bool = False) -> TextTokenizer:
    """The tokenizer and chat template alone of a folder, or of a GGUF file.

    Args:
        trusts: run Python code that the folder brings.
    """
    from mlx_lm.utils import load_tokenizer

    loaded = read_wrapped_tokenizer(path) if is_gguf(path) else load_tokenizer(path, {"trust_remote_code": trusts})
    return TextTokenizer(loaded, cuts_anywhere=True)

"""Loads a checkpoint: text models through mlx-lm; those that see, hear, embed or classify through mlx-vlm."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import mlx.core as mx
from mlx.utils import tree_flatten

from ..backends.machine import has_gpu, is_out_of_memory
from ..engine.mirror.journal import journal, mirrored
from ..engine.ports import StepInput, host
from ..options import ANYWHERE, LoadOptions, ModelOptions, Search, check_names, processes
from ..types import ModelLoadError, Task
from .checkpoint.completeness import IncompleteError, check_documents, check_weights
from .checkpoint.contents import contents_of, stamps_of
from .checkpoint.files import Checkpoint, check_files, check_layers, read_json
from .checkpoint.quantization import check_numbers, check_quantization
from .checkpoint.reading import check_ends, check_fields, naming_files, shown
from .config.rope_variants import choose_factors, set_untruncated
from .config.rotary_layers import check_rotation
from .config.unread import check_keys
from .config.windows import compute_windows
from .encoders import ClassifierModel, EmbeddingModel, encoder_module, is_classifier
from .gguf.detection import check_gguf, is_gguf
from .gguf.encoder_files import find_encoder
from .hub import SPEECH_FILES, WHISPER_FILES, fetch
from .mtp.finding import find_head, head_in
from .mtp.head import MTPHead
from .sharded import ShardedModel, evaluate_each
from .speech.families import speech_kind
from .speech.performing import SpeechModel
from .speech.reading import check_whisper, fetch_tokenizer, is_whisper
from .speech.recognizers import RecognizerModel
from .speech.voices import VoiceModel
from .speech.whisper import WhisperModel
from .text import TextModel
from .upstream_imports import LOADING, keeping_file_limits

_VOCABULARIES = ("tokenizer.json", "*.model", "tekken.json", "*.tiktoken", "vocab.json", "vocab.txt")
DRAFT_LIMIT_DIVISOR = 4  # of a memory_limit, what may be made larger of a model that drafts

Servable = TextModel | EmbeddingModel | ClassifierModel | WhisperModel | VoiceModel | RecognizerModel
_SPEECH: dict[str, type[VoiceModel | RecognizerModel]] = {"tts": VoiceModel, "stt": RecognizerModel}


@mirrored
def load_model(
    path_or_id: str,
    options: LoadOptions,
    name: str | None = None,
    progress: bool | None = None,
    search: Sequence[bool] = ANYWHERE,
) -> Servable:
    """Load a folder or a hub id; a bar shows how far that is.

    Args:
        path_or_id: the folder, the GGUF file, or the hub id.
        options: see `LoadOptions`.
        name: what `response.model` will say; the folder's or file's name or the hub id by default.
        progress: whether a bar is shown; None: on a terminal.
        search: see `Search`; a plain value for followers.

    Raises:
        ModelLoadError: no such model, or it is broken, or of a kind that cannot be served.
    """
    check_names(options)
    with LOADING, keeping_file_limits():
        import mlx_lm.utils  # noqa: F401

    from .progress import announce, read_weights

    part = processes(options) > 1
    if part and journal() is None:  # the process with the engine shows how far it is
        progress = False
    announce(name or Path(path_or_id).name, path_or_id, progress)
    name = name or (Path(path_or_id).name if Path(path_or_id).exists() else path_or_id)
    revision = cast(str | None, options.get("revision"))
    path = fetch(path_or_id, progress, revision, Search(*search))
    if path.is_file():
        check_gguf(path)
    check_files(path)
    known = {} if is_gguf(path) else read_json(path / "config.json")
    more = SPEECH_FILES if speech_kind(known) is not None else WHISPER_FILES if is_whisper(known) else ()
    if more and not Path(path_or_id).exists():
        path = fetch(path_or_id, progress, revision, Search(*search), more)
    if not options.get("trust_remote_code") and not is_gguf(path) and not more:
        _check_tokenizer(path, path_or_id)
    try:
        if is_whisper(known):
            fetch_tokenizer(path, Search(*search))
        places = _places(path, options)
        stamps = stamps_of(places)
        kind = _checked_kind(path, options)
        contents = contents_of(places)
        with naming_files(read_json(path / "config.json")):
            model, tokenizer, config = kind.read(path, options)
        if not issubclass(kind, SpeechModel):
            check_numbers(model, config)
            set_untruncated(model, config)
            choose_factors(model, config, options.get("context_length"))
            check_rotation(model, config)
            check_keys(model, config)
        if issubclass(kind, TextModel):
            compute_windows(model, config, options.get("context_length"))
        weights = [array for _, array in tree_flatten(model.parameters())]
        if part:
            evaluate_each(weights)
        read_weights(name, weights, progress)
        if stamps_of(places) != stamps:
            raise ModelLoadError("its files changed while they were read", transient=True)
        mx.eval(mx.random.state)  # new layers draw weights, each from the key before: a graph that nobody runs
        limit = cast(ModelOptions, options).get("memory_limit")
        applied = {} if issubclass(kind, SpeechModel) else host().forms().prepare(model, limit)
        loaded = kind(Checkpoint(name, model, tokenizer, config, path, options, contents))
        loaded.applied = applied
        if isinstance(loaded, TextModel):
            loaded.check()
            if has_gpu():
                loaded.applied = {**applied, **_check_device(loaded)}
            loaded.warm_up()
    except Exception as error:
        raise not_loaded(path_or_id, error, revision) from error
    return loaded


def _check_device(loaded: TextModel) -> dict[str, int]:
    """Test the operations that a model needs on this device; returns what was changed, as `prepare` does."""
    from ..backends.self_test.device import check_device

    kv = loaded._kv
    packed = None if kv is None or kv.unpacks else (kv.bits, kv.group_size)
    step = StepInput(mx.zeros((1, 1), mx.int32), loaded.new_cache())
    return check_device(loaded._model, lambda: loaded.forward(step).logits, packed)


def _places(path: Path, options: LoadOptions) -> list[Path]:
    """Folders and files that the model's weights come from."""
    adapter_path = options.get("adapter_path")
    encoder = find_encoder(path)[0] if is_gguf(path) and not options.get("text_only") else None
    return [path, *([] if encoder is None else [encoder]), *([] if adapter_path is None else [Path(adapter_path)])]


def not_loaded(path_or_id: str, error: Exception, revision: str | None = None) -> ModelLoadError:
    """The error of a model whose files, or what is made of them, raised one."""
    what = f"The model '{path_or_id}' could not be loaded: "
    if isinstance(error, IncompleteError):
        here = Path(path_or_id).exists()
        what_to_get = f"{path_or_id} --revision {revision}" if revision else path_or_id
        advice = "Copy or download it again" if here else f"Run `hf download {what_to_get} --force-download`"
        what = f"The model '{path_or_id}' could not be loaded, since its files are incomplete or damaged: "
        return ModelLoadError(f"{what}{error}. {advice}.", transient=not here)
    if isinstance(error, ModelLoadError):
        return ModelLoadError(f"{what}{error}", missing=error.missing, transient=error.transient)
    return ModelLoadError(
        what + shown(error),
        transient=is_out_of_memory(error)
        or isinstance(error, ImportError)
        or (isinstance(error, OSError) and not isinstance(error, FileNotFoundError)),
    )


def load_draft_model(
    path_or_id: str | None,
    options: LoadOptions,
    model: Servable,
    progress: bool | None = None,
    search: Search = ANYWHERE,
) -> TextModel | MTPHead | None:
    """Load the model or the head that drafts for another model, which was loaded with these options; see `load_model`.

    Args:
        path_or_id: the model, or a folder with a head; None: the head that the model's own folder has, if it has one.

    Returns:
        None for a model that does not generate, or has no head.

    Raises:
        ModelLoadError: as `load_model`; or it has another vocabulary, or does not generate itself.
    """
    if not isinstance(model, TextModel):
        return None
    if path_or_id is None:
        return find_head(model)
    try:
        path = fetch(path_or_id, progress, None, search)
        if (head := head_in(path, model)) is not None:
            return head
        how = ModelOptions(trust_remote_code=options.get("trust_remote_code", False), text_only=True)
        if (limit := cast(ModelOptions, options).get("memory_limit")) is not None:
            how["memory_limit"] = limit // DRAFT_LIMIT_DIVISOR
        draft = load_model(path_or_id, how, progress=progress, search=search)
    except ModelLoadError as error:
        what = f"draft_model: {str(error).removeprefix('draft_model: ')}"
        raise ModelLoadError(what, missing=error.missing, transient=error.transient) from error
    if not isinstance(draft, TextModel):
        raise ModelLoadError(f"draft_model: '{draft.name}' does not generate text")
    vocabularies = [dict(each.tokenizer.get_vocab()) for each in (model, draft)]
    if vocabularies[0] != vocabularies[1]:
        raise ModelLoadError(_another_vocabulary(model.name, draft.name, *vocabularies))
    return draft


def _check_tokenizer(path: Path, path_or_id: str) -> None:
    """Refuse a folder without any file of a vocabulary: what fails then says nothing of it."""
    if is_whisper(read_json(path / "config.json")):  # whose own check says which file to copy
        return
    if not any(next(path.glob(pattern), None) for pattern in _VOCABULARIES):
        raise ModelLoadError(
            f"The model '{path_or_id}' has no tokenizer: its folder has none of {', '.join(_VOCABULARIES)}. Copy the "
            "tokenizer's files from the checkpoint that it was made of."
        )


def _another_vocabulary(model: str, draft: str, its: dict[str, int], drafts: dict[str, int]) -> str:
    other = next(token for token in sorted({**its, **drafts}) if its.get(token) != drafts.get(token))
    return (
        f"draft_model: '{draft}' has another vocabulary than '{model}': {len(drafts)} tokens and {len(its)}, and "
        f"{other!r} is {drafts.get(other, 'none')} in the one and {its.get(other, 'none')} in the other. Drafts are "
        "token ids: choose a model with the same tokenizer, often a smaller one of the same family."
    )


def _checked_kind(path: Path, options: LoadOptions) -> type[Servable]:
    """The kind of a model whose files are all there and whole.

    Raises:
        IncompleteError: they are not.
        ModelLoadError: it has too many layers, or cannot be served.
    """
    if is_gguf(path):
        return TextModel if options.get("text_only") or find_encoder(path)[0] is None else _vision_model()
    check_documents(path)
    config = read_json(path / "config.json")
    check_layers(config, path / "config.json")
    if is_whisper(config):
        check_whisper(path)
        if processes(options) > 1:
            raise ModelLoadError("processes: several processes cannot run a model that transcribes speech")
        return WhisperModel
    if (speech := speech_kind(config)) is not None:
        check_weights(path, "*.safetensors")
        return _SPEECH[speech]
    check_fields(config)
    check_ends(config, "config.json")
    check_ends(read_json(path / "generation_config.json"), "generation_config.json")
    check_quantization(config)
    kind = ShardedModel if processes(options) > 1 else _kind(path, options)
    check_weights(path, "model*.safetensors" if kind in (TextModel, ShardedModel) else "*.safetensors")
    return kind


def _kind(path: Path, options: LoadOptions) -> type[Servable]:
    config = read_json(path / "config.json")
    if is_classifier(config):
        return ClassifierModel
    if encoder_module(path, config) is not None:
        return EmbeddingModel
    kind = config.get("model_type")
    has_tower = config.get("vision_config") or config.get("audio_config")
    if not has_tower and isinstance(kind, str) and _mlx_lm_has(kind):
        return TextModel
    from .vision.families import model_type, refuse

    refuse(path.name, config, options)
    if model_type(config) is None:  # mlx-lm leaves the tower out where it knows the language model, and else says so
        return TextModel
    return _vision_model()


def _vision_model() -> type[Servable]:
    from .vision.model import VisionModel

    return VisionModel


def refusal(path: Path) -> str:
    """Why a folder cannot be loaded, as far as that shows without its weights; empty if it can be."""
    try:
        check_files(path)
        config = read_json(path / "config.json")
        if speech_kind(config) is None:
            _check_tokenizer(path, path.name)
        kind = _checked_kind(path, {})
        model_type = config.get("model_type")
        if kind is TextModel and not (isinstance(model_type, str) and _mlx_lm_has(model_type)):
            return f"the architecture '{model_type}' is not supported"
    except (ModelLoadError, OSError) as error:
        return str(error)
    return ""


def only_tasks(folder: Path) -> tuple[Task, ...] | None:
    """Tasks of a checkpoint that generates no text, before it is loaded; None for all others."""
    config = read_json(folder / "config.json")
    if (speech := speech_kind(config)) is not None:
        return ("speak",) if speech == "tts" else ("recognize",)
    if is_classifier(config):
        return tuple(ClassifierModel.tasks)
    if is_whisper(config):
        return tuple(WhisperModel.tasks)
    return None if encoder_module(folder, config) is None else tuple(EmbeddingModel.tasks)


def _mlx_lm_has(kind: str) -> bool:
    from mlx_lm.utils import MODEL_REMAPPING

    return importlib.util.find_spec(f"mlx_lm.models.{MODEL_REMAPPING.get(kind, kind)}") is not None

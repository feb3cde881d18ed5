"""A model as a client names it: a folder, a hub id, a model that another program has put on this machine, or a
checkpoint in the package, and how it is to be loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, cast

from ..builtin import CHECKPOINT, VISION
from ..models.gguf.detection import check_gguf
from ..options import ANYWHERE, LoadOptions, LocalOptions, ModelOptions, ModelPath, Search
from ..types import Json, ModelLoadError
from .foreign_names import explain_name

BUILTIN_NAMES = {str(CHECKPOINT): "localai-shim-builtin", str(VISION): "localai-shim-builtin-vision"}
"""Names of the checkpoints in the package, by folder."""
_BUILTIN, _VISION = "builtin:", "builtin:vision"
_FILE = ".gguf"
PER_MODEL: tuple[Literal["tool_format", "reasoning_format", "revision"], ...] = (
    "tool_format",
    "reasoning_format",
    "revision",
)
"""Options that may be given by the names in `models`."""
_REVISION = re.compile(r"[\w][\w./+@-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model and how it is loaded and run: clients with equal sources share one engine."""

    path: str
    options: ModelOptions = field(default_factory=ModelOptions, hash=False)
    progress: bool | None = field(default=None, compare=False)
    """True if a bar is shown while it is loaded; None: on a terminal."""
    called: str = ""
    """Name by which it was found on this machine; empty for a path and a hub id."""
    defaults: Json = field(default_factory=dict, hash=False)
    """Ollama's defaults for fields of requests: see `models.local.ollama`."""
    search: Search = field(default=ANYWHERE, compare=False)

    @property
    def name(self) -> str:
        """Name for `response.model`: the hub id, the name that was searched, or the folder's or file's name."""
        if name := BUILTIN_NAMES.get(self.path) or self.called:
            return name
        return Path(self.path).name if os.path.exists(self.path) else self.path

    def files(self) -> list[tuple[str, int, int, int]]:
        """Names, sizes and times of its files: a load that failed is not tried again while they stay as they are."""
        paths = (self.path, self.options.get("adapter_path"), self.options.get("draft_model"))
        given = [Path(path) for path in paths if path and os.path.exists(path)]
        files = [file for path in given for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
        found = [(file, file.stat()) for file in files if file.is_file()]
        return [(str(file), status.st_size, status.st_mtime_ns, status.st_ctime_ns) for file, status in found]


def builtin_path() -> str:
    """The folder of the checkpoint that serves where no model is named."""
    return str(CHECKPOINT)


class Resolved(NamedTuple):
    """A model that was named: its path or hub id, and what else is known if it was found by its name."""

    path: str
    called: str = ""
    defaults: Mapping[str, object] = MappingProxyType({})


def resolve_model(model: ModelPath | None, search: Search = ANYWHERE, revision: str | None = None) -> Resolved:
    """Find a model: by its path, in the package, or by its name on this machine; otherwise it is a hub id.

    Raises:
        ModelLoadError: it looks like a path, or like a model in the package, and is none; or it is the name of a model
            of OpenAI, or of Ollama that is not on this machine; or several models on this machine have this name.
    """
    text = builtin_path() if model is None else os.fspath(model)
    path = Path(text).expanduser()
    is_name = isinstance(model, str) and not text.startswith((".", "/", "~", _BUILTIN)) and not path.exists()
    return _find_here(text, revision) if search.local and is_name else Resolved(resolve_path(text))


def _find_here(name: str, revision: str | None) -> Resolved:
    """Find a model by its name on this machine; otherwise it is a hub id."""
    from ..models.local.ollama import read_defaults  # these read files with NumPy, which other clients do not need
    from ..models.local.places import HUB
    from ..models.local.search import find_model, similar_names

    if (found := find_model(name, revision)) is not None:
        if found.place.program == HUB and found.is_folder:
            return Resolved(name)  # by its id, so that it is found again when another revision was downloaded
        return Resolved(str(found.path), found.name, read_defaults(found))
    try:
        return Resolved(resolve_path(name))
    except ModelLoadError as error:
        if not (similar := similar_names(name)):
            raise
        raise ModelLoadError(f"{error}{similar}", missing=error.missing, transient=error.transient) from None


def resolve_path(text: str) -> str:
    """A folder's real path, a GGUF file's path, or a hub id as it is; the folder of a checkpoint in the package.

    Raises:
        ModelLoadError: it looks like a path, or like a model in the package, and is none; or it is the name of a model
            of OpenAI or Ollama.
    """
    if text == _VISION:
        return str(VISION)
    if f"{text}:".startswith(_BUILTIN) and not os.path.exists(text):
        raise ModelLoadError(
            f"'{text}' is not in the package: pass '{_VISION}', or no model for the one without pictures.", missing=True
        )
    path = Path(text).expanduser()
    if path.is_file():
        check_gguf(path)
        return os.path.abspath(path)  # in the hub's cache it is a link to one without its name
    if path.exists():
        if not (path / "config.json").exists():
            found = next(path.glob(f"*{_FILE}"), None)
            hint = "" if found is None else f" It has GGUF files: pass the path of one, such as '{found}'."
            if (path / "adapter_config.json").exists():
                hint = " It is a LoRA adapter: pass it as `adapters={'NAME': PATH}`, with the model that it is for."
            raise ModelLoadError(f"'{text}' is not a model: it has no config.json.{hint}", missing=True)
        return str(path.resolve())
    is_path = text.startswith((".", "/", "~"))
    if not is_path and (why := explain_name(text)) is not None:
        raise ModelLoadError(why, missing=True)
    if path.suffix.lower() == _FILE:
        raise ModelLoadError(f"There is no file '{text}'.", missing=True)
    if is_path or text.count("/") > 1 or (os.sep != "/" and os.sep in text):
        raise ModelLoadError(f"There is no folder '{text}'.", missing=True)
    return text


def make_sources(
    paths: Mapping[str, ModelPath | None],
    options: ModelOptions,
    progress: bool | None = None,
    search: Search = ANYWHERE,
) -> dict[str, ModelSource]:
    """The models of a client, by name; the name is empty where one serves every name.

    Raises:
        ModelLoadError: a path leads to nothing.
        ValueError: a format is not known, or is given for a model that there is none of.
    """
    if (draft := options.get("draft_model")) is not None:
        options = {**options, "draft_model": _resolve_draft(draft, search)}
    _check_names(options, paths)
    _check_formats(options)
    return {name: _make_source(path, _options_of(name, options), progress, search) for name, path in paths.items()}


def _resolve_draft(model: ModelPath, search: Search) -> str:
    """The path or hub id of a model that drafts; or a folder with a head alone, which may have no config.json.

    Raises:
        ModelLoadError: see `resolve_model`.
    """
    folder = Path(model).expanduser()
    if folder.is_dir() and not (folder / "config.json").exists() and next(folder.glob("*.safetensors"), None):
        return str(folder.resolve())
    return resolve_model(model, search).path


def _make_source(model: ModelPath | None, options: ModelOptions, progress: bool | None, search: Search) -> ModelSource:
    revision = revision_of(options)
    _check_revision(revision)
    path, called, defaults = resolve_model(model, search, revision)
    if revision is not None and not called and os.path.exists(path):
        raise ValueError(
            f"`revision` has no effect on '{path}', which is on this machine: leave it out, or pass the model's "
            "Hugging Face Hub ID"
        )
    return ModelSource(path, options, progress, called, dict(defaults), search)


def revision_of(options: LoadOptions) -> str | None:
    """The revision that one model's options name."""
    return cast(str | None, options.get("revision"))


def format_names(options: LoadOptions) -> tuple[str | None, str | None]:
    """The tool format and the reasoning format that one model's options name."""
    return cast(str | None, options.get("tool_format")), cast(str | None, options.get("reasoning_format"))


def _check_names(options: ModelOptions, models: Mapping[str, object]) -> None:
    """Refuse options that are given for other models, or are no strings.

    Raises:
        ValueError: says which there are.
    """
    for option in PER_MODEL:
        given = options.get(option)
        for model in given if isinstance(given, Mapping) else ():
            if model not in models or not model:
                names = ", ".join(map(repr, filter(None, models))) or "none: pass `models`, or one value"
                raise ValueError(f"`{option}` names a model that there is none of, {model!r}; there is {names}")
        for value in _values(given):
            if not isinstance(value, str):
                raise ValueError(f"`{option}` must be a string, or one for each model, not {value!r}")


def _check_formats(options: ModelOptions) -> None:
    """Refuse formats that are not known.

    Raises:
        ValueError: says which there are.
    """
    if "tool_format" not in options and "reasoning_format" not in options:
        return
    from ..formats.markup import named_format, named_thought

    for option, check in (("tool_format", named_format), ("reasoning_format", named_thought)):
        for name in _values(options.get(option)):
            check(name)


def _check_revision(revision: str | None) -> None:
    """Refuse a revision that is none.

    Raises:
        ValueError: says what it has to be.
    """
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise ValueError(f"`revision` must be a branch, a tag or a commit, not {revision!r}")


def _values(given: object) -> list[Any]:
    return list(given.values()) if isinstance(given, Mapping) else [] if given is None else [given]


def _options_of(name: str, options: ModelOptions) -> ModelOptions:
    """The options of one model, with its own formats."""
    own = {option: given.get(name) if isinstance(given, Mapping) else given for option, given in options.items()}
    return cast(ModelOptions, {option: value for option, value in own.items() if value is not None})


# -- the model of vector stores ------------------------------------------------------------------------------------

_FOR_ALL = ("trust_remote_code", "max_stall", "max_queue", "memory_limit")
"""Options of a client that hold for another model, too."""


class EmbeddingModel(NamedTuple):
    """The model that embeds the files of vector stores."""

    name: str | None = None
    """Among the client's `models`; None: it is not said."""
    source: ModelSource | None = None
    """Another model than these."""

    def source_among(self, sources: Mapping[str, ModelSource]) -> ModelSource | None:
        """The model's source; None if the client has only an engine.

        If it is not said, it is the first model that can do nothing but embed, or else the first one.
        """
        if self.source is not None or not sources:
            return self.source
        if self.name is not None:
            return sources[self.name]
        if len(sources) > 1:
            from .offload import import_modules

            import_modules("models.loading")
            from ..models.loading import only_tasks

            for source in sources.values():
                if only_tasks(Path(source.path)) == ("embed",):
                    return source
        return next(iter(sources.values()))


def read_embedding(
    given: LocalOptions,
    sources: Mapping[str, ModelSource],
    options: ModelOptions,
    progress: bool | None,
    search: Search,
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
    own = cast(ModelOptions, {name: value for name, value in options.items() if name in _FOR_ALL})
    try:
        return EmbeddingModel(source=make_sources({"": model}, own, progress, search)[""])
    except ModelLoadError as error:
        raise FileNotFoundError(f"`embedding_model`: {error}") from None

"""Files of a checkpoint that are missing, cut off, or pointers to what was never downloaded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from ...types import ModelLoadError
from .files import read_json
from .tensors import read_header

INDEX = "model.safetensors.index.json"
_JSON = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    INDEX,
)
"""Files that hold an object."""
_STEPS = "[0-9]_*/config.json"  # of sentence-transformers
_POINTER = b"version https://git-lfs.github.com/spec"
_MAX_POINTER_BYTES = 1024
_NUMBERED = re.compile(r"(.*)-(\d{1,6})-of-(\d{1,6})\.safetensors")
_MAX_FILES = 10_000  # of weights
_MAX_PARSED_BYTES = 1 << 20
_MAX_NAMED = 3
_MODEL = "model"
_UNUSED = "consolidated"  # the same weights in Mistral's own form
_OTHERS = {
    ".bin": "which are pickles and are not read: choose a version of the model with safetensors",
    ".pt": "which are pickles and are not read: choose a version of the model with safetensors",
    ".pth": "which are pickles and are not read: choose a version of the model with safetensors",
    ".npz": "which are not read: choose a version of the model with safetensors",
    ".gguf": "which are models by themselves: pass the path of one",
    ".safetensors": "but only files whose names begin with 'model' are read",
}
"""Endings of files that a folder without weights may have, and what they say about it."""


class IncompleteError(ModelLoadError):
    """A checkpoint lacks files, or parts of them."""


def check_documents(folder: Path) -> None:
    """Refuse a folder with a file of JSON that is none, or a pointer.

    Raises:
        IncompleteError: names the file.
    """
    if not (folder / "config.json").exists():
        raise IncompleteError("it has no config.json")
    for path in (*(folder / name for name in (*_JSON, "tokenizer.model")), *sorted(folder.glob(_STEPS))):
        if not path.is_file():
            continue
        name = path.relative_to(folder).as_posix()
        _check_pointer(path, name)
        if path.suffix == ".json":
            _check_json(path, name)


def check_weights(folder: Path, pattern: str) -> None:
    """Refuse a folder whose files of weights are not all there, or not whole.

    Args:
        folder: the checkpoint's.
        pattern: of the names of its weights' files.

    Raises:
        IncompleteError: names the files.
        ModelLoadError: they are in another form.
    """
    files = [file for file in sorted(folder.glob(pattern)) if not file.name.startswith(_UNUSED)]
    lost = [file.name for file in files if not file.exists()]
    if lost:
        raise IncompleteError(f"{_named(lost)} {'are' if len(lost) > 1 else 'is'} a link to a file that is not there")
    if not files:
        raise _without_weights(folder, pattern)
    if missing := missing_weights(folder):
        verb = "are" if len(missing) > 1 else "is"
        raise IncompleteError(f"{len(missing)} of its files of weights {verb} missing: {_named(missing)}")
    for file in files:
        check_file(file)


def check_file(file: Path) -> None:
    """Refuse a file of weights that is a pointer, or is not whole.

    Raises:
        IncompleteError: names it.
    """
    if file.is_file():
        _check_pointer(file, file.name)
        _check_whole(file)


def missing_weights(folder: Path) -> list[str]:
    """Names of the files of weights that others of a folder say there are, and that it does not have.

    An index none of whose files are there is of another version of the model, and says nothing. Only files whose names
    begin with "model" are downloaded and needed.

    Raises:
        IncompleteError: the index names what is no file of the folder.
    """
    weights = read_json(folder / INDEX).get("weight_map", {})
    named = set()
    for name in weights.values() if isinstance(weights, dict) else (weights,):
        if not isinstance(name, str) or not name or name.startswith(("/", "\\")) or ".." in Path(name).parts:
            raise IncompleteError(f"'{INDEX}' names {name!r:.200}, which is no file of the model")
        named.add(name)
    named = {name for name in named if name.startswith(_MODEL)}
    lost = {name for name in named if not (folder / name).exists()}
    there = {file.name for file in folder.glob(f"{_MODEL}*.safetensors") if file.exists()}
    numbered = {name for each in there for name in _siblings(each)}
    return sorted((lost if lost < named else set()) | (numbered - there))


def _siblings(name: str) -> Iterator[str]:
    """The names of all parts, by that of one: model-00002-of-00004.safetensors."""
    found = _NUMBERED.fullmatch(name)
    if found is None or not 1 <= int(found[2]) <= int(found[3]) <= _MAX_FILES:
        return
    for number in range(1, int(found[3]) + 1):
        yield f"{found[1]}-{number:0{len(found[2])}}-of-{found[3]}.safetensors"


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(f"'{name:.200}'" for name in names[:_MAX_NAMED]) + more


def _without_weights(folder: Path, pattern: str) -> ModelLoadError:
    for ending, what in _OTHERS.items():
        if found := sorted(path.name for path in folder.glob(f"*{ending}")):
            return ModelLoadError(f"it has no weights ({pattern}). It has {_named(found)}, {what}.")
    return IncompleteError(f"it has no weights ({pattern}), only files that describe them")


def _check_pointer(path: Path, name: str) -> None:
    with path.open("rb") as file:
        if path.stat().st_size <= _MAX_POINTER_BYTES and file.read(len(_POINTER)) == _POINTER:
            raise IncompleteError(
                f"'{name}' is a pointer of git-lfs, not the file itself (`git lfs pull` in its folder fetches it)"
            )


def _check_json(path: Path, name: str) -> None:
    raw = path.read_bytes()
    if len(raw) > _MAX_PARSED_BYTES:  # a vocabulary's, which is parsed soon enough
        if not (raw.lstrip().startswith(b"{") and raw.rstrip().endswith(b"}")):
            raise IncompleteError(f"'{name}' is no JSON object, so that it was cut off or damaged")
        return
    try:
        content = json.loads(raw.decode())
    except RecursionError:
        raise IncompleteError(f"'{name}' is nested too deeply to be read") from None
    except ValueError as error:
        raise IncompleteError(f"'{name}' is no JSON, so that it was cut off or damaged ({error})") from None
    if not isinstance(content, dict):
        raise IncompleteError(f"'{name}' holds no JSON object")


def _check_whole(path: Path) -> None:
    """Refuse a file of safetensors that is damaged, or shorter than its header says."""
    with path.open("rb") as file:
        try:
            read_header(file, path.stat().st_size)
        except ValueError as error:
            raise IncompleteError(f"'{path.name}' {error}") from None

"""Models of one folder: a checkpoint of safetensors, GGUF files, or both."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..checkpoint.completeness import IncompleteError, missing_weights
from .places import Place, is_inside

MAX_FILES = 10_000
"""Most files of a folder that are looked at."""
_GGUF, _WEIGHTS, _CONFIG = ".gguf", ".safetensors", "config.json"
_UNFINISHED = (".part", ".partial", ".incomplete", ".download", ".downloadinprogress", ".crdownload")
_DOWNLOADING = "downloading_"  # LM Studio's beginning of such a name
_PROJECTOR = "mmproj"
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})", re.ASCII)
_LABEL = re.compile(r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|NVFP4\w*|BF16|FP?16|FP?32))$", re.IGNORECASE)
_UNNAMED = "model"  # what Jan names its files


@dataclass(frozen=True, slots=True)
class Found:
    """A model on this machine, as far as names and sizes of files say."""

    name: str
    """By which it can be asked for."""
    place: Place
    path: Path
    """The folder of a checkpoint, or a GGUF file; of several parts, the first."""
    files: tuple[Path, ...] = ()
    """Files of its weights."""
    problem: str = ""
    """Reason why it cannot be used; empty if names and sizes of its files do not show any."""
    leaves: bool = False
    """The problem is a link that leaves the program's folder."""
    is_folder: bool = False
    """It is a checkpoint in a folder."""
    layers: Mapping[str, Path] = field(default_factory=dict[str, Path], hash=False)
    """Ollama's other files for it, by what they are."""


def models_in(folder: Path, name: str, place: Place) -> list[Found]:
    """Models of a folder, by a name for it: `name` for the checkpoint, `name:Q4_K_M` for GGUF files.

    No file is opened but an index of weights.
    """
    if not is_inside(folder, place.root):
        return [_leaving(name, place, folder, folder)]
    try:
        paths = list(_files(folder))
    except OSError as error:
        return [Found(name, place, folder, problem=f"its folder cannot be read: {error.strerror}")]
    leaving = [path for path in paths if path.is_symlink() and not is_inside(path, place.root)]
    weights = [path for path in paths if path.parent == folder and path.suffix == _WEIGHTS]
    files = [path for path in paths if _is_model(path.name)]
    unfinished = [path.name for path in paths if _is_unfinished(path, paths)]
    found = []
    if weights or (not files and folder / _CONFIG in paths):
        others = [path for path in leaving if path not in files]
        checkpoint = _leaving(name, place, folder, others[0]) if others else None
        found.append(checkpoint or _checkpoint(folder, name, place, weights, unfinished))
    for model in gguf_models(files, name, place, alone=not found):
        outside = [path for path in model.files if path in leaving]
        found.append(_leaving(model.name, place, model.path, outside[0]) if outside else model)
    if not found and any(path.parent == folder for path in paths):
        found = [Found(name, place, folder, problem="it has no config.json and no GGUF file", is_folder=True)]
    known = {each.path.name.lower() for each in found}
    for part in unfinished:
        stem = _final_name(part)
        if _is_model(stem) and stem.lower() not in known:
            label = label_of(Path(stem).stem) or Path(stem).stem
            found.append(Found(f"{name}:{label}", place, folder / part, problem=_not_finished(part)))
    return found


def gguf_models(files: list[Path], name: str, place: Place, *, alone: bool = True) -> list[Found]:
    """Models of GGUF files, of which the parts of a split one belong together.

    Args:
        files: those of one folder.
        name: of the folder.
        place: where they lie.
        alone: there is no checkpoint that has this name.
    """
    split: dict[Path, list[Path]] = {}
    for file in sorted(files):
        part = _PART.fullmatch(file.stem)
        split.setdefault(file.with_name(part[1] + _GGUF) if part else file, []).append(file)
    labels = {whole: label_of(whole.stem) for whole in split}
    found = []
    for whole, parts in split.items():
        label = labels[whole]
        if not label and alone and len(split) == 1 and whole.stem.lower() == _UNNAMED:
            own = name
        else:
            twice = [*labels.values()].count(label) > 1
            own = f"{name}:{whole.stem if twice or not label else label}"
        found.append(Found(own, place, parts[0], tuple(parts), _missing_parts(parts)))
    return found


def label_of(stem: str) -> str:
    """Quantization that a file's name ends with, such as Q4_K_M; empty if there is none."""
    found = _LABEL.search(stem)
    return found[1] if found else ""


def _missing_parts(parts: list[Path]) -> str:
    numbers = [_PART.fullmatch(part.stem) for part in parts]
    if numbers[0] is None:
        return ""
    total, there = int(numbers[0][3]), {int(number[2]) for number in numbers if number}
    lost = [number for number in range(1, min(total, MAX_FILES) + 1) if number not in there]
    return f"part {lost[0]} of {total} is missing" if lost else ""


def _checkpoint(folder: Path, name: str, place: Place, weights: list[Path], unfinished: list[str]) -> Found:
    problem = ""
    try:
        missing = missing_weights(folder)
        if missing:
            problem = f"{len(missing)} of its files of weights {'are' if len(missing) > 1 else 'is'} missing"
    except IncompleteError as error:
        problem = str(error)
    lost = [path.name for path in weights if not path.exists()]
    if not weights:
        problem = "it has no weights"
    elif lost:
        problem = f"'{lost[0]}' is a link to a file that is not there"
    elif not (folder / _CONFIG).exists():
        problem = "it has no config.json"
    if parts := [part for part in unfinished if not _final_name(part).lower().endswith(_GGUF)]:
        problem = _not_finished(parts[0])
    return Found(name, place, folder, tuple(weights), problem, is_folder=True)


def _not_finished(part: str) -> str:
    return f"its download has not finished ('{part}')"


def _files(folder: Path) -> Iterator[Path]:
    """Files of a folder and of the folders in it, but not of links to folders.

    Raises:
        OSError: the folder cannot be read.
    """
    count = 0
    inner = []
    for entry in os.scandir(folder):
        count += 1
        if entry.is_dir(follow_symlinks=False):
            inner.append(entry.path)
        else:
            yield Path(entry.path)
    for path in inner:
        try:
            for entry in os.scandir(path):
                count += 1
                if count > MAX_FILES:
                    return
                if not entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path)
        except OSError:  # such as a folder of another user, which no model needs
            continue


def _is_model(name: str) -> bool:
    """True for the name of a GGUF file that is not only an image encoder."""
    return name.lower().endswith(_GGUF) and _PROJECTOR not in name.lower()


def _final_name(part: str) -> str:
    """The name of a file whose download has ended."""
    for ending in _UNFINISHED:
        if part.lower().endswith(ending):
            part = part[: -len(ending)]
    return part.removeprefix(_DOWNLOADING)


def _is_unfinished(path: Path, there: list[Path]) -> bool:
    if not path.name.lower().endswith(_UNFINISHED):
        return False
    return path.with_name(_final_name(path.name)) not in there


def _leaving(name: str, place: Place, path: Path, link: Path) -> Found:
    where = os.path.realpath(link)
    problem = f"'{link}' leads to '{where}', outside {place.program}'s folder '{place.root}': pass the model's path"
    return Found(name, place, path, problem=problem, leaves=True)

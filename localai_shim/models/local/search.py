"""The search for a model among those that other programs have put on this machine."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from ...types import ModelLoadError
from . import ollama
from .folders import Found, gguf_models, models_in
from .ollama import split_tag
from .places import HUB, JAN, LLAMA_CPP, LM_STUDIO, OLLAMA, Place, find_places

log = logging.getLogger("localai_shim")

MAIN = "main"
MAX_NAMED = 8
"""Most names of models in an error."""
_BASE = re.compile(r"\w[\w.-]*(/\w[\w.-]*){0,2}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REPOSITORY = "models--"
_FLAT = re.compile(r"([^_]+)_(.+?-GGUF)_(.+)", re.IGNORECASE)
_LIKENESS = 0.6  # of names, from 0 to 1, from which on one may be meant for the other


def find_model(name: str, revision: str | None = None) -> Found | None:
    """Find a model by name in the folders of other programs; None if it is in none of them.

    Args:
        name: `publisher/repo`, `owner/repo:Q4_K_M`, `qwen3:8b`, and the like.
        revision: of the Hugging Face Hub, whose cache is the only one that has any.

    Raises:
        ModelLoadError: several files have this name, or it is there and cannot be used, and the Hugging Face Hub
            cannot have it.
    """
    found, unusable = _search(name, find_places(), revision)
    if not unusable:
        return found
    said = "; ".join(f"{each.place.program} has '{each.name}', but {each.problem}" for each in unusable)
    if found is None and (":" in name or "/" not in name or any(each.leaves for each in unusable)):
        raise ModelLoadError(f"'{name}' cannot be used: {said}.", missing=True, transient=True)
    is_usual = all(each.place.program == HUB and not each.leaves for each in unusable)  # the hub completes its cache
    log.log(logging.INFO if is_usual else logging.WARNING, "'%s' on this machine is passed over: %s", name, said)
    return found


def _search(name: str, places: list[Place], revision: str | None = None) -> tuple[Found | None, list[Found]]:
    """The first model of a name that can be used, and those before it that cannot.

    Raises:
        ModelLoadError: several files have this name.
    """
    base, tag = split_tag(name)
    unusable: list[Found] = []
    if not _BASE.fullmatch(base):
        return None, unusable
    for place in places:
        if revision is not None and place.program != HUB:
            continue
        found = _choose(name, tag, list(_look(place, name, base, revision)), place)
        if found is not None and not found.problem:
            return found, unusable
        unusable += [found] if found else []
    return None, unusable


def hub_model(name: str, revision: str | None = None) -> Found | None:
    """The checkpoint of a name in the hub's cache, which may have a problem; None if there is none."""
    if not _BASE.fullmatch(name):
        return None
    places = [place for place in find_places() if place.program == HUB]
    found = [each for place in places for each in _look(place, name, name, revision)]
    return next((each for each in found if each.is_folder and "snapshots" in each.path.parts), None)


def all_models() -> list[Found]:
    """All models on this machine, each with a name by which it is found; its path if another one has its name."""
    places = find_places()
    found = [each for place in places for each in _all(place)]
    return [each if each.problem or _is_found(each, places) else replace(each, name=str(each.path)) for each in found]


def similar_names(name: str) -> str:
    """A sentence about models on this machine whose names are like this one; empty if there are none."""
    known = sorted({found.name for place in find_places() for found in _all(place) if not found.problem})
    folded: dict[str, str] = {}
    for each in known:
        folded.setdefault(each.lower(), each)
        folded.setdefault(_last(each), each)
    plain, last = name.lower(), _last(name)
    close = get_close_matches(plain, folded, MAX_NAMED, _LIKENESS) + get_close_matches(
        last, folded, MAX_NAMED, _LIKENESS
    )
    within = [each for each in known if last and last in each.lower()]
    names = [*dict.fromkeys([*(folded[each] for each in close), *within])][:MAX_NAMED]
    return f" On this machine there is: {', '.join(map(repr, names))}." if names else ""


def _last(name: str) -> str:
    """The part of a name that says which model it is."""
    return split_tag(name)[0].rpartition("/")[2].lower()


def _is_found(found: Found, places: list[Place]) -> bool:
    try:
        again, _ = _search(found.name, places)
    except ModelLoadError:
        return False
    return again is not None and again.path == found.path


def _choose(name: str, tag: str, found: list[Found], place: Place) -> Found | None:
    """The one of a place's models that a name means.

    Raises:
        ModelLoadError: it may mean several.
    """
    if place.program == OLLAMA or not found:
        return found[0] if found else None
    if tag:
        meant = _labelled(tag.lower(), found)
    else:
        whole = [each for each in found if ":" not in each.name]
        meant = whole or [each for each in found if not each.problem] or found
    if len(meant) > 1:
        names = ", ".join(f"'{each.name}'" for each in meant[:MAX_NAMED])
        raise ModelLoadError(
            f"'{name}' may be any of {names} in {place.program}'s folder: pass one of these.", missing=True
        )
    return meant[0] if meant else None


def _labelled(tag: str, found: list[Found]) -> list[Found]:
    """The models whose label, or file, a tag names."""
    for matches in (
        lambda each: split_tag(each.name)[1].lower() == tag,
        lambda each: tag in (each.path.name.lower(), each.path.stem.lower()),
        lambda each: each.path.stem.lower().endswith((f"-{tag}", f".{tag}", f"_{tag}")),
    ):
        if meant := [each for each in found if not each.is_folder and matches(each)]:
            return meant
    return []


# -- the places: the models of a name, and all of them ---------------------------------------------------------------


def _look(place: Place, name: str, base: str, revision: str | None) -> Iterator[Found]:
    if place.program == OLLAMA:
        found = ollama.find_model(place, name.removeprefix(ollama.PREFIX)) or ollama.find_model(place, name)
        yield from [found] if found else []
    elif place.program == HUB:
        yield from _hub_models(place, place.root / f"{_REPOSITORY}{base.replace('/', '--')}", base, revision)
    elif place.program == LLAMA_CPP:
        yield from (found for found in _flat(place) if split_tag(found.name)[0] == base)
    elif os.path.isdir(place.root / base) and (place.program != LM_STUDIO or base.count("/") == 1):
        yield from _own(place.root / base, base, place)


def _all(place: Place) -> Iterator[Found]:
    if place.program == OLLAMA:
        yield from ollama.all_models(place)
    elif place.program == HUB:
        for repository in _folders(place.root):
            if repository.name.startswith(_REPOSITORY):
                base = repository.name.removeprefix(_REPOSITORY).replace("--", "/")
                yield from _hub_models(place, repository, base, None)
    elif place.program == LLAMA_CPP:
        yield from _flat(place)
    else:
        for folder in _folders(place.root):
            if place.program != LM_STUDIO and (own := _own(folder, folder.name, place)):
                yield from own
                continue
            for inner in _folders(folder):
                base = f"{folder.name}/{inner.name}"
                if own := _own(inner, base, place):
                    yield from own
                elif place.program == JAN:
                    for third in _folders(inner):
                        yield from _own(third, f"{base}/{third.name}", place)


def _own(folder: Path, base: str, place: Place) -> list[Found]:
    """Models that lie in this folder itself, and not in the folders in it, by names that can be asked for."""
    if not _BASE.fullmatch(base):
        return []
    found = models_in(folder, base, place)
    if place.program == LM_STUDIO:
        return found
    return [each for each in found if folder in (each.path, each.path.parent)]


def _folders(root: Path) -> list[Path]:
    try:
        return sorted(Path(entry.path) for entry in os.scandir(root) if entry.is_dir())
    except OSError as error:
        log.warning("'%s' cannot be read, so that no models in it are found: %s", root, error.strerror)
        return []


def _hub_models(place: Place, repository: Path, base: str, revision: str | None) -> Iterator[Found]:
    """Models of a repository in the hub's cache, of one revision."""
    snapshots = repository / "snapshots"
    if not os.path.isdir(snapshots):
        return
    commit = _commit(repository, revision or MAIN)
    if commit is not None and os.path.isdir(snapshots / commit):
        yield from models_in(snapshots / commit, base, place)
    elif revision is None:
        known = sorted(_folders(snapshots), key=lambda folder: folder.name)
        if known:
            problem = f"only another revision of it is there: pass revision='{known[0].name}'"
            yield Found(base, place, known[0], problem=problem, is_folder=True)


def _commit(repository: Path, revision: str) -> str | None:
    if _COMMIT.fullmatch(revision):
        return revision
    if ".." in revision:
        return None
    try:
        commit = (repository / "refs" / revision).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    return commit if _COMMIT.fullmatch(commit) else None


def _flat(place: Place) -> Iterator[Found]:
    """Models of llama.cpp's own cache, a folder of files like owner_repo_file.gguf."""
    groups: dict[str, list[Path]] = {}
    for each in models_in(place.root, "", place):
        if each.is_folder:  # other files than models
            continue
        stem = each.files[0].stem if each.files else each.path.stem
        parsed = _FLAT.fullmatch(stem)
        base = f"{parsed[1]}/{parsed[2]}" if parsed else stem
        if each.problem:
            yield replace(each, name=base)
        else:
            groups.setdefault(base, []).extend(each.files)
    for base, files in groups.items():
        yield from gguf_models(files, base, place)

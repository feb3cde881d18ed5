"""Whatever happens to the prefix cache's folder, it is said once and requests go on."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localai_shim.engine.engine import EngineOptions
from localai_shim.engine.prefix.store import PrefixStore
from tests.engine.counting import counting, expected, tokens
from tests.engine.folders import LONG, PLENTY, Fake, files, flush, left_by, parts
from tests.engine.segments import arrays_of

# -- damage ----------------------------------------------------------------------------------------------------------


def truncate(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def to_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE = {
    "truncated in the data": lambda path: truncate(path, path.stat().st_size - 10),
    "truncated in the header": lambda path: truncate(path, 100),
    "truncated in its length": lambda path: truncate(path, 5),
    "empty": lambda path: truncate(path, 0),
    "first byte of the data flipped": lambda path: flip(path, header_end(path)),
    "last byte of the data flipped": lambda path: flip(path, -1),
    "length of the header flipped": lambda path: flip(path, 5),
    "padding of the header flipped": lambda path: flip(path, header_end(path) - 1),
    "another's content": lambda path: path.write_bytes(b"hello" * 100),
    "a directory": to_directory,
}


def header_end(path: Path) -> int:
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


@pytest.mark.parametrize("when", ["before it is listed", "between listing and loading"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_ignored_with_one_warning(
    damage: str, when: str, tmp_path: Path, warnings: list[str]
) -> None:
    model = Fake()
    left_by(model, tmp_path, LONG)
    [path] = files(tmp_path)
    if when == "before it is listed":
        DAMAGE[damage](path)
        cache = model.cache(tmp_path)
    else:
        cache = model.cache(tmp_path)
        DAMAGE[damage](path)
    assert [model.found(cache, LONG) for _ in range(3)] == [0] * 3
    assert len(warnings) == 1 and path.name in warnings[0] and "is ignored" in warnings[0]
    model.insert(cache, [7, *LONG])
    flush(cache)
    assert model.found(model.cache(tmp_path), [7, *LONG]) == 101, "others are written and read as before"
    if damage != "a directory":
        model.insert(cache, LONG)
        flush(cache)
        assert model.found(model.cache(tmp_path), LONG) == 100, "and this one anew"
        assert cache._store is not None
        assert cache._store.match_prefix(None, LONG, needs_snapshot=False)[1] == 100, (
            "which the one that warned sees, too"
        )


def test_no_byte_of_a_header_can_be_flipped_unnoticed(tmp_path: Path, warnings: list[str]) -> None:
    model = Fake(states=True)
    left_by(model, tmp_path, LONG)
    [path] = files(tmp_path)
    sound = path.read_bytes()
    for at in range(0, header_end(path), 7):
        path.write_bytes(sound)
        flip(path, at)
        warnings.clear()
        assert model.found(model.cache(tmp_path), LONG) == 0
        assert len(warnings) <= 1, "none where the file now says to be about other tokens"


def test_where_one_file_is_damaged_others_serve(tmp_path: Path, warnings: list[str]) -> None:
    store = PrefixStore(tmp_path, "fp_fake", PLENTY)
    for start, end in ((0, 50), (50, 80), (0, 100)):
        list(store.write(None, LONG[:end], start, arrays_of(LONG[:end], start), None))
    flip(max(files(tmp_path), key=lambda path: path.stat().st_size), -1)
    model = Fake()
    assert model.found(model.cache(tmp_path), LONG) == 80
    assert len(warnings) == 1


def test_foreign_files_are_left_alone(tmp_path: Path, warnings: list[str]) -> None:
    model = Fake()
    left_by(model, tmp_path, LONG)
    foreign = [tmp_path / "fp_fake" / "notes.txt", tmp_path / "fp_fake" / ".hidden", tmp_path / "weights.safetensors"]
    for path in foreign:
        path.write_bytes(b"mine" * 1000)
    cache = model.cache(tmp_path)
    assert [model.found(cache, LONG) for _ in range(2)] == [100, 100]
    assert len(warnings) == 1 and "notes.txt" in warnings[0]
    assert model.found(model.cache(tmp_path, folder_budget=0), LONG) == 0
    assert all(path.exists() for path in foreign) and not files(tmp_path / "fp_fake")


def test_a_file_that_another_process_deletes_meanwhile_is_nothing_to_warn_of(
    tmp_path: Path, warnings: list[str]
) -> None:
    model = Fake()
    left_by(model, tmp_path, LONG)
    cache = model.cache(tmp_path)
    files(tmp_path)[0].unlink()
    cache._store._listed_at = (tmp_path / "fp_fake").stat().st_mtime_ns  # type: ignore[union-attr]  # not noticed yet
    assert model.found(cache, LONG) == 0 and not warnings


# -- folders that cannot be used -------------------------------------------------------------------------------------


def refuse(*args: Any, **more: Any) -> Any:
    raise PermissionError(errno.EACCES, "Permission denied")


def list_all_but(folder: Path) -> Callable[..., list[str]]:
    """`os.listdir` as it is for those who may not read a folder."""
    listed = os.listdir
    return lambda path: refuse() if Path(path).is_relative_to(folder) else listed(path)


def goes_on(kind: str, folder: Path) -> None:
    """An engine answers as without a folder, from memory the second time."""
    with counting(kind, EngineOptions(cache_dir=folder)) as c:
        assert c.ask(tokens(50)) == (expected(kind, tokens(50)), 49)
        assert c.ask(tokens(50)) == (expected(kind, tokens(50)), 0)


def test_a_folder_that_cannot_be_made(tmp_path: Path, warnings: list[str]) -> None:
    (tmp_path / "file").write_text("not a folder")
    goes_on("qwen3", tmp_path / "file")
    assert len(warnings) == 1 and "cannot be used" in warnings[0]


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]) -> None:
    monkeypatch.setattr(os, "listdir", list_all_but(tmp_path))
    goes_on("qwen3", tmp_path)
    assert len(warnings) == 1 and "cannot be used" in warnings[0]


def test_a_folder_that_can_no_longer_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    model = Fake()
    cache = model.cache(tmp_path)
    model.insert(cache, LONG)
    monkeypatch.setattr(os, "listdir", list_all_but(tmp_path))
    assert [model.found(cache, LONG) for _ in range(2)] == [100, 100]
    assert not cache.unsaved and len(warnings) == 1


def test_a_folder_that_can_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]) -> None:
    model = Fake()
    left_by(model, tmp_path, LONG)
    opened = Path.open
    monkeypatch.setattr(Path, "open", lambda path, mode="r", *more: (refuse if mode == "xb" else opened)(path, mode))
    monkeypatch.setattr(os, "utime", refuse)
    cache = model.cache(tmp_path)
    for first in (7, 8):
        model.insert(cache, [first, *LONG])
        flush(cache)
    assert [model.found(cache, row) for row in (LONG, [8, *LONG])] == [100, 101]
    assert len(warnings) == 1 and "cannot be written to" in warnings[0]


def test_a_disk_that_is_full(tmp_path: Path, warnings: list[str]) -> None:
    model = Fake()
    left_by(model, tmp_path, LONG)
    cache = model.cache(tmp_path)
    model.insert(cache, [7, *LONG])
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limit[1]))  # files end there, in the middle of this one
    try:
        flush(cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert len(warnings) == 1 and "cannot be written to" in warnings[0]
    assert not parts(tmp_path) and len(files(tmp_path)) == 1
    assert [model.found(cache, row) for row in ([7, *LONG], LONG)] == [101, 100], "what is there is read"

"""What the distributions carry: the wheel the package alone, the source distribution what it takes to test it too."""

from __future__ import annotations

import email
import re
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import hatchling.build
import pytest

import localai_shim

PACKAGE = Path(localai_shim.__file__).parent
ROOT = PACKAGE.parent
SIZE_LIMIT = 25_000_000  # bytes


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_the_wheel_carries_the_package_and_nothing_else(tmp_path: Path) -> None:
    name = hatchling.build.build_wheel(str(tmp_path))
    assert (tmp_path / name).stat().st_size <= SIZE_LIMIT
    with zipfile.ZipFile(tmp_path / name) as wheel:
        carried = {path for path in wheel.namelist() if not path.endswith("/")}
    version = localai_shim.__version__
    assert {PurePosixPath(path).parts[0] for path in carried} == {"localai_shim", f"localai_shim-{version}.dist-info"}
    sources = [path for ending in ("py", "cuh") for path in PACKAGE.rglob(f"*.{ending}")]
    modules = {path.relative_to(ROOT).as_posix() for path in sources}
    checkpoints = {path.relative_to(ROOT).as_posix() for path in (PACKAGE / "builtin").glob("[!_]*/*")}
    assert {f"localai_shim/builtin/{name}/model.safetensors" for name in ("checkpoint", "vision")} <= checkpoints
    ours = {path for path in carried if path.startswith("localai_shim/")}
    assert ours == modules | checkpoints | {"localai_shim/py.typed"}


def test_the_source_distribution_carries_what_makes_and_tests_it(tmp_path: Path) -> None:
    name = hatchling.build.build_sdist(str(tmp_path))
    with tarfile.open(tmp_path / name) as source:
        carried = {PurePosixPath(member.name).parts[1] for member in source}
    folders = {"localai_shim", "training", "tests", "examples", "benchmarks", "docs"}
    texts = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE"}
    tools = {"Makefile", "zensical.toml", "pyproject.toml", ".ci", ".github", ".pre-commit-config.yaml", ".gitignore"}
    assert carried == folders | texts | tools | {"PKG-INFO"}


def test_what_a_package_index_shows(tmp_path: Path) -> None:
    name = hatchling.build.build_wheel(str(tmp_path))
    info = f"localai_shim-{localai_shim.__version__}.dist-info"
    with zipfile.ZipFile(tmp_path / name) as wheel:
        shown = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
        assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert (shown["Version"], shown["License-Expression"]) == (localai_shim.__version__, "MIT")
    assert shown.get_payload(decode=True) == (ROOT / "README.md").read_bytes()
    assert not [
        line for line in shown.get_all("Classifier", []) if line.startswith("License ::")
    ]  # the expression says it


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (\S+)(?: \((?:unreleased|\d{4}-\d\d-\d\d)\))?$", text, re.MULTILINE)
    assert headings[0] == localai_shim.__version__ and len(headings) == len(re.findall("^## ", text, re.MULTILINE))

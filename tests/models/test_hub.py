"""Models on the Hugging Face Hub, as its cache on this machine has them: revisions, and incomplete downloads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import openai
import pytest
from huggingface_hub import _tree_cache

from localai_shim import LocalOpenAI
from localai_shim.cli.main import main
from localai_shim.models.hub import describe, fetch
from localai_shim.models.loading import load_model
from localai_shim.options import LoadOptions
from localai_shim.types import ModelLoadError
from tests.cli.caches import COMMIT, cache_model
from tests.tiny import make_model, tiny

NAME = "somebody/tiny"
OTHER = "1" * 40
ASK: dict[str, Any] = {
    "model": "any",
    "messages": [{"role": "user", "content": "Hello there"}],
    "max_tokens": 12,
    "temperature": 0,
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose cache is the hub's, which has no network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path


# -- revisions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def revisions(home: Path) -> Path:
    """A model whose branch "old" has other weights."""
    cache_model(home, NAME, tiny("qwen3"))
    cache_model(home, NAME, make_model(home / "old", "qwen3", hidden_size=32), revision="old", commit=OTHER)
    return home


def said(**options: Any) -> str:
    with LocalOpenAI(NAME, keep_alive=0, progress=False, **options) as client:
        return str(client.chat.completions.create(**ASK).choices[0].message.content)


def test_a_revision_is_a_branch_or_a_commit(revisions: Path) -> None:
    main, old = said(), said(revision="old")
    assert main != old
    assert (said(revision="main"), said(revision=COMMIT), said(revision=OTHER)) == (main, main, old)


def test_engines_of_different_revisions_are_not_shared(revisions: Path) -> None:
    with (
        LocalOpenAI(NAME, keep_alive=0) as main,
        LocalOpenAI(NAME, revision="old", keep_alive=0) as old,
        LocalOpenAI(NAME, revision="old", keep_alive=0) as same,
    ):
        assert old._runtime.engine("any") is same._runtime.engine("any") is not main._runtime.engine("any")
        answers = [client.chat.completions.create(**ASK) for client in (main, old)]
        assert answers[0].system_fingerprint != answers[1].system_fingerprint
        assert [answer.model for answer in answers] == [NAME] * 2


def test_models_have_revisions_of_their_own(revisions: Path) -> None:
    with LocalOpenAI(models={"new": NAME, "old": NAME}, revision={"old": "old"}, keep_alive=0) as client:
        made = [client.chat.completions.create(**{**ASK, "model": name}) for name in ("new", "old")]
    assert [str(each.choices[0].message.content) for each in made] == [said(), said(revision="old")]


def test_a_revision_that_there_is_none_of_is_said(revisions: Path) -> None:
    with (
        LocalOpenAI(NAME, revision="absent", keep_alive=0) as client,
        pytest.raises(openai.NotFoundError, match=f"'{NAME}' is neither a folder.*for the specified revision"),
    ):
        client.chat.completions.create(**ASK)


@pytest.mark.parametrize(
    ("revision", "message"),
    [
        ("../../x", "`revision` must be a branch, a tag or a commit, not '../../x'"),
        ("", "`revision` must be a branch, a tag or a commit, not ''"),
        ("-x", "`revision` must be a branch"),
        (7, "`revision` must be a string, or one for each model, not 7"),
        ({"a": "b"}, "`revision` names a model that there is none of, 'a'"),
    ],
)
def test_what_is_no_revision_is_refused(revision: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LocalOpenAI(NAME, revision=revision)


@pytest.mark.parametrize("path", [None, "builtin:vision", "folder"])
def test_a_model_on_this_machine_has_no_revisions(path: str | None) -> None:
    with pytest.raises(ValueError, match=r"`revision` has no effect on '/.*', which is on this machine: leave it out"):
        LocalOpenAI(tiny("qwen3") if path == "folder" else path, revision="main")


def test_the_command_line_takes_a_revision(revisions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", NAME, "--revision", "old"]) == 0
    assert f"snapshots/{OTHER}" in capsys.readouterr().out
    assert main(["models", str(tiny("qwen3")), "--revision", "old"]) == 1
    assert "`revision` has no effect" in capsys.readouterr().err


# -- downloads that have not ended -----------------------------------------------------------------------------------

WEIGHTS = "model.safetensors"
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 503799\n"


def cut(name: str, size: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:size])

    return change


def replaced(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: print((folder / name).write_text(text), end="")  # noqa: T201


def renamed(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / WEIGHTS).rename(folder / name)


def without_shard(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "model-00001-of-00003.safetensors")


def indexed(*shards: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        weight_map = {str(i): shard for i, shard in enumerate(shards)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    return change


def lost(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to("../../blobs/gone")


CHANGES: list[Any] = [
    (cut(WEIGHTS, 400_000), "'model.safetensors' was cut off: it has 400,000 of 503,799 bytes"),
    (cut(WEIGHTS, 100), "'model.safetensors' was cut off within its header, at 100 bytes"),
    (cut(WEIGHTS, 0), "'model.safetensors' was cut off within its header, at 0 bytes"),
    (replaced(WEIGHTS, "<!DOCTYPE html>"), "'model.safetensors' is damaged: it does not begin with a header"),
    (replaced(WEIGHTS, POINTER), r"'model.safetensors' is a pointer of git-lfs, not the file itself \(`git lfs pull`"),
    (replaced("tokenizer.json", POINTER), "'tokenizer.json' is a pointer of git-lfs"),
    (replaced("config.json", POINTER), "'config.json' is a pointer of git-lfs"),
    (cut("config.json", 50), r"'config.json' is no JSON, so that it was cut off or damaged \("),
    (cut("tokenizer.json", 5000), "'tokenizer.json' is no JSON"),
    (replaced("generation_config.json", '{"eos_'), "'generation_config.json' is no JSON"),
    (replaced("tokenizer_config.json", "[1]"), "'tokenizer_config.json' holds no JSON object"),
    (lambda folder: (folder / "config.json").unlink(), "it has no config.json"),
    (
        lambda folder: (folder / WEIGHTS).unlink(),
        r"it has no weights \(model\*.safetensors\), only files that describe",
    ),
    (lost, "'model.safetensors' is a link to a file that is not there"),
    (without_shard, "2 of its files of weights are missing: 'model-00002-of-00003.safetensors', 'model-00003-of"),
    (indexed(WEIGHTS, "model-2.safetensors"), "1 of its files of weights is missing: 'model-2.safetensors'"),
    (indexed(WEIGHTS, "../outside.safetensors"), "index.json' names '../outside.safetensors', which is no file of"),
    (indexed(WEIGHTS, None), "index.json' names None, which is no file"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES, ids=range(len(CHANGES)))
def test_an_incomplete_folder_is_said_to_be_so(change: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny("qwen3"), tmp_path / "broken"))
    change(folder)
    with pytest.raises(ModelLoadError, match=message) as caught:
        load_model(str(folder), LoadOptions())
    assert f"'{folder}' could not be loaded, since its files are incomplete or damaged: " in str(caught.value)
    assert str(caught.value).endswith("Copy or download it again.")
    assert not caught.value.missing


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pytorch_model.bin", "It has 'pytorch_model.bin', which are pickles and are not read: choose a version"),
        ("weights.safetensors", "It has 'weights.safetensors', but only files whose names begin with 'model' are"),
        ("weights.npz", "It has 'weights.npz', which are not read"),
        ("tiny.gguf", "It has 'tiny.gguf', which are models by themselves: pass the path of one"),
    ],
)
def test_weights_in_another_form_are_named(name: str, message: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny("qwen3"), tmp_path / "broken"))
    renamed(name)(folder)
    with pytest.raises(ModelLoadError, match=rf"it has no weights \(model\*.safetensors\)\. {message}"):
        load_model(str(folder), LoadOptions())


@pytest.mark.parametrize(
    "change",
    [
        indexed("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
        lambda folder: (folder / "consolidated.safetensors").write_text(POINTER),
        lambda folder: (folder / "added_tokens.json").write_text("{}"),
        lambda folder: (folder / "README.md").write_text(POINTER),
    ],
)
def test_what_says_nothing_of_the_weights_is_no_reason(change: Callable[[Path], object], tmp_path: Path) -> None:
    """An index of the files before they were quantised, weights in another form that nothing reads."""
    folder = Path(shutil.copytree(tiny("qwen3"), tmp_path / "whole"))
    change(folder)
    load_model(str(folder), LoadOptions())


def test_a_download_that_has_not_ended_is_tried_again(home: Path) -> None:
    """The same client answers once the rest is there."""
    folder = cache_model(home, NAME, tiny("qwen3"))
    (folder / WEIGHTS).rename(home / "rest")
    with LocalOpenAI(NAME, revision="main", keep_alive=0) as client:
        with pytest.raises(
            openai.InternalServerError, match=rf"no weights .*`hf download {NAME} --revision main --force-download`"
        ):
            client.chat.completions.create(**ASK)
        assert describe(NAME, str(folder)).problem == "no: it has no weights as safetensors"
        (home / "rest").rename(folder / WEIGHTS)
        assert client.chat.completions.create(**ASK).choices[0].message.content


def test_what_the_hub_knows_to_be_in_part_there_is_said(home: Path) -> None:
    """It lists the files of a revision once it has asked for them."""
    snapshot = cache_model(home, NAME, tiny("qwen3"))
    files = ("config.json", "model-9.safetensors")
    entries = {name: _tree_cache.TreeCacheEntry(size=1, blob_id="0") for name in files}
    _tree_cache.write_tree_cache(str(snapshot.parents[1]), COMMIT, entries)
    with pytest.raises(ModelLoadError, match="was downloaded in part only, and the rest cannot") as caught:
        fetch(NAME, None)
    assert caught.value.transient
    assert not caught.value.missing

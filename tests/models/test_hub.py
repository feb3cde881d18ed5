"""Models on the Hugging Face Hub, as its cache on this machine has them: revisions, and incomplete downloads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import openai
import pytest
from huggingface_hub import _tree_cache

from localai_shim import LocalOpenAI
from localai_shim.cli.listing import describe_folder
from localai_shim.cli.main import main
from localai_shim.models.hub import fetch
from localai_shim.types import ModelLoadError
from tests import inside
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
        assert inside.engine(old) is inside.engine(same) is not inside.engine(main)
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


def test_a_download_that_has_not_ended_is_tried_again(home: Path) -> None:
    """The same client answers once the rest is there."""
    folder = cache_model(home, NAME, tiny("qwen3"))
    (folder / WEIGHTS).rename(home / "rest")
    with LocalOpenAI(NAME, revision="main", keep_alive=0) as client:
        with pytest.raises(
            openai.InternalServerError, match=rf"no weights .*`hf download {NAME} --revision main --force-download`"
        ):
            client.chat.completions.create(**ASK)
        assert describe_folder(NAME, str(folder)).problem.startswith("it has no weights")
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

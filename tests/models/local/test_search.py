"""The search for a model by name: which folders, in which order, and what is refused."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from localai_shim.models.local import search
from localai_shim.models.local.folders import label_of
from localai_shim.models.local.places import find_places
from localai_shim.models.local.search import all_models, find_model, similar_names
from localai_shim.types import ModelLoadError
from tests.models.local.stores import Stores, stores
from tests.tiny import tiny

__all__ = ["stores"]
OTHER = "1" * 40


def path_of(name: str, revision: str | None = None) -> Path | None:
    found = find_model(name, revision)
    return None if found is None else found.path


def names() -> dict[str, str]:
    """The listed names, and problems."""
    return {found.name: found.problem for found in all_models()}


# -- names and folders ------------------------------------------------------------------------------------------------


def test_every_program_s_folder_is_searched_by_its_names(stores: Stores) -> None:
    lm_studio = stores.folder(stores.lm_studio / "publisher" / "one")
    quantized = stores.header(stores.lm_studio / "publisher" / "two-GGUF" / "two-Q4_K_M.gguf")
    cached = stores.cached("owner/three", {path.name: path for path in tiny("qwen3").iterdir()})
    file = stores.cached("owner/four-GGUF", {"four-Q8_0.gguf": quantized}) / "four-Q8_0.gguf"
    stores.pulled("qwen3:8b", stores.header(stores.home / "a"))
    flat = stores.header(stores.llama_cpp / "ggml-org_gemma-3-GGUF_gemma-3-Q4_K_M.gguf")
    omlx, nested = stores.folder(stores.omlx / "plain"), stores.folder(stores.omlx / "owner" / "nested")
    jan = stores.header(stores.jan / "janhq" / "Jan-v1" / "model.gguf")
    assert path_of("publisher/one") == lm_studio
    assert path_of("publisher/two-GGUF:Q4_K_M") == path_of("publisher/two-GGUF") == quantized
    assert path_of("owner/three") == cached
    assert path_of("owner/four-GGUF:q8_0") == path_of("owner/four-GGUF") == file
    assert path_of("qwen3:8b") == path_of("ollama/qwen3:8b") is not None
    assert path_of("ggml-org/gemma-3-GGUF:Q4_K_M") == path_of("ggml-org/gemma-3-GGUF") == flat
    assert (path_of("plain"), path_of("owner/nested")) == (omlx, nested)
    assert path_of("janhq/Jan-v1") == jan
    assert path_of("publisher/absent") is path_of("qwen3:1b") is path_of("absent") is None


def test_every_listed_model_is_found_by_its_listed_name(stores: Stores) -> None:
    test_every_program_s_folder_is_searched_by_its_names(stores)
    stores.folder(stores.lm_studio / "owner" / "three")  # hides the hub's
    found = all_models()
    assert len(found) == 10 and [each.problem for each in found if each.problem] == []
    for each in found:
        assert each.name == str(each.path) or path_of(each.name) == each.path
    assert [each.place.program for each in found if each.name == str(each.path)] == ["Hugging Face"]


def test_the_first_program_that_has_a_whole_model_wins(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    first = stores.folder(stores.lm_studio / "owner" / "name")
    second = stores.cached("owner/name", {path.name: path for path in tiny("qwen3").iterdir()})
    third = stores.folder(stores.omlx / "owner" / "name")
    assert path_of("owner/name") == first
    (first / "model.safetensors").rename(first / "model.safetensors.part")
    assert path_of("owner/name") == second
    assert "'owner/name' on this machine is passed over: LM Studio has 'owner/name', but its download" in caplog.text
    (second / "model.safetensors").unlink()
    assert path_of("owner/name") == third


def test_programs_say_where_their_folders_are(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = stores.home / "elsewhere"
    (stores.home / ".lmstudio").mkdir()
    (stores.home / ".lmstudio" / "settings.json").write_text(json.dumps({"downloadsFolder": str(elsewhere)}))
    model = stores.folder(elsewhere / "a" / "b")
    old = stores.folder(stores.home / ".cache" / "lm-studio" / "models" / "c" / "d")
    assert (path_of("a/b"), path_of("c/d")) == (model, old)
    monkeypatch.setenv("OLLAMA_MODELS", str(stores.home / "o"))
    monkeypatch.setenv("LLAMA_CACHE", str(stores.home / "l"))
    stores.ollama, stores.llama_cpp = stores.home / "o", stores.home / "l"
    stores.pulled("qwen3", stores.header(stores.home / "x"))
    stores.header(stores.llama_cpp / "a_b-GGUF_c-Q4_0.gguf")
    assert path_of("qwen3") is not None and path_of("a/b-GGUF") is not None


def test_the_mac_s_folders(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    support = stores.home / "Library" / "Application Support" / "Jan" / "data" / "mlx" / "models" / "id"
    jan = stores.folder(support)
    cached = stores.header(stores.home / "Library" / "Caches" / "llama.cpp" / "a_b-GGUF_c-Q4_0.gguf")
    assert (path_of("id"), path_of("a/b-GGUF")) == (jan, cached)


def test_ollama_s_names(stores: Stores) -> None:
    model = stores.header(stores.home / "x")
    stores.pulled("llama3.2", model)
    stores.pulled("mine:v1", model, owner="registry.ollama.ai/somebody")
    stores.pulled("X-GGUF:Q4_K_M", model, owner="hf.co/bartowski")
    assert path_of("llama3.2") == path_of("llama3.2:latest") == path_of("ollama/llama3.2") is not None
    assert path_of("somebody/mine:v1") == path_of("ollama/somebody/mine:v1") is not None
    assert path_of("somebody/mine") is None
    assert path_of("hf.co/bartowski/X-GGUF:Q4_K_M") == path_of("bartowski/X-GGUF:Q4_K_M") is not None
    assert list(names()) == ["hf.co/bartowski/X-GGUF:Q4_K_M", "llama3.2:latest", "somebody/mine:v1"]


def test_revisions_are_those_of_the_hub_s_cache(stores: Stores) -> None:
    stores.folder(stores.lm_studio / "owner" / "name")
    files = {path.name: path for path in tiny("qwen3").iterdir()}
    main, old = stores.cached("owner/name", files), stores.cached("owner/name", files, OTHER, "old")
    assert path_of("owner/name", "main") == main
    assert path_of("owner/name", "old") == path_of("owner/name", OTHER) == old
    assert path_of("owner/name", "absent") is path_of("owner/name", "../../refs/main") is None
    stores.cached("owner/other", files, OTHER, "old")
    assert path_of("owner/other") is None
    assert "only another revision" in names()["owner/other"]


@pytest.mark.parametrize(
    ("stem", "label"),
    [
        ("Qwen3-8B-Q4_K_M", "Q4_K_M"),
        ("qwen3-8b.Q8_0", "Q8_0"),
        ("model-UD-Q4_K_XL", "UD-Q4_K_XL"),
        ("x-IQ4_XS", "IQ4_XS"),
        ("gpt-oss-20b-mxfp4", "mxfp4"),
        ("x-f16", "f16"),
        ("x-BF16", "BF16"),
        ("Qwen3-8B", ""),
        ("model", ""),
    ],
)
def test_a_file_s_quantization_is_read_from_its_name(stem: str, label: str) -> None:
    assert label_of(stem) == label


# -- several files ----------------------------------------------------------------------------------------------------


def test_several_files_are_an_error_that_names_them(stores: Stores) -> None:
    folder = stores.lm_studio / "p" / "x-GGUF"
    four, eight = stores.header(folder / "x-Q4_K_M.gguf"), stores.header(folder / "x-Q8_0.gguf")
    stores.header(folder / "mmproj-x-f16.gguf")
    with pytest.raises(ModelLoadError, match=r"may be any of 'p/x-GGUF:Q4_K_M', 'p/x-GGUF:Q8_0' in LM Studio's folder"):
        find_model("p/x-GGUF")
    assert (path_of("p/x-GGUF:Q4_K_M"), path_of("p/x-GGUF:x-q8_0.gguf")) == (four, eight)
    assert path_of("p/x-GGUF:F16") is None


def test_files_of_one_quantization_have_their_names(stores: Stores) -> None:
    folder = stores.lm_studio / "p" / "x"
    small, large = stores.header(folder / "small-Q4_0.gguf"), stores.header(folder / "large-Q4_0.gguf")
    assert sorted(names()) == ["p/x:large-Q4_0", "p/x:small-Q4_0"]
    assert (path_of("p/x:small-Q4_0"), path_of("p/x:LARGE-Q4_0")) == (small, large)
    with pytest.raises(ModelLoadError, match="may be any of"):
        find_model("p/x:Q4_0")


def test_a_folder_with_both_forms_is_the_checkpoint_unless_a_file_is_named(stores: Stores) -> None:
    folder = stores.folder(stores.lm_studio / "p" / "both")
    file = stores.header(folder / "both-Q4_0.gguf")
    assert (path_of("p/both"), path_of("p/both:Q4_0")) == (folder, file)


def test_a_config_next_to_a_gguf_file_makes_no_checkpoint(stores: Stores) -> None:
    file = stores.header(stores.lm_studio / "p" / "x" / "x-Q4_0.gguf")
    (file.parent / "config.json").write_text("{}")
    assert path_of("p/x") == file and list(names()) == ["p/x:Q4_0"]


def test_parts_of_a_file_belong_together(stores: Stores) -> None:
    repository = stores.home / "made"
    parts = {f"Q4_K_M/x-Q4_K_M-0000{i}-of-00003.gguf": stores.header(repository / f"{i}.gguf") for i in (1, 2, 3)}
    snapshot = stores.cached("o/x-GGUF", parts)
    [found] = all_models()
    assert (found.name, len(found.files)) == ("o/x-GGUF:Q4_K_M", 3)
    assert path_of("o/x-GGUF") == snapshot / "Q4_K_M" / "x-Q4_K_M-00001-of-00003.gguf"
    (snapshot / "Q4_K_M" / "x-Q4_K_M-00002-of-00003.gguf").unlink()
    with pytest.raises(ModelLoadError, match=r"'o/x-GGUF:Q4_K_M', but part 2 of 3 is missing"):
        find_model("o/x-GGUF:Q4_K_M")


# -- what cannot be used ----------------------------------------------------------------------------------------------


def test_a_download_that_has_not_ended_is_passed_over(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    folder = stores.folder(stores.lm_studio / "p" / "x")
    (folder / "model.safetensors").rename(folder / "downloading_model.safetensors.part")
    assert find_model("p/x") is None  # the hub may have it
    assert "'p/x' on this machine is passed over: LM Studio has 'p/x', but its download has not finished" in caplog.text
    stores.header(stores.lm_studio / "p" / "y" / "y-Q4_0.gguf")
    (stores.lm_studio / "p" / "y" / "y-Q8_0.gguf.part").write_bytes(b"GGUF")
    with pytest.raises(ModelLoadError, match=r"'p/y:Q8_0', but its download has not finished \('y-Q8_0.gguf.part'\)"):
        find_model("p/y:Q8_0")
    assert path_of("p/y") == path_of("p/y:Q4_0") is not None


def test_a_cache_in_which_files_are_still_incomplete_is_passed_over(stores: Stores) -> None:
    snapshot = stores.cached("o/n", {path.name: path for path in tiny("qwen3").iterdir() if path.suffix == ".json"})
    (snapshot.parents[1] / "blobs" / "abc.incomplete").write_bytes(b"x")
    assert find_model("o/n") is None
    assert names() == {"o/n": "it has no weights"}
    blob = Path(os.path.realpath(snapshot / "config.json"))
    (snapshot / "model.safetensors").symlink_to("../../blobs/gone")
    assert "link to a file that is not there" in names()["o/n"]
    blob.unlink()
    assert find_model("o/n") is None


def test_links_that_leave_a_folder_are_refused(stores: Stores) -> None:
    outside = stores.folder(stores.home / "outside" / "x")
    stores.lm_studio.joinpath("p").mkdir(parents=True)
    (stores.lm_studio / "p" / "x").symlink_to(outside)
    with pytest.raises(
        ModelLoadError, match=r"leads to '.*outside/x', outside LM Studio's folder .*: pass the model's"
    ):
        find_model("p/x")
    inner = stores.folder(stores.lm_studio / "p" / "y")
    (inner / "model.safetensors").rename(stores.home / "outside" / "weights")
    (inner / "model.safetensors").symlink_to(stores.home / "outside" / "weights")
    with pytest.raises(ModelLoadError, match="outside LM Studio's folder"):
        find_model("p/y")
    file = stores.header(stores.home / "outside" / "z-Q4_0.gguf")
    stores.lm_studio.joinpath("p", "z").mkdir()
    (stores.lm_studio / "p" / "z" / "z-Q4_0.gguf").symlink_to(file)
    good = stores.header(stores.lm_studio / "p" / "z" / "z-Q8_0.gguf")
    with pytest.raises(ModelLoadError, match="outside LM Studio's folder"):
        find_model("p/z:Q4_0")
    assert path_of("p/z") == good


def test_links_within_a_folder_and_to_the_whole_folder_are_followed(stores: Stores) -> None:
    disk = stores.home / "disk"
    model = stores.folder(disk / "p" / "x")
    stores.lm_studio.parent.mkdir()
    stores.lm_studio.symlink_to(disk)
    (disk / "p" / "same").symlink_to(model)
    assert path_of("p/x") == stores.lm_studio / "p" / "x"
    assert path_of("p/same") == stores.lm_studio / "p" / "same"


def test_a_hub_s_copy_that_leaves_the_cache_is_refused(stores: Stores) -> None:
    snapshot = stores.cached("o/n", {path.name: path for path in tiny("qwen3").iterdir()})
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to(tiny("qwen3") / "model.safetensors")
    with pytest.raises(ModelLoadError, match=r"outside Hugging Face's folder"):
        find_model("o/n")


@pytest.mark.parametrize("name", ["../x", "p/../x", "p//x", "/etc/passwd", "p/x:../y", "", ":", "a/b/c/d", ".", "..:x"])
def test_names_never_leave_a_folder(name: str, stores: Stores) -> None:
    stores.folder(stores.home / ".lmstudio" / "x")
    stores.folder(stores.lm_studio / "p" / "y")
    stores.pulled("x", stores.header(stores.home / "a"))
    assert find_model(name) is None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is damaged: run `ollama pull bad:latest`"),
        (b"{", "is damaged"),
        (b"[]", "is damaged"),
        (b'{"layers": 7}', "is damaged"),
        (b'{"layers": [7]}', "is damaged"),
        (b"\xff", "is damaged"),
        (b'{"layers": []}', "it has no weights"),
        (b"[" * 100_000, "is damaged"),
        (b'{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../../x"}]}', "no digest"),
        (
            b'{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:%s"}]}' % (b"a" * 64),
            "not there",
        ),
        (b'{"layers": [{"mediaType": "application/vnd.ollama.image.tensor", "digest": "x"}]}', "form for MLX"),
        (b'{"layers": [{"mediaType": "application/vnd.ollama.image.adapter", "digest": "x"}]}', "LoRA adapter"),
    ],
)
def test_a_manifest_that_cannot_be_used_says_why(content: bytes, problem: str, stores: Stores) -> None:
    stores.pulled("bad", None).write_bytes(content)
    stores.pulled("good", stores.header(stores.home / "a"))
    with pytest.raises(ModelLoadError, match=f"'bad' cannot be used: Ollama has 'bad:latest', but .*{problem}"):
        find_model("bad")
    assert problem in names()["bad:latest"] and names()["good:latest"] == ""


def test_a_blob_of_another_size_or_elsewhere_is_refused(stores: Stores) -> None:
    stores.pulled("x", stores.header(stores.home / "a"))
    found = find_model("x")
    assert found is not None
    content = found.path.read_bytes()
    found.path.write_bytes(content[:-1])
    with pytest.raises(ModelLoadError, match=r"bytes, not .*: run `ollama pull x:latest`"):
        find_model("x")
    found.path.unlink()
    (stores.home / "b").write_bytes(content)
    found.path.symlink_to(stores.home / "b")
    with pytest.raises(ModelLoadError, match="outside Ollama's folder"):
        find_model("x")


def test_a_folder_without_permission_hides_no_other_model(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stores.folder(stores.lm_studio / "a" / "b")
    stores.folder(stores.lm_studio / "secret" / "x")
    stores.folder(stores.lm_studio / "shown" / "secret")
    scandir = os.scandir

    def guarded(path: str | Path = ".") -> object:
        if isinstance(path, str | Path) and Path(path).name == "secret":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)  # tests may run as root, who may read everything
    listed = names()
    assert listed["a/b"] == "" and "its folder cannot be read: Permission denied" in listed["shown/secret"]
    assert "secret' cannot be read, so that no models in it are found: Permission denied" in caplog.text


# -- names that are not found -----------------------------------------------------------------------------------------


def test_similar_names_are_said(stores: Stores) -> None:
    stores.folder(stores.lm_studio / "mlx-community" / "Qwen3-8B-4bit")
    stores.pulled("qwen3:8b", stores.header(stores.home / "a"))
    for name in ("mlx-comunity/Qwen3-8B-4bit", "mlx-community/qwen3-8b-4bit", "Qwen3-8B-4bit", "other/Qwen3-8B-4bit"):
        assert "'mlx-community/Qwen3-8B-4bit'" in similar_names(name), name
    assert "'qwen3:8b'" in similar_names("qwen3:4b")
    assert similar_names("something/completely-different") == ""


# -- many models, and nothing written ---------------------------------------------------------------------------------


def many(stores: Stores, count: int) -> None:
    """Small folders of models, in LM Studio's folder and in the hub's cache."""
    for i in range(count):
        folder = stores.lm_studio / f"p{i % 50}" / f"m{i}"
        folder.mkdir(parents=True)
        for file in ("config.json", "model.safetensors", "tokenizer.json"):
            (folder / file).write_bytes(b"{}")


@pytest.mark.timed
def test_a_name_among_thousands_is_found_without_looking_at_the_others(stores: Stores) -> None:
    many(stores, 3000)
    started = time.perf_counter()
    assert path_of("p7/m7") is not None
    one = time.perf_counter() - started
    started = time.perf_counter()
    assert len(all_models()) == 3000
    assert one < (time.perf_counter() - started) / 20


def test_a_lookup_reads_no_other_folder(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    many(stores, 60)
    read: list[str] = []
    scandir = os.scandir

    def noting(path: str | Path = ".") -> object:
        read.append(str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noting)
    assert path_of("p7/m7") is not None
    assert {Path(path).name for path in read} == {"m7"}


def test_searching_and_listing_write_nothing(stores: Stores) -> None:
    test_every_program_s_folder_is_searched_by_its_names(stores)

    def state() -> list[tuple[str, int, int]]:
        return sorted((str(p), p.lstat().st_mtime_ns, p.lstat().st_size) for p in stores.home.rglob("*"))

    before = state()
    all_models()
    similar_names("qwen3:9b")
    find_model("owner/three")
    assert state() == before


def test_the_places_of_an_empty_home_are_none(stores: Stores) -> None:
    assert find_places() == [] or {place.root for place in find_places()} == {Path("/usr/share/ollama/.ollama/models")}
    assert search.MAX_NAMED == 8

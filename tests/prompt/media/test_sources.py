"""Strings that name a picture's content: sloppy ones that frameworks send, and files, which stay below one folder."""

from __future__ import annotations

import base64
import errno
import os
import urllib.parse
from pathlib import Path

import pytest

from localai_shim.errors import BadRequest
from localai_shim.media import MediaRules
from localai_shim.prompt.media import sources
from localai_shim.prompt.media.sources import read_source
from tests.prompt.media.files import DATA

PATH = "input[0].content[0].image_url"
NOTHING = MediaRules()


DIGITS = base64.b64encode(DATA).decode()
assert DIGITS.endswith("=")
assert {"+", "/"} <= set(DIGITS)


def read(value: object, rules: MediaRules = NOTHING) -> bytes:
    return read_source(value, PATH, "image", rules)


def refusal(value: object, rules: MediaRules = NOTHING) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        read(value, rules)
    assert caught.value.param == PATH
    return caught.value


@pytest.mark.parametrize(
    "url",
    [
        pytest.param(f"data:image/png;base64,{DIGITS}", id="as it should be"),
        pytest.param(f"DATA:image/png;BASE64,{DIGITS}", id="capitals"),
        pytest.param(f"data:image/jpg;base64,{DIGITS}", id="another type"),
        pytest.param(f"data:;base64,{DIGITS}", id="no type"),
        pytest.param(f"data:image/png;charset=utf-8;base64,{DIGITS}", id="a charset"),
        pytest.param(f"data:image/png;base64, {DIGITS}\n", id="whitespace around"),
        pytest.param(
            "data:image/png;base64," + "\r\n".join(DIGITS[i : i + 76] for i in range(0, len(DIGITS), 76)), id="lines"
        ),
        pytest.param(f"data:image/png;base64,{DIGITS.rstrip('=')}", id="no padding"),
        pytest.param(f"data:image/png;base64,{DIGITS}==", id="too much padding"),
        pytest.param("data:image/png;base64," + urllib.parse.quote(DIGITS, safe=""), id="base64, percent-encoded"),
        pytest.param("data:image/png;base64," + DIGITS.replace("+", "-").replace("/", "_"), id="the URLs' alphabet"),
        pytest.param("data:image/png," + urllib.parse.quote_from_bytes(DATA), id="percent-encoded"),
        pytest.param(DIGITS, id="no prefix"),
        pytest.param(DIGITS.rstrip("=") + "\n", id="no prefix, no padding"),
    ],
)
def test_data_urls(url: str) -> None:
    assert read(url) == DATA


@pytest.mark.parametrize(
    ("url", "says", "code"),
    [
        ("data:image/png;base64", "comma", "invalid_image_url"),
        (f"data:image/png;base64,{DIGITS[:-4]}!{DIGITS[-4:]}", "not base64", "invalid_base64_image"),
        ("data:image/png;base64,abcde", "not base64", "invalid_base64_image"),
        ("data:image/png;base64,ä", "not base64", "invalid_base64_image"),
        ("https://example.com/a.png", "allow_remote_images", "invalid_image_url"),
        ("HTTP://example.com/a.png", "allow_remote_images", "invalid_image_url"),
        ("ftp://example.com/a.png", "ftp: URLs are not read", "invalid_image_url"),
        ("gopher://example.com/", "gopher: URLs are not read", "invalid_image_url"),
        ("file:///etc/passwd", "allow_local_files", "invalid_image_url"),
        ("/etc/passwd", "allow_local_files", "invalid_image_url"),
        ("a.png", "allow_local_files", "invalid_image_url"),
        ("aGVsbG8gd29ybGQ=", "allow_local_files", "invalid_image_url"),
        ("   ", "empty string", "string_below_min_length"),
        (None, "expected a string", "invalid_type"),
    ],
)
def test_what_is_not_read_is_said(url: object, says: str, code: str) -> None:
    error = refusal(url)
    assert says in error.message
    assert error.code == code


def test_too_many_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sources.MAX_FILE_BYTES, "image", len(DATA))
    file = tmp_path / "longer.png"
    file.write_bytes(DATA + b"-")
    assert read(f"data:image/png;base64,{DIGITS}") == DATA
    longer = base64.b64encode(DATA + b"-").decode()
    for value in (f"data:image/png;base64,{longer}", longer, DATA + b"-", file, "data:," + "%41" * 2 * len(DATA)):
        assert refusal(value).code == "image_file_too_large"
    assert refusal("data:," + "A" * 5 * len(DATA)).code == "image_file_too_large"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with pictures in it, beside another."""
    (tmp_path / "inside" / "deeper").mkdir(parents=True)
    (tmp_path / "inside-too").mkdir()
    for name in ("inside/a b.png", "inside/deeper/b.png", "inside-too/c.png", "d.png"):
        (tmp_path / name).write_bytes(DATA)
    (tmp_path / "inside" / "out").symlink_to(tmp_path)
    (tmp_path / "inside" / "out.png").symlink_to(tmp_path / "d.png")
    (tmp_path / "inside" / "in.png").symlink_to(tmp_path / "inside" / "deeper" / "b.png")
    return tmp_path / "inside"


@pytest.mark.parametrize(
    "name",
    [
        "{0}/a b.png",
        "file://{0}/a%20b.png",
        "file://localhost{0}/deeper/b.png",
        "a b.png",
        "deeper/../a b.png",
        "in.png",
    ],
)
def test_files_below_the_folder(name: str, folder: Path) -> None:
    assert read(name.format(folder), MediaRules(folder=str(folder))) == DATA


@pytest.mark.parametrize(
    "name",
    [
        "../d.png",
        "{0}/../d.png",
        "{0}-too/c.png",
        "out.png",
        "out/d.png",
        "deeper/../../d.png",
        "file://{0}/../d.png",
        "file://{0}/%2e%2e/d.png",
        "/etc/passwd",
        "../missing.png",
        "{0}/a b.png\0",
        "file://elsewhere{0}/a%20b.png",
        "x" * 5_000,
    ],
)
def test_files_that_are_not_below_it(name: str, folder: Path) -> None:
    error = refusal(name.format(folder), MediaRules(folder=str(folder)))
    assert str(folder.parent) not in error.message


def test_the_folder_itself_may_be_a_link(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    rules = MediaRules(folder=str(link))
    assert read("a b.png", rules) == read(f"{link}/a b.png", rules) == DATA


@pytest.mark.parametrize("name", ["missing.png", "deeper", "."])
def test_what_is_no_file(name: str, folder: Path) -> None:
    assert refusal(name, MediaRules(folder=str(folder))).code == "image_file_not_found"
    assert refusal(folder / name).code == "image_file_not_found"


def test_a_pipe_holds_nobody_up(folder: Path) -> None:
    os.mkfifo(folder / "pipe.png")
    assert "regular" in refusal("pipe.png", MediaRules(folder=str(folder))).message
    assert "regular" in refusal(folder / "pipe.png").message


def test_base64_of_an_unknown_format_is_no_path(folder: Path) -> None:
    """Where no files are read, what is longer than any path is base64, and so are sounds."""
    webpage = base64.b64encode(b"<html>" + bytes(4000)).decode()
    assert read(webpage) == read_source(webpage, PATH, "audio", NOTHING) == b"<html>" + bytes(4000)
    assert "allow_local_files" in refusal("-!" * 3000).message
    assert len(refusal(webpage, MediaRules(folder=str(folder))).message) < 300
    assert read_source("aGVsbG8gd29ybGQ=", PATH, "audio", NOTHING) == b"hello world"
    with pytest.raises(BadRequest, match="allow_local_files"):
        read_source("sounds/hello.wav", PATH, "audio", NOTHING)


def test_a_lack_of_descriptors_is_nobodys_bad_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").write_bytes(DATA)
    monkeypatch.setattr(os, "open", _no_descriptors)
    with pytest.raises(OSError, match="Too many open files"):
        read((tmp_path / "a.png").as_uri(), MediaRules(folder=str(tmp_path)))


def _no_descriptors(*_: object, **__: object) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

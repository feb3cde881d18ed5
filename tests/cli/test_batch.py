"""`batch`: a file of requests becomes a file of answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localai_shim.cli.main import main
from tests.tiny import tiny


def write_requests(path: Path, *contents: Any) -> Path:
    lines = [
        {
            "custom_id": f"request-{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "any", "max_tokens": 3, "messages": [{"role": "user", "content": content}]},
        }
        for number, content in enumerate(contents)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_every_line_has_its_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions, answers = write_requests(tmp_path / "in.jsonl", *"abcdefgh"), tmp_path / "out.jsonl"
    model = str(tiny("qwen3"))
    capsys.readouterr()
    assert main(["batch", str(questions), str(answers), "--model", model]) == 0
    found = {line["custom_id"]: line for line in map(json.loads, answers.read_text(encoding="utf-8").splitlines())}
    assert found.keys() == {f"request-{number}" for number in range(8)}
    for line in found.values():
        assert line["error"] is None and line["response"]["status_code"] == 200
        assert line["response"]["body"]["usage"]["completion_tokens"] <= 3
    assert capsys.readouterr() == ("", f"8 answered, 0 with errors: {answers}\n")  # no bar where there is no terminal


def test_a_line_that_is_refused_is_one_of_the_answers_and_the_status_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions, answers = write_requests(tmp_path / "in.jsonl", "a", 5), tmp_path / "out.jsonl"
    with questions.open("a") as file:
        file.write("\nno JSON\n")
    assert main(["batch", str(questions), str(answers), "-m", str(tiny("qwen3"))]) == 1
    found = {line["custom_id"]: line for line in map(json.loads, answers.read_text(encoding="utf-8").splitlines())}
    assert found["request-0"]["response"]["status_code"] == 200
    assert found["request-1"]["response"]["status_code"] == 400
    assert found[None]["error"]["code"] == "invalid_json_line"
    assert capsys.readouterr().err.endswith(f"1 answered, 2 with errors: {answers}\n")


def test_nothing_is_overwritten_and_files_have_to_be_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = write_requests(tmp_path / "in.jsonl", "a")
    assert main(["batch", str(questions), str(questions)]) == 1
    assert main(["batch", str(tmp_path / "none"), str(tmp_path / "out")]) == 1
    exists, missing = capsys.readouterr().err.splitlines()
    assert exists.startswith("localai-shim batch: [Errno 17] File exists")
    assert missing.startswith("localai-shim batch: [Errno 2] No such file")
    assert "request-0" in questions.read_text() and not (tmp_path / "out").exists()

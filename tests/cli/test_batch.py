"""`batch`: a file of requests becomes a file of answers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from localai_shim.cli.main import main
from localai_shim.client import batch_lines
from tests.tiny import tiny


def write_requests(path: Path, *contents: Any) -> Path:
    requests = [
        {
            "custom_id": f"request-{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "any", "max_tokens": 3, "messages": [{"role": "user", "content": content}]},
        }
        for number, content in enumerate(contents)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in requests), encoding="utf-8")
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


def answers_of(path: Path) -> dict[str, Any]:
    found = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    assert len({line["custom_id"] for line in found}) == len(found), "each line has one answer"
    return {line["custom_id"]: line for line in found}


# -- what fails before the first answer ------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["./nowhere", "somebody/absent"])
def test_a_model_that_is_none_is_one_line_and_leaves_no_file_behind(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    questions, answers = write_requests(tmp_path / "in.jsonl", "a"), tmp_path / "out.jsonl"
    assert main(["batch", str(questions), str(answers), "-m", model]) == 1
    said = capsys.readouterr().err
    assert said.startswith("localai-shim batch: The") and model in said and said.count("\n") == 1
    assert not answers.exists()
    assert main(["batch", str(questions), str(answers), "-m", str(tiny("qwen3"))]) == 0
    assert answers_of(answers).keys() == {"request-0"}


def test_a_file_that_a_killed_run_has_left_empty_is_written(tmp_path: Path) -> None:
    questions, answers = write_requests(tmp_path / "in.jsonl", "a"), tmp_path / "out.jsonl"
    answers.touch()
    assert main(["batch", str(questions), str(answers), "-m", str(tiny("qwen3"))]) == 0
    assert answers_of(answers).keys() == {"request-0"}


# -- going on -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("torn", ['{"id": "batch_req_1", "custom_id": "request-2", "resp', "", "\n"])
def test_a_run_that_was_killed_is_gone_on_with(torn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions, answers = write_requests(tmp_path / "in.jsonl", *"abcdef"), tmp_path / "out.jsonl"
    model = str(tiny("qwen3"))
    assert main(["batch", str(questions), str(answers), "-m", model]) == 0
    kept = [line for line in answers.read_bytes().splitlines(keepends=True) if b'"request-2"' not in line][:3]
    if torn == "\n":  # the last line is whole but for its end
        kept, torn = [*kept[:2], kept[2].rstrip()], ""
    answers.write_bytes(b"".join(kept) + torn.encode())
    capsys.readouterr()
    assert main(["batch", str(questions), str(answers), "-m", model]) == 1
    assert "--resume continues it" in capsys.readouterr().err
    assert main(["batch", str(questions), str(answers), "-m", model, "--resume"]) == 0
    assert answers.read_bytes().startswith(b"".join(kept)), "what was there stays, and stands first"
    assert answers_of(answers).keys() == {f"request-{number}" for number in range(6)}
    assert capsys.readouterr().err == f"6 answered, 0 with errors: {answers}\n"


def test_going_on_with_all_answers_there_or_none_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions, answers = write_requests(tmp_path / "in.jsonl", "a", "b"), tmp_path / "out.jsonl"
    for _ in range(2):
        assert main(["batch", str(questions), str(answers), "-m", str(tiny("qwen3")), "--resume"]) == 0
        assert answers_of(answers).keys() == {"request-0", "request-1"}
        assert capsys.readouterr().err.endswith(f"2 answered, 0 with errors: {answers}\n")


def test_lines_that_fail_are_named_once_and_not_asked_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions, answers = write_requests(tmp_path / "in.jsonl", "a", 5), tmp_path / "out.jsonl"
    with questions.open("a") as file:
        file.write("no JSON\n")
    for more in ([], ["--resume"]):
        assert main(["batch", str(questions), str(answers), "-m", str(tiny("qwen3")), *more]) == 1
        assert answers_of(answers).keys() == {"request-0", "request-1", None}
        *named, last = capsys.readouterr().err.splitlines()
        assert last == f"1 answered, 2 with errors: {answers}"
        assert sorted(line.split(":")[0] for line in named[-2:]) == ["Line 3", "request-1"]


def test_a_file_of_something_else_is_not_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = write_requests(tmp_path / "in.jsonl", "a")
    before = questions.read_bytes()
    assert main(["batch", str(questions), str(questions), "--resume"]) == 1
    assert "line 1 is not a valid result" in capsys.readouterr().err and questions.read_bytes() == before


def test_ctrl_c_amid_a_batch_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    questions, answers = write_requests(tmp_path / "in.jsonl", *"abc"), tmp_path / "out.jsonl"
    arguments, real = ["batch", str(questions), str(answers), "-m", str(tiny("qwen3"))], batch_lines.answer_lines

    def interrupted(*args: Any, **more: Any) -> Iterator[str]:
        with contextlib.closing(real(*args, **more)) as found:  # type: ignore[type-var]
            yield next(found)
            raise KeyboardInterrupt

    monkeypatch.setattr(batch_lines, "answer_lines", interrupted)
    assert main(arguments) == 130
    said = f"{answers} has what was answered; --resume goes on with the rest.\nlocalai-shim batch: interrupted\n"
    assert capsys.readouterr().err.endswith(said) and len(answers_of(answers)) == 1
    monkeypatch.setattr(batch_lines, "answer_lines", real)
    assert main([*arguments, "--resume"]) == 0
    assert answers_of(answers).keys() == {"request-0", "request-1", "request-2"}


def test_nothing_is_overwritten_and_files_have_to_be_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = write_requests(tmp_path / "in.jsonl", "a")
    assert main(["batch", str(questions), str(questions)]) == 1
    assert main(["batch", str(tmp_path / "none"), str(tmp_path / "out")]) == 1
    exists, missing = capsys.readouterr().err.splitlines()
    assert exists.startswith("localai-shim batch: [Errno 17] File exists")
    assert missing.startswith("localai-shim batch: [Errno 2] No such file")
    assert "request-0" in questions.read_text() and not (tmp_path / "out").exists()

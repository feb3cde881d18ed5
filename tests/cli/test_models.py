"""`models MODEL`: what was found of a model, by what, and a prompt."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from localai_shim.cli import models
from localai_shim.cli.main import main
from localai_shim.cli.models import NO_TEMPLATE, TOO_SLOW
from localai_shim.threads.deadline import Budget
from tests.preparing import LOOPS
from tests.tiny import tiny

SUBJECTS = ("model", "calls", "reasoning", "thinking", "template", "prompt")
MESSAGES = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"


def with_template(folder: Path, template: str | None) -> Path:
    """A tiny checkpoint with this chat template, or without any."""
    shutil.copytree(tiny("qwen3"), folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    config = folder / "tokenizer_config.json"
    config.write_text(config.read_text().replace('"chat_template"', '"was_chat_template"'))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    """Subject -> text; that of the prompt is all of the rest."""
    assert main(["models", *arguments]) == 0
    said, _, prompt = capsys.readouterr().out.partition("prompt     with a tool:\n")
    found = {line[:11].strip(): line[11:] for line in said.splitlines()}
    return found | ({"prompt": prompt} if prompt else {})


def test_the_model_in_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    from localai_shim.runtime.sources import builtin_path

    found = shown(capsys, builtin_path())
    assert tuple(found) == SUBJECTS
    assert found["calls"] == "hermes: its chat template has <tool_call>"
    assert found["reasoning"] == "think: its chat template has </think>"
    assert found["thinking"] == "turned on and off by enable_thinking=True or False"
    assert found["template"] == "shows tools, calls and results; its form: as OpenAI has it"
    assert '"name": "get_weather"' in found["prompt"] and "What is the weather in Paris?" in found["prompt"]


def test_the_model_in_the_package_that_sees_has_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "builtin:vision")["model"].endswith("vision")


def test_a_template_that_shows_no_tools_is_given_them_as_text(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = shown(capsys, str(with_template(tmp_path / "plain", MESSAGES)))
    assert found["calls"].startswith("hermes: neither") and "is asked to write this one" in found["calls"]
    assert (found["reasoning"].partition(":")[0], found["thinking"]) == ("none", "none")
    assert "tools" in found["template"].partition("; its form")[0].partition(";")[2]
    assert "[system]You can call functions." in found["prompt"] and '"get_weather"' in found["prompt"]
    assert '<tool_call>\n{"name": "function_name"' in found["prompt"]


def test_names_that_are_given_count(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(with_template(tmp_path / "plain", MESSAGES))
    found = shown(capsys, folder, "--tool-format", "mistral", "--reasoning-format", "mistral")
    assert found["calls"] == "mistral: as `tool_format` says"
    assert found["reasoning"] == "mistral: as `reasoning_format` says"
    assert "no switch" in found["thinking"]
    assert '[TOOL_CALLS]function_name[ARGS]{"parameter": "value"}' in found["prompt"]


def test_words_and_efforts_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = MESSAGES + "<think>{{ '</think>' if '/no_think' in messages[0].content }}({{ reasoning_effort }})"
    found = shown(capsys, str(with_template(tmp_path / "words", words)))
    assert found["thinking"] == "turned on and off by /think or /no_think; its effort by reasoning_effort"


def test_a_model_without_a_template_completes_texts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = shown(capsys, str(with_template(tmp_path / "base", None)))
    assert found["template"] == NO_TEMPLATE and "prompt" not in found


def test_a_template_that_never_ends_is_given_up(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "Budget", partial(Budget, 0.2))  # sooner than for callers
    found = shown(capsys, str(with_template(tmp_path / "endless", LOOPS + MESSAGES)))
    assert found["template"] == TOO_SLOW and "prompt" not in found


def test_what_cannot_be_is_said_in_a_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(with_template(tmp_path / "plain", MESSAGES))
    assert main(["models", folder, "--tool-format", "nothing"]) == 1
    assert "localai-shim models: `tool_format` must be one of" in capsys.readouterr().err
    assert main(["models", str(tmp_path / "absent")]) == 1
    assert "There is no folder" in capsys.readouterr().err

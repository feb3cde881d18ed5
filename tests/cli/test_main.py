"""The command line as a whole: help at once, errors in a line, and the models of a hub's cache without a hub."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from localai_shim.cli import chat, main
from localai_shim.types import VERSION, BackendMissingError
from tests.cli.caches import cache_model
from tests.scripts import run
from tests.tiny import tiny


def test_help_is_light_and_models_come_from_the_cache_without_a_hub(tmp_path: Path) -> None:
    cache_model(tmp_path, "somebody/Tiny-4bit", tiny("qwen3"))
    seeing = json.dumps({"model_type": "gemma3", "vision_config": {"a": 1}, "audio_config": {"a": 1}})
    index = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})
    half = cache_model(tmp_path, "somebody/half", None, config_json=seeing, **{"model.safetensors.index_json": index})
    (half / "model-1.safetensors").write_bytes(b"x" * 1000)
    with (half / "model-2.safetensors.incomplete").open("wb") as file:
        file.truncate(10)
    huge = cache_model(tmp_path, "somebody/huge", None, config_json=json.dumps({"model_type": "llama"}))
    with (huge / "model.safetensors").open("wb") as file:
        file.truncate(10**13)  # sparse
    cache_model(tmp_path, "somebody/gguf", None, readme_json="{}")
    done = run(
        """
        import io, sys
        from localai_shim.cli.main import main
        for arguments in (["--help"], ["chat", "--help"], ["bench", "--help"]):
            try:
                main(arguments)
            except SystemExit as end:
                assert end.code == 0
        heavy = {"mlx", "mlx_lm", "transformers", "numpy", "openai", "rich", "huggingface_hub", "PIL", "asyncio"}
        print("heavy:", sorted(heavy & {name.split(".")[0] for name in sys.modules}))
        assert main(["models"]) == 0
        sys.stdin = io.StringIO("Hello")
        print(main(["chat", "somebody/Tiny-4bit", "--max-tokens", "5"]))
        print(main(["chat", "somebody/absent"]))
        """,
        HF_HOME=str(tmp_path),
        HF_HUB_OFFLINE="1",
        HOME=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    help, _, rest = done.stdout.partition("heavy: []\n")
    for name in main.COMMANDS:
        assert re.search(rf"\n    {name}\s", help)
    head, *table = rest.splitlines()[:-2]
    assert head.split() == ["model", "from", "size", "format", "architecture", "calls", "reasoning", "runs"]
    rows = {line.split()[0]: " ".join(line.split()) for line in table if line.startswith(("localai", "somebody"))}
    assert list(rows) == [
        *("localai-shim-builtin", "localai-shim-builtin-vision", "somebody/Tiny-4bit"),
        *("somebody/gguf", "somebody/half", "somebody/huge"),
    ]
    assert all(row.endswith(" batched") for row in [*rows.values()][:3])
    assert " Hugging Face " in rows["somebody/Tiny-4bit"] and "qwen3" in rows["somebody/Tiny-4bit"]
    assert "no: it has no config.json" in rows["somebody/gguf"]
    assert "gemma3, image, audio" in rows["somebody/half"] and "no: its" in rows["somebody/half"]
    assert "10,000.0 GB" in rows["somebody/huge"] and "no: " in rows["somebody/huge"]
    assert rest.splitlines()[-2] == "0" and rest.splitlines()[-1] == "1"  # an answer, and a model that is not there
    assert "somebody/absent" in done.stderr and "Traceback" not in done.stderr


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(["--version"])
    assert end.value.code == 0 and capsys.readouterr().out == f"localai-shim {VERSION}\n"


def test_no_command_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 2
    assert "doctor" in capsys.readouterr().out


def test_arguments_that_do_not_exist_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(["chat", "--kv-bits", "5"])
    assert end.value.code == 2 and "--kv-bits" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (BackendMissingError("install it"), 1, "localai-shim chat: install it\n"),
        (FileNotFoundError("no such folder"), 1, "localai-shim chat: no such folder\n"),
        (ValueError("not that"), 1, "localai-shim chat: not that\n"),
        (ValueError("not\n  that"), 1, "localai-shim chat: not that\n"),
        (KeyboardInterrupt(), 130, "localai-shim chat: interrupted\n"),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, status: int, said: str
) -> None:
    def fail(_: Any) -> int:
        raise error

    monkeypatch.setattr(chat, "run", fail)
    assert main.main(["chat"]) == status
    assert capsys.readouterr().err == said


def test_a_reader_that_leaves_ends_it_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)

    def show(_: Any) -> int:
        sys.stdout.write("x" * 10**6)
        return 0

    monkeypatch.setattr(chat, "run", show)
    with os.fdopen(write, "w") as pipe:  # whose end flushes it once more
        monkeypatch.setattr(sys, "stdout", pipe)
        assert main.main(["chat"]) == 1


def test_options_of_the_model_reach_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    from localai_shim.client import local as module

    given: dict[str, Any] = {}

    class Recorder:
        def __init__(self, model: str | None, **options: Any) -> None:
            given.update(options, model=model)
            raise ValueError("enough")

    monkeypatch.setattr(module, "LocalOpenAI", Recorder)
    main.main(["chat", "some/model", "--kv-bits", "8", "--max-stall", "0.1", "--text-only", "--cache-dir", "/x"])
    expected = {"model": "some/model", "kv_bits": 8, "max_stall": 0.1, "text_only": True, "cache_dir": "/x"}
    assert given == {**expected, "keep_alive": 0}

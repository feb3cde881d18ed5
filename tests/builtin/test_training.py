"""The program that makes the checkpoint, for a few steps."""

from pathlib import Path

import pytest

from localai_shim.builtin import CHECKPOINT
from tests.samples import exhaustive
from training import evaluate, train


@exhaustive
@pytest.mark.timeout(600)
def test_goes_on_from_the_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--steps", "2", "--batch-tokens", "256", "--peak", "1e-6", "--workers", "1"]
    train.main(["--out", str(tmp_path), "--start", str(CHECKPOINT), *options])
    head = {"mtp.safetensors"}  # trained afterwards, for the new weights
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in CHECKPOINT.iterdir()} - head
    evaluate.main(["--checkpoint", str(tmp_path), "--count", "1", "--kinds", "greeting"])
    assert "| greeting | closed | 100.0% |" in capsys.readouterr().out

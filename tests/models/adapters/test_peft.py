"""Adapters that PEFT itself wrote: rows beside each other have the logits and the tokens that it said of each alone.

`recorded/make.py` made the folders and what PEFT said.
"""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx_lm.utils import load_model

from localai_shim import LocalOpenAI
from localai_shim.models.adapters.bank import Bank
from tests.lora import add, ids
from tests.tiny import make_tokenizer

RECORDED = Path(__file__).parent / "recorded"
SAID: dict[str, Any] = json.loads((RECORDED / "said.json").read_text())
NAMES = ["plain", "rslora", "patterns"]


def test_logits_of_a_mixed_pass_are_those_that_peft_said() -> None:
    model: nn.Module = load_model(RECORDED / "base")[0]
    bank = Bank(model)
    adapters = {name: add(bank, RECORDED / name) for name in NAMES}
    for names in (["base", "plain", "rslora"], ["patterns", "base", "plain"], ["rslora", "patterns", "patterns"]):
        with bank.selected([adapters.get(name) for name in names]):
            logits = np.array(model(mx.array(SAID["tokens"]))[:, -1])
        for row, name in enumerate(names):
            expected = np.array(SAID["adapters"][name]["logits"][row])
            np.testing.assert_allclose(logits[row], expected, atol=1e-3)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = shutil.copytree(RECORDED / "base", tmp_path / "base")
    config = json.loads((folder / "config.json").read_text())
    make_tokenizer(tmp_path / "tokenizer")
    for file in (tmp_path / "tokenizer").iterdir():
        if file.name.startswith("tokenizer"):
            shutil.copy(file, folder)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_tokens_of_a_batch_are_those_that_peft_said(model: Path) -> None:
    prompt = tuple(SAID["prompt"])
    adapters = {name: RECORDED / name for name in NAMES}
    with LocalOpenAI(model, adapters=adapters) as client, ThreadPoolExecutor(8) as pool:
        asked = ["base", *NAMES] * 2
        extra = {"extra_body": {"ignore_eos": True}}
        answers = list(pool.map(lambda name: ids(client, name, prompt, 12, **extra), asked))
    for name, answer in zip(asked, answers, strict=True):
        assert answer == SAID["adapters"][name]["greedy"]

"""lm-evaluation-harness on the checkpoint that ships with the package: its numbers are those of the bare model."""

from __future__ import annotations

import json
import math
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localai_shim.builtin import CHECKPOINT
from tests.frameworks.kit import framework

lm_eval = framework("lm_eval")
os.environ["HF_DATASETS_OFFLINE"] = "1"  # read when it imports datasets: they would ask for newer readers
# What it imports warns, and takes long.
pytestmark = [pytest.mark.weekly, pytest.mark.filterwarnings("default"), pytest.mark.timeout(300)]

ROWS: list[dict[str, Any]] = [
    {"question": "The capital of France is", "choices": ["Paris", "Rome", "a small town"], "gold": 0},
    {"question": "Two and two are", "choices": ["seven", "four"], "gold": 1},
    {"question": "Water is made of", "choices": ["hydrogen and oxygen", "wood"], "gold": 0},
]
TASKS: dict[str, dict[str, Any]] = {
    "choices": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{gold}}",
        "doc_to_choice": "{{choices}}",
        "metric_list": [{"metric": "acc"}],
    },
    "rolling": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{question}} {{choices[0]}}",
        "metric_list": [{"metric": "byte_perplexity"}],
    },
    "answers": {
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{choices[0]}}",
        "generation_kwargs": {"until": ["\n\n", "1", "2", "3", "e"], "max_gen_toks": 12},
        "metric_list": [{"metric": "exact_match"}],
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tasks of our own, with data of our own."""
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "rows.json").write_text("\n".join(map(json.dumps, ROWS)))
    for name, task in TASKS.items():
        data = {"data_files": {"test": str(folder / "rows.json")}, "cache_dir": str(folder / "cache")}
        source = {"task": name, "dataset_path": "json", "dataset_kwargs": data, "test_split": "test"}
        (folder / f"{name}.yaml").write_text(json.dumps({**source, **task}))  # JSON is YAML
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    from lm_eval.tasks import TaskManager

    import localai_shim.contrib.lm_eval  # noqa: F401 (registers the model)

    found: dict[str, Any] = lm_eval.simple_evaluate(
        model="localai",
        model_args={"num_concurrent": 8},
        tasks=list(TASKS),
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        bootstrap_iters=0,
    )
    return found


@pytest.fixture(scope="module")
def oracle() -> Any:
    """Token ids -> the log-probability of each but the first, and whether it is the likeliest; by mlx-lm alone."""
    import mlx.core as mx
    from mlx_lm import load

    model, tokenizer = load(str(CHECKPOINT))[:2]
    model.set_dtype(mx.float32)  # as the engine does on a CPU

    def score(tokens: list[int]) -> list[tuple[float, bool]]:
        logits = model(mx.array([tokens]))[0].astype(mx.float32)
        scores = np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
        return [(float(scores[i - 1][t]), int(scores[i - 1].argmax()) == t) for i, t in enumerate(tokens) if i]

    return score, tokenizer


def encode(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def test_loglikelihoods_of_choices_are_those_of_the_bare_model(results: dict[str, Any], oracle: Any) -> None:
    score, tokenizer = oracle
    for sample in results["samples"]["choices"]:
        for choice, [(found, is_greedy)] in zip(sample["doc"]["choices"], sample["resps"], strict=True):
            before = encode(tokenizer, sample["doc"]["question"])
            tokens = encode(tokenizer, f"{sample['doc']['question']} {choice}")
            expected = score(tokens)[len(before) - 1 :]
            assert found == pytest.approx(sum(value for value, _ in expected), abs=1e-3)
            assert is_greedy == all(greedy for _, greedy in expected)


def test_perplexities_are_those_of_the_bare_model(results: dict[str, Any], oracle: Any) -> None:
    score, tokenizer = oracle
    total = size = 0.0
    for row in ROWS:
        text = f"{row['question']} {row['choices'][0]}"
        begin = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        total += sum(value for value, _ in score([begin, *encode(tokenizer, text)]))
        size += len(text.encode())
    found = results["results"]["rolling"]["byte_perplexity,none"]
    assert found == pytest.approx(math.exp(-total / size), rel=1e-4)


def test_answers_end_at_any_number_of_stop_strings(results: dict[str, Any]) -> None:
    for sample in results["samples"]["answers"]:
        [[text]] = sample["resps"]
        assert not any(stop in text for stop in TASKS["answers"]["generation_kwargs"]["until"])


def test_the_page_s_program_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lm_eval.tasks import TaskManager

    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python lm-eval\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    evaluate = partial(
        lm_eval.simple_evaluate, task_manager=TaskManager(include_path=str(folder), include_defaults=False), limit=1
    )
    monkeypatch.setattr(lm_eval, "simple_evaluate", evaluate)
    code = code.replace('"mlx-community/Qwen2.5-7B-4bit"', repr(str(CHECKPOINT))).replace("hellaswag", "choices")
    names: dict[str, Any] = {}
    exec(compile(code, "evaluation.md", "exec"), names)
    assert names["results"]["results"]["choices"]["acc,none"] in (0.0, 1.0)


@pytest.mark.exhaustive  # it reads some thousand files of tasks first
def test_the_command_line_knows_the_model(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from localai_shim.contrib.lm_eval import main

    arguments = ["--model", "localai", "--tasks", "choices", "--include_path", str(folder), "--limit", "1"]
    monkeypatch.setattr("sys.argv", ["lm_eval", *arguments, "--output_path", str(tmp_path)])
    main()
    [file] = tmp_path.rglob("results*.json")
    assert json.loads(file.read_text())["results"]["choices"]["acc,none"] in (0.0, 1.0)

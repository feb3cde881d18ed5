"""What sentence-transformers makes of the tiny embedders and rerankers, recorded in embedding_oracle.json.

To be run by hand when the checkpoints change, the first line with this project installed, the second one where torch
and sentence-transformers are:

    python -m tests.embedding_oracle export FOLDER
    python tests/embedding_oracle.py record FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_suffix(".json")

LONG = "What is the capital of France? Paris is the capital of France, and the quick brown fox jumps over it."
TEXTS = ["How are you today?", "The quick brown fox!", "fox", LONG]

EMBEDDERS: dict[str, dict[str, Any]] = {
    "bert": {"kind": "bert"},
    "bert, first token": {"kind": "bert", "pooling": "cls"},
    "bert, flag of the first token": {"kind": "bert", "pooling": "cls", "legacy": True},
    "bert, largest": {"kind": "bert", "pooling": "max"},
    "bert, flag of the largest": {"kind": "bert", "pooling": "max", "legacy": True},
    "bert, last token": {"kind": "bert", "pooling": "lasttoken"},
    "bert, flag of the last token": {"kind": "bert", "pooling": "lasttoken", "legacy": True},
    "bert, weighted": {"kind": "bert", "pooling": "weightedmean"},
    "bert, by the root of the length": {"kind": "bert", "pooling": "mean_sqrt_len_tokens"},
    "bert, two modes": {"kind": "bert", "pooling": ("cls", "mean"), "legacy": True},
    "bert, any length": {"kind": "bert", "normalize": False},
    "bert, dense": {"kind": "bert", "dense": ((24, "Tanh"),)},
    "bert, prompts": {"kind": "bert", "prompts": (("query", "What is "), ("passage", "")), "default_prompt": "query"},
    "bert, pooling without the prompt": {
        "kind": "bert",
        "prompts": (("query", "What is "),),
        "default_prompt": "query",
        "include_prompt": False,
    },
    "bert, sixteen tokens": {"kind": "bert", "max_seq_length": 16},
    "modernbert": {"kind": "modernbert"},
    "xlm-roberta": {"kind": "xlm-roberta", "pooling": "cls"},
    "qwen3": {"kind": "qwen3"},
    "gemma3_text": {"kind": "gemma3_text"},
}
"""The arguments of `tiny_embedder`, by what is particular."""

CLASSIFIERS = ("bert", "modernbert", "xlm-roberta")
QUERY = "What is the capital of France?"
INSTRUCTION = "Given a search query, retrieve relevant candidates that answer the query."


def recorded() -> Any:
    """The contents of the file: `embeddings` by name with tokens and vectors, `scores` by kind."""
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def export(folder: Path) -> None:
    """Write the checkpoints into a folder, each under its name."""
    import shutil

    from tests.embedding_models import tiny_classifier, tiny_embedder, tiny_judge

    made = {name: tiny_embedder(**arguments) for name, arguments in EMBEDDERS.items()}
    made.update({f"classifier {kind}": tiny_classifier(kind) for kind in CLASSIFIERS})
    made["judge"] = tiny_judge()
    for name, path in made.items():
        shutil.copytree(path, folder / name, dirs_exist_ok=True)


def record(folder: Path) -> None:
    """Run sentence-transformers on the checkpoints, and write what it made."""
    embeddings = {name: _embed(folder / name) for name in EMBEDDERS}
    scores = {kind: _classify(folder / f"classifier {kind}") for kind in CLASSIFIERS}
    scores["judge"] = _judge(folder / "judge")
    parts = [f'"{part}": {_lines(what)}' for part, what in (("embeddings", embeddings), ("scores", scores))]
    RECORDED.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def _lines(table: dict[str, Any]) -> str:
    """JSON with a line for each entry."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(what)}" for name, what in table.items()) + "\n}"


def _embed(folder: Path) -> dict[str, Any]:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    tokens = [model.tokenizer(text)["input_ids"] for text in TEXTS]
    return {"tokens": tokens, "vectors": [_rounded(vector) for vector in model.encode(TEXTS)]}


def _classify(folder: Path) -> list[float]:
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folder), device="cpu")
    return _rounded(model.predict([(QUERY, text) for text in TEXTS]))


def _judge(folder: Path) -> list[float]:
    """As the model card of Qwen3-Reranker says: the probability of yes against no."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    yes, no = tokenizer.convert_tokens_to_ids(["yes", "no"])
    before = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    )
    after = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    scores = []
    for text in TEXTS:
        asked = f"<Instruct>: {INSTRUCTION}\n\n<Query>: {QUERY}\n\n<Document>: {text}"
        ids = tokenizer(before + asked + after, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            logits = model(ids).logits[0, -1]
        scores.append(torch.softmax(logits[[no, yes]], 0)[1])
    return _rounded(scores)


def _rounded(numbers: Any) -> list[float]:
    return [round(float(number), 6) for number in numbers]


if __name__ == "__main__":
    {"export": export, "record": record}[sys.argv[1]](Path(sys.argv[2]))

"""Models of transformers with random weights, and their logits next to those of the same folder loaded here."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import torch
import transformers

from localai_shim.engine.ports import StepInput
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions, TextModel
from tests.reference.cases import LENGTH, Case
from tests.tiny import tiny

torch.set_num_threads(1)


def text_prompt(length: int) -> list[int]:
    return [(7 * i * i + 3 * i) % 300 + 2 for i in range(length)]


PROMPT = text_prompt(LENGTH)
PIECES = (37, 20, 1, 1, 1, 1)
"""Tokens of the passes after which one more reads the rest."""
_MODEL_FIRST = ("gemma3n", "qwen3_5_moe", "qwen3_vl_moe")
"""Models whose language model's tensors begin with `model.language_model`."""
_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def build(case: Case) -> Any:
    """A model with random weights, in float32."""
    torch.manual_seed(0)
    auto = transformers.AutoModelForCausalLM
    make = auto.from_config if case.model_class is None else getattr(transformers, case.model_class)._from_config
    model = make(case.config(), attn_implementation="eager", dtype=torch.float32)
    randomize(model)
    return model.float().eval()


def randomize(model: Any, encoder_spread: float = 0.15) -> None:
    """Draw all parameters, so that no norm, bias, gate or sink is left at a value that does nothing.

    Args:
        model: gets them in place.
        encoder_spread: of the weights of its vision encoder.
    """
    drawn = torch.Generator().manual_seed(1)

    def draw(tensor: Any) -> Any:
        return torch.randn(tensor.shape, generator=drawn)

    saved = model.state_dict()
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if name not in saved or not tensor.is_floating_point():
                continue
            spread = encoder_spread if "vision_tower." in name else 0.15
            tensor.copy_(spread * draw(tensor) if tensor.ndim > 1 else tensor + 0.15 * draw(tensor))


def save(model: Any, folder: Path, inside: str | None = None) -> Path:
    """The folder of a checkpoint, with a tokenizer; see `Case.inside`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
    if inside is not None:
        _wrap(folder, inside)
    for name in _TOKENIZER:
        if (file := tiny("qwen3") / name).exists():
            shutil.copy(file, folder)
    return folder


def _wrap(folder: Path, kind: str) -> None:
    old, new = ("model.", "model.language_model.") if kind in _MODEL_FIRST else ("", "language_model.")
    loaded: Any = mx.load(str(folder / "model.safetensors"))
    named = {name.replace(old, new, 1) if name.startswith(old) else name: array for name, array in loaded.items()}
    weights = _fused(named, kind == "qwen3_vl_moe") if kind in _MODEL_FIRST else named
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "pt"})
    text = json.loads((folder / "config.json").read_text())
    usual = {key: text[key] for key in ("tie_word_embeddings", "vocab_size", "eos_token_id")}
    (folder / "config.json").write_text(json.dumps({**usual, "model_type": kind, "text_config": text}))


def _fused(weights: dict[str, mx.array], inputs_first: bool) -> dict[str, mx.array]:
    """Weights with the experts of each layer in one tensor."""
    found = {name: _EXPERT.fullmatch(name) for name in weights}
    made = {name: array for name, array in weights.items() if not found[name]}
    for layer in {match[1] for match in found.values() if match}:
        count = sum(match is not None and match[1] == layer for match in found.values()) // 3
        gate, up, down = (
            mx.stack([weights[f"{layer}.{i}.{part}_proj.weight"] for i in range(count)])
            for part in ("gate", "up", "down")
        )
        for part, array in (("gate_up", mx.concatenate([gate, up], axis=1)), ("down", down)):
            made[f"{layer}.{part}_proj"] = mx.contiguous(array.swapaxes(1, 2)) if inputs_first else array
    return made


def expected_logits(model: Any, tokens: list[int] = PROMPT) -> np.ndarray:
    """Logits of transformers for each token."""
    with torch.no_grad():
        logits: np.ndarray = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()
    return logits


def load(folder: Path, **options: Any) -> TextModel:
    """The folder as a client would load it."""
    model = load_model(str(folder), LoadOptions(**options), progress=False)
    assert isinstance(model, TextModel)
    return model


def logits_in_one_pass(model: TextModel, tokens: list[int] = PROMPT) -> np.ndarray:
    """Logits for each token."""
    return _logits(model, tokens, model.new_cache())


def logits_in_pieces(model: TextModel, tokens: list[int] = PROMPT) -> np.ndarray:
    """Logits for each token, of passes that continue from the cache of those before."""
    cache, parts, start = model.new_cache(), [], 0
    for count in (*PIECES, len(tokens) - sum(PIECES)):
        parts.append(_logits(model, tokens[start : start + count], cache))
        start += count
    return np.concatenate(parts)


def _logits(model: TextModel, tokens: list[int], cache: Any) -> np.ndarray:
    return np.array(model.forward(StepInput(mx.array([tokens]), cache)).logits[0].astype(mx.float32))


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference of two tokens' logits, as a part of the spread of what is expected."""
    assert found.shape == expected.shape
    assert np.isfinite(found).all() and np.isfinite(expected).all()
    return float(np.abs(found - expected).max() / expected.std())

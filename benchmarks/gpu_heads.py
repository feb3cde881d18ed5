"""On a GPU: an MTP head that agrees with its model at a known rate, and sampled streams, each against greedy ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from mlx.utils import tree_flatten

from localai_shim import AsyncLocalOpenAI
from localai_shim.engine.engine import EngineOptions
from localai_shim.models.mtp.finding import head_in
from localai_shim.models.mtp.head import MTPHead
from localai_shim.models.text import TextModel

from .figures import Figure, Section, ratios, spread
from .models import Size
from .speculation import Oracle, Pair, drafting, in_turns, known_answers, run
from .workload import Prompts

AGREEMENT, NEAR, SEEDS = 0.8, 0.01, 24
TARGETS = {1: 1.5, 8: 1.4}  # by streams
NEW_TOKENS = 256
SAMPLED: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.7},
    "top_p": {"temperature": 0.7, "top_p": 0.9},
    "top_k": {"temperature": 0.7, "extra_body": {"top_k": 40}},
    "min_p": {"temperature": 0.7, "extra_body": {"min_p": 0.05}},
    "penalty": {"temperature": 0.7, "frequency_penalty": 0.5},
}
SAMPLED_TARGET = 0.92
PACKED = 64  # weights that share a scale
_UNLIKE = 10.0  # what a token's first feature is, if the head guesses wrong after it
_EXACT = 15 / 16  # packed in 4 bits and bfloat16 scales, this and 0 stay what they are; 1 and 0 do not

Clients = Callable[..., AbstractContextManager[AsyncLocalOpenAI]]
Fields = Sequence[dict[str, Any]]
Marked = npt.NDArray[np.bool_]


def config(size: Size) -> dict[str, Any]:
    """A dense model whose heads are read."""
    return {
        "model_type": "mimo",
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "intermediate_size": size.intermediate,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "rms_norm_eps": 1e-6,
        "vocab_size": size.vocabulary,
        "rope_theta": 1_000_000.0,
        "max_position_embeddings": 32_768,
        "num_nextn_predict_layers": 1,
    }


def mark(model: Any, bits: int | None, seed: int) -> Marked:
    """Give a share of the tokens a feature that makes the head guess wrong behind them.

    The feature is alone in its group of packed weights: there it stays exact.

    Args:
        model: its next token depends on the last one only.
        bits: of its packed weights; None: they are not packed.
        seed: chooses the tokens.

    Returns:
        Which tokens have it, `[vocabulary]`.
    """
    embeddings = model.model.embed_tokens
    tokens, width = embeddings.weight.shape[0], model.model.norm.weight.shape[0]
    marked = mx.random.uniform(shape=(tokens,), key=mx.random.key(seed)) >= AGREEMENT
    feature = mx.where(marked, _UNLIKE / width**0.5, 0.0).astype(model.model.norm.weight.dtype)
    block = mx.concatenate([feature[:, None], mx.zeros((tokens, PACKED - 1), feature.dtype)], axis=1)
    made = {"weight": block}
    if bits is not None:
        made = dict(zip(("weight", "scales", "biases"), mx.quantize(block, PACKED, bits), strict=True))
    for name, first in made.items():
        embeddings[name] = mx.concatenate([first, embeddings[name][:, first.shape[1] :]], axis=1)
    mx.eval(embeddings.parameters())
    return np.array(marked)


def agree(model: Any, bits: int | None, clients: Clients, tokenizer: Any) -> float:
    """Mark the tokens so that the head is right about as often as it should be in the text that is measured.

    That text runs in a circle of a hundred tokens or so: which of them are marked is a matter of chance.

    Returns:
        The share of the text's tokens that the head guesses.
    """
    for seed in range(1, SEEDS + 1):
        marked = mark(model, bits, seed)
        with clients(EngineOptions(speculation="off"), None) as client:
            [(prompt, text)] = known_answers(client, _greedy(tokenizer, 1), NEW_TOKENS).items()
        share = 1 - float(np.mean(marked[[prompt[-1], *text[:-1]]]))
        if abs(share - AGREEMENT) <= NEAR:
            break
    return share


def save_head(folder: Path, model: Any, bits: int | None) -> Path:
    """Save a head that computes a layer's work and guesses as the model does, except after marked tokens.

    Args:
        bits: of packed weights, as the model's; None: not packed.

    Returns:
        The folder, which is new.
    """
    folder.mkdir()
    layer = dict(tree_flatten(model.model.layers[-1].parameters()))
    width, dtype = model.model.norm.weight.shape[0], model.model.norm.weight.dtype
    one, zeros = mx.ones(width, dtype), mx.zeros((width, width), dtype)
    embedded = mx.eye(width, dtype=dtype) * _EXACT
    embedded[:, 0] = mx.random.normal((width,), dtype, key=mx.random.key(2))
    join = nn.Linear(2 * width, width, bias=False)
    join.weight = mx.concatenate([zeros, embedded], axis=1)
    if bits is not None:
        join = join.to_quantized(group_size=PACKED, bits=bits)
    norms = {"token_layernorm": one, "hidden_layernorm": one, "final_layernorm": model.model.norm.weight}
    made = layer | {f"{name}.weight": array for name, array in norms.items()}
    made |= {f"input_proj.{name}": array for name, array in tree_flatten(join.parameters())}
    mx.save_safetensors(str(folder / "mtp.safetensors"), {f"model.mtp_layers.0.{n}": a for n, a in made.items()})
    return folder


def measure(
    section: Section, label: str, clients: Clients, folder: Path, tokenizer: Any, repeats: int, share: float
) -> None:
    """Decode rates with a head and without, in turns.

    Args:
        clients: makes one with its own engine, from options and a function that loads the draft model.
        folder: the head's.
        share: of the tokens, that the head guesses.
    """
    heads: list[MTPHead] = []

    def load(model: TextModel) -> MTPHead | None:
        head = head_in(folder, model)
        heads.extend([head] if head else [])
        return head

    on = clients(EngineOptions(speculation="auto", draft_model="head"), load)
    with clients(EngineOptions(speculation="off"), None) as off, drafting(Oracle()), on as drafts:  # nothing is known
        pair = Pair(off, drafts)
        for count, target in TARGETS.items():
            made = _greedy(tokenizer, count)
            rates = pair.compare([count], partial(_same, made), NEW_TOKENS, repeats, close=False)[count]
            name = f"gpu, {label}: a head that agrees {share:.2f}, {count} streams / without"
            note = f"tokens per second {spread(rates[1], digits=0)}, without {spread(rates[0], digits=0)}"
            section.figures.append(Figure(name, ratios(rates[1], rates[0]), target, note=note))
            section.raw[f"{label} head {count}"] = rates
            print(name, spread(ratios(rates[1], rates[0])), note, drafts.stats().drafts, flush=True)


def measure_sampled(section: Section, label: str, client: AsyncLocalOpenAI, tokenizer: Any, repeats: int) -> None:
    """Decode rates of one sampled stream and of a greedy one, in turns."""
    [greedy] = _greedy(tokenizer, 1)
    for kind, settings in SAMPLED.items():
        rates: tuple[list[float], list[float]] = ([], [])
        pairs = list(zip(rates, ({**greedy, **settings}, greedy), strict=True))
        for number in range(repeats + 1):
            for its, fields in in_turns(pairs, number):
                rate = run(client, [fields], NEW_TOKENS).decode_rate
                if number and rate:  # the first ones compile kernels
                    its.append(rate)
        name = f"gpu, {label}: one stream with {kind} / greedy"
        section.figures.append(Figure(name, ratios(*rates), SAMPLED_TARGET))
        section.raw[f"{label} {kind}"] = rates
        print(name, spread(ratios(*rates)), flush=True)


def _greedy(tokenizer: Any, count: int) -> list[dict[str, Any]]:
    return [{"messages": prompt.messages} for prompt in Prompts(tokenizer, 128, seed=count).take(count)]


def _same(made: Fields, count: int) -> Fields:
    return made

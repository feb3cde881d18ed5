"""What rows may sample, one row and one token at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.sampled_rows import FakeRow

EOS = [2, 5]


class Allowing:
    """A constraint that allows the same tokens all the time."""

    idle = False

    def __init__(self, allowed: list[int], escape: int | None = None) -> None:
        self.allowed, self.escape = allowed, escape

    def mask(self, out: Any) -> bool:
        for token in self.allowed:
            out.view(np.uint32)[token // 32] |= np.uint32(1 << token % 32)
        return True

    def accept(self, token_id: int) -> bool:
        return False

    def limit(self, raw: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """What the engine is to sample from, as `types.GrammarConstraint` and `min_tokens` have it."""
        escapes = np.argmax(raw) == self.escape and np.isfinite(logits[self.escape])
        allowed = [self.escape] if escapes else self.allowed
        limited = np.full(len(logits), -np.inf)
        limited[allowed] = logits[allowed] if np.isfinite(logits[allowed]).any() else raw[allowed]
        return limited


def adjusted(logits: np.ndarray, row: FakeRow) -> np.ndarray:
    """Bias, bans, penalties and then masks as OpenAI's and vLLM's documentation describe them, one entry at a time."""
    out = logits.astype(np.float64).copy()
    p = row.sampling
    for token, bias in p.logit_bias.items():
        out[token] += bias
    if row.sampled < row.min_tokens:
        out[[*EOS, *row.stop_token_ids]] = -np.inf
    if p.allowed_token_ids is not None:
        out[np.setdiff1d(np.arange(len(out)), p.allowed_token_ids)] = -np.inf
    for *before, last in p.bad_words:
        if row.history[len(row.history) - len(before) :] == before:
            out[last] = -np.inf
    for token in range(len(out)):
        count = row.history.count(token)
        if count or token in row.prompt_tokens:
            out[token] = out[token] / p.repetition_penalty if out[token] > 0 else out[token] * p.repetition_penalty
        out[token] -= p.frequency_penalty * count + p.presence_penalty * (count > 0)
    out = out if row.constraint is None else row.constraint.limit(logits, out)
    if p.group_from is not None:
        inside, others = out[p.group_from :], out[: p.group_from]
        if np.exp(inside).sum() > np.exp(others).max(initial=0.0):
            out = np.concatenate([np.full(len(others), -np.inf), inside])
    return out


def reference_weights(logits: np.ndarray, row: FakeRow) -> tuple[np.ndarray, np.ndarray]:
    """Weights of all tokens that min_p and top_k leave, and of those that top_p leaves, too; 0 of the others."""
    p = row.sampling
    scaled = adjusted(logits, row) / p.temperature
    weights = np.exp(scaled - scaled.max())
    weights[weights < p.min_p] = 0
    if 0 < p.top_k < len(weights):
        weights[weights < np.sort(weights)[-p.top_k]] = 0
    if p.top_p == 1:
        return weights, weights
    falling = np.sort(weights)[::-1]
    inside = int((np.cumsum(falling) - falling < p.top_p * falling.sum()).sum())
    return weights, np.where(weights >= falling[max(inside, 1) - 1], weights, 0)
